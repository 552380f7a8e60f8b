"""What real sites do to data, as words and numbers: names, strengths and their limits.

The functions are in `messy`; they act in the order of this table, whatever the order in which they are named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from feddbn.errors import ParameterError
from feddbn.settings import is_number

__all__ = ["MESSES", "Mess", "MessNames", "resolve_mess"]

MessNames = str | Sequence[str] | Mapping[str, float | None] | None
"""How a mess is asked for: a name, several, or names with strengths (None: the default strength)."""


@dataclass(frozen=True)
class Mess:
    """One thing that sites do to data.

    Attributes
    ----------
    name
        What it is asked for by.
    does
        One line on what happens.
    default
        Its strength if none is given.
    strength
        What the strength means.
    least, most
        The smallest and the largest strength.
    is_whole
        Whether the strength is a whole number.
    parts
        Other messes that this one stands for, each with its strength at strength 1.
    least_d, least_lags
        The smallest network it makes sense for.

    Examples
    --------
    >>> from feddbn.sim import MESSES
    >>> MESSES["missing"].does, MESSES["missing"].default
    ('some cells are empty', 0.1)
    """

    name: str
    does: str
    default: float
    strength: str
    least: float
    most: float
    is_whole: bool = False
    parts: Mapping[str, float] = field(default_factory=dict)
    least_d: int = 1
    least_lags: int = 0


_SD = "in standard deviations of the variable"
_SHARE = "share of the cells"
_ROWS = (
    # The network and its noise.
    Mess(
        "unequal-noise",
        "noise of every variable multiplied by a factor of its own",
        2.0,
        "largest factor",
        1.0,
        1e3,
    ),
    Mess(
        "slow-levels",
        "variables that no other acts on within a time step hardly forget their last value: levels near a unit root",
        0.97,
        "largest eigenvalue of the system",
        0.95,
        0.9999,
        least_lags=1,
    ),
    Mess(
        "heavy-tails",
        "noise with heavy tails: Student's t if it was Gaussian",
        3.0,
        "degrees of freedom",
        2.1,
        1e3,
    ),
    Mess(
        "autocorrelated-noise",
        "noise remembers itself from row to row",
        0.6,
        "correlation of neighbouring rows",
        0.0,
        0.99,
    ),
    Mess(
        "changing-noise",
        "the size of the noise rises and falls slowly, differently at every site and variable",
        0.8,
        "amplitude of the wave of the logarithm of its standard deviation",
        0.0,
        3.0,
    ),
    Mess("noisy-site", "one site has more noise than the others", 3.0, "factor", 1.0, 1e3),
    Mess(
        "hidden-causes",
        "two causes that nobody measures act on three variables each, within a time step",
        0.8,
        "weight of the hidden causes, in standard deviations of the noise",
        0.0,
        1e3,
        least_d=2,
    ),
    Mess(
        "hidden-lagged-cause",
        "a cause that nobody measures acts on two variables at once and on two others a row later",
        0.8,
        "weight of the hidden cause, in standard deviations of the noise",
        0.0,
        1e3,
        least_d=2,
    ),
    # How effects travel.
    Mess(
        "stopping-edges",
        "some edges stop half-way through every recording",
        0.25,
        "share of the edges",
        0.0,
        1.0,
    ),
    Mess(
        "tanh",
        "effects level off: the tanh of a cause acts",
        1.0,
        "steepness; towards 0 effects are linear",
        0.01,
        100,
    ),
    Mess(
        "squares",
        "the square of a cause acts, not the cause",
        1.0,
        "share of the square in the effect",
        0.0,
        1.0,
    ),
    # Columns that are no measurements of their own.
    Mess(
        "sum-column",
        "one more column that is the sum of others",
        3.0,
        "number of columns in the sum",
        2,
        1e6,
        is_whole=True,
        least_d=2,
    ),
    Mess("duplicate", "one more column that copies another", 0.0, f"noise on the copy, {_SD}", 0.0, 10.0),
    # Sampling, drifts, units, sensors, files.
    Mess(
        "jitter",
        "rows are taken a little early or late (interpolated)",
        0.3,
        "largest shift in rows",
        0.0,
        1.0,
    ),
    Mess(
        "two-rates",
        "half of the sites see only some rows, at equal distances",
        2.0,
        "2 for every second row",
        1,
        100,
        is_whole=True,
    ),
    Mess(
        "trend",
        "a straight line for every site and variable",
        3.0,
        f"standard deviation of its rise, {_SD}",
        0.0,
        1e3,
    ),
    Mess(
        "cycle",
        "a cycle of 24 rows, with a size and phase of its own for every site and variable",
        1.5,
        f"standard deviation of its amplitude, {_SD}",
        0.0,
        1e3,
    ),
    Mess(
        "measurement-noise",
        "sensors add noise to every cell",
        0.5,
        f"its standard deviation, {_SD}",
        0.0,
        1e3,
    ),
    Mess(
        "gains", "a factor for every site and variable", 0.4, "standard deviation of its logarithm", 0.0, 10.0
    ),
    Mess("offsets", "a mean for every site and variable", 3.0, f"its standard deviation, {_SD}", 0.0, 1e6),
    Mess(
        "unit-variance",
        "every variable scaled to variance 1",
        1.0,
        "power of the standard deviation",
        0.0,
        1.0,
    ),
    Mess("other-units", "one site has one variable in other units", 100.0, "factor", 1e-9, 1e9),
    Mess("stuck", "one sensor of one site repeats a value for a while", 0.25, "share of its rows", 0.0, 1.0),
    Mess("rounding", "values are rounded", 1.0, "to multiples of this", 1e-9, 1e9),
    Mess("spikes", "outliers: some cells are 15 standard deviations off", 0.01, _SHARE, 0.0, 1.0),
    Mess(
        "mixed-columns",
        "some sites have their columns in another order under the same names",
        1.0,
        "number of sites",
        0,
        1e6,
        is_whole=True,
        least_d=2,
    ),
    Mess("sentinels", "-999 in some cells, for 'missing'", 0.01, _SHARE, 0.0, 1.0),
    Mess("missing", "some cells are empty", 0.1, _SHARE, 0.0, 0.95),
    Mess(
        "everything",
        "offsets, a trend, 10 % missing and 0.5 % outliers at once",
        1.0,
        "factor for the strengths of the four",
        0.0,
        9.0,
        parts=MappingProxyType({"trend": 3.0, "offsets": 3.0, "spikes": 0.005, "missing": 0.1}),
    ),
)
MESSES: Mapping[str, Mess] = MappingProxyType({mess.name: mess for mess in _ROWS})
"""Every mess by name, in the order in which they act."""


def resolve_mess(asked: MessNames, d: int, n_lags: int) -> dict[str, float]:
    """Return name -> strength in the order in which they act; `everything` is replaced by its parts.

    Raises
    ------
    ParameterError
        If a name is not known, a strength is impossible or the network is too small.

    Examples
    --------
    >>> from feddbn.sim.mess import resolve_mess
    >>> resolve_mess("everything", d=3, n_lags=1)
    {'trend': 3.0, 'offsets': 3.0, 'spikes': 0.005, 'missing': 0.1}
    """
    strengths: dict[str, float] = {}
    for name, value in _pairs(asked).items():
        mess = MESSES.get(name) if isinstance(name, str) else None
        if mess is None:
            raise ParameterError(f"mess={name!r} is not known; choose from {', '.join(MESSES)}.")
        if d < mess.least_d or n_lags < mess.least_lags:
            need = f"d >= {mess.least_d}" if d < mess.least_d else f"n_lags >= {mess.least_lags}"
            raise ParameterError(f"mess={name!r} needs {need}, got d={d} and n_lags={n_lags}.")
        strength = _strength(mess, value)
        for part, share in mess.parts.items():
            strengths.setdefault(part, share * strength)
        if not mess.parts:
            strengths[name] = strength
    if "tanh" in strengths and "squares" in strengths:
        raise ParameterError(
            "mess has both 'tanh' and 'squares', but effects can have one shape; leave one out."
        )
    return {name: strengths[name] for name in MESSES if name in strengths}


def _pairs(asked: MessNames) -> dict[str, float | None]:
    if asked is None:
        return {}
    if isinstance(asked, Mapping):
        return dict(asked)
    if isinstance(asked, str):
        return {asked: None}
    if isinstance(asked, Sequence):
        return {name if isinstance(name, str) else repr(name): None for name in asked}
    raise ParameterError(f"mess must be a name, a list of names or a dict of strengths, got {asked!r}.")


def _strength(mess: Mess, value: float | None) -> float:
    if value is None:
        return mess.default
    is_possible = is_number(value) and mess.least <= value <= mess.most
    if not is_possible or (mess.is_whole and value != round(value)):
        kind = "whole number" if mess.is_whole else "number"
        raise ParameterError(
            f"mess={mess.name!r} has strength {value!r}, but it must be a {kind} from {mess.least:g} to {mess.most:g} "
            f"({mess.strength}; default {mess.default:g})."
        )
    return float(value)
