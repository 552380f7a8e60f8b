"""What is simulated, checked before anything is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.kinds import Kind
from feddbn.data.kinds import read_kinds
from feddbn.errors import Given, ParameterError
from feddbn.model.step import NOISE_FAMILIES
from feddbn.settings import is_number, number, whole, word
from feddbn.sim.corruptions import CorruptionNames, strengths_of

EFFECTS = ("linear", "gp", "spline", "sigmoid", "threshold", "quadratic", "mixed")
"""What effects can be asked for; "mixed": every edge straight with probability 1/2, else a function of any kind."""
AskedKinds = Mapping[str, object] | Sequence[object] | None


def kinds_asked(asked: AskedKinds, variables: Sequence[str]) -> tuple[Kind, ...]:
    """The kind of each variable; empty if none is asked for.

    A mapping names variables (`feddbn.data.kinds.read_kinds`), a list is given out in turn, again and again. "ordinal:4"
    stands for four levels.
    """
    if asked is None:
        return ()
    if isinstance(asked, Mapping):
        said = dict(asked)
    elif isinstance(asked, Sequence) and not isinstance(asked, str) and len(asked):
        said = {name: asked[k % len(asked)] for k, name in enumerate(variables)}
    else:
        raise ParameterError(
            f"{Given('kinds', asked)} must name kinds by variable, such as {{'x0': 'count'}}, or be a list of kinds "
            "that are given out in turn, such as ['continuous', 'binary']."
        )
    return read_kinds({name: _with_levels(kind) for name, kind in said.items()}, variables)


def _with_levels(said: object) -> object:
    if isinstance(said, str) and ":" in said:
        name, _, number = said.partition(":")
        if number.isdecimal():
            return {name: int(number)}
    return said


@dataclass(frozen=True)
class SimulationSettings:
    """Every choice of a simulated federation; `feddbn.simulate` documents each one.

    Raises
    ------
    ParameterError
        One sentence about the first argument that is impossible.
    """

    d: int = 10
    n_lags: int = 1
    n_sites: int = 10
    n_samples: int = 512
    mean_degree: float = 4
    lag_degree: float = 1
    w_range: tuple[float, float] = (0.3, 0.5)
    a_range: tuple[float, float] | None = None
    decay: float = 1.5
    heterogeneity: float | str = 0.0
    noise: str = "gaussian"
    noise_scale: float | Sequence[float] = 1.0
    site_sizes: Sequence[int] | None = None
    n_recordings: int = 1
    burn_in: int = 300
    variables: Sequence[str] | None = None
    corruptions: CorruptionNames = None
    effects: str = "linear"
    interactions: float = 0
    kinds: AskedKinds = None

    def __post_init__(self) -> None:
        for name, least in (
            ("d", 1),
            ("n_lags", 0),
            ("n_sites", 1),
            ("n_samples", 1),
            ("n_recordings", 1),
            ("burn_in", 0),
        ):
            whole(least).check(name, getattr(self, name))
        for name, least_number in (("mean_degree", 0.0), ("lag_degree", 0.0), ("decay", 1.0)):
            number(least_number).check(name, getattr(self, name))
        _range("w_range", self.w_range)
        if self.a_range is not None:
            _range("a_range", self.a_range)
        word(*NOISE_FAMILIES).check("noise", self.noise)
        self._check_heterogeneity()
        self._check_sizes()
        self._check_variables()
        object.__setattr__(self, "corruptions", strengths_of(self.corruptions, self.d))
        word(*EFFECTS).check("effects", self.effects)
        self._check_interactions()
        self._check_kinds()

    def _check_kinds(self) -> None:
        if not self.kinds_of_all:
            return
        others: tuple[tuple[str, object, object], ...] = (
            ("effects", self.effects, "linear"),
            ("interactions", self.interactions, 0),
            ("corruptions", self.strengths, {}),
            ("noise", self.noise, "gaussian"),
        )
        for name, value, plain in others:
            if value != plain:
                raise ParameterError(
                    f"{name}={value!r} cannot be simulated together with kinds, whose variables have distributions of their"
                    f" own; leave {name} or kinds out."
                )

    def _check_interactions(self) -> None:
        value = self.interactions
        if not is_number(value) or not (0 <= value < 1 or (value >= 1 and value == round(value))):
            raise ParameterError(
                "interactions must be a whole number (products of two lagged causes in a network) or a share below 1 "
                f"(as many for each lagged edge), got {value!r}."
            )
        if value and (self.d < 2 or self.n_lags < 1):
            raise ParameterError(
                f"interactions={value!r} need two lagged causes, got d={self.d} and n_lags={self.n_lags}; "
                "use d >= 2 and n_lags >= 1, or interactions=0."
            )
        most = self.d * self.n_lags**2 * math.comb(self.d, 2)
        if value > most:
            raise ParameterError(
                f"interactions={value!r} is more than the {most} there can be with d={self.d} and n_lags={self.n_lags}."
            )

    def _check_heterogeneity(self) -> None:
        value = self.heterogeneity
        (number(0, most=1) | word("independent")).check("heterogeneity", value)

    def _check_sizes(self) -> None:
        try:
            scale = np.asarray(self.noise_scale, dtype=np.float64)
        except (TypeError, ValueError):
            scale = np.array(np.nan)
        if scale.shape not in ((), (self.d,)) or not np.all(np.isfinite(scale)) or np.any(scale <= 0):
            raise ParameterError(
                f"noise_scale must be one positive number or d={self.d} of them, got {self.noise_scale!r}."
            )
        if self.site_sizes is not None:
            if np.ndim(self.site_sizes) != 1 or len(self.site_sizes) != self.n_sites:
                raise ParameterError(
                    f"site_sizes must hold {self.n_sites} numbers, one per site, got {self.site_sizes!r}."
                )
            for size in self.site_sizes:
                whole(1).check("site_sizes", size)
        smallest = min(self.usable_rows)
        if smallest < self.n_recordings:
            raise ParameterError(
                f"n_recordings={self.n_recordings} needs as many usable rows at every site, but one has "
                f"{smallest}; raise n_samples or site_sizes, or lower n_sites or n_recordings."
            )

    def _check_variables(self) -> None:
        if self.variables is None:
            return
        names = [str(v) for v in self.variables]
        if isinstance(self.variables, str) or len(names) != self.d or len(set(names)) != self.d:
            raise ParameterError(f"variables must be d={self.d} different names, got {self.variables!r}.")

    @property
    def usable_rows(self) -> tuple[int, ...]:
        """Usable rows of every site: `site_sizes`, or `n_samples` split evenly, the larger shares first."""
        if self.site_sizes is not None:
            return tuple(int(size) for size in self.site_sizes)
        return split_evenly(self.n_samples, self.n_sites)

    @property
    def strengths(self) -> dict[str, float]:
        """Corruption -> strength, in the order in which they act."""
        return strengths_of(self.corruptions, self.d)

    @property
    def is_independent(self) -> bool:
        """Whether the networks of sites have nothing in common."""
        return self.heterogeneity == "independent"

    @property
    def noise_scales(self) -> FloatArray:
        """(d,) standard deviations of the noise."""
        return np.broadcast_to(np.asarray(self.noise_scale, dtype=np.float64), (self.d,)).copy()

    @property
    def variable_names(self) -> tuple[str, ...]:
        """The d names; ``x0, x1, ...`` unless given."""
        return (
            tuple(str(v) for v in self.variables)
            if self.variables is not None
            else tuple(f"x{i}" for i in range(self.d))
        )

    @property
    def kinds_of_all(self) -> tuple[Kind, ...]:
        """The kind of each variable; empty if none was asked for."""
        return kinds_asked(self.kinds, self.variable_names)

    @property
    def lag_range(self) -> tuple[float, float]:
        """The weight range of lag 1."""
        return self.w_range if self.a_range is None else self.a_range


def split_evenly(total: int, n_parts: int) -> tuple[int, ...]:
    """`n_parts` sizes that differ by at most one and add up to `total`; the larger ones first."""
    share, remainder = divmod(total, n_parts)
    return tuple(share + (part < remainder) for part in range(n_parts))


def _range(name: str, value: object) -> None:
    try:
        low, high = (float(bound) for bound in value)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not 0 < low <= high < math.inf:
        raise ParameterError(
            f"{name} must be two sizes 0 < low <= high, got {value!r}; signs are drawn for you."
        )
