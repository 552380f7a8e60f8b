"""What is in every model and is no edge: means, trends and cycles, common to all sites or of one recording.

Taking them off before products are summed is the same as having them in every regression (Frisch, Waugh and
Lovell): with Z the design rows of a recording and B its nuisance columns ::

    Z'Z - Z'B (B'B)^-1 B'Z

which needs the products of [Z, B] only, so no row is kept. A recording with a trend or cycle that does not know its
times is read twice: first for these, from which B is made.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.statistics.moments import Moments
from feddbn.errors import DataError, ParameterError
from feddbn.settings import whole, word

SCOPES = ("all", "recording", "label")
Label = str | int | float | None
SHARED: Hashable = ("shared",)
"""The group of rows whose mean is common to all sites."""

_MAX_DEGREE = 12
_SHORTEST_PERIOD = 2.0
# Directions in which the nuisance columns vary less than this, relative to their own scale, are no directions.
_COLLINEAR = 1e-6


@dataclass(frozen=True)
class Nuisance:
    """A description of the nuisance columns.

    Attributes
    ----------
    scope
        "all": one mean, common to all sites. "recording": every recording has its own. "label": rows whose
        label is the baseline share one mean over all sites; rows of any other label have a mean of their own
        in each recording.
    degree
        Degree of a polynomial in time, of every recording its own; 0 is the mean.
    periods
        A sine and a cosine of each period, in sampling steps, of every recording its own.
    baseline
        The label that counts as "nothing special"; None: 0, False, empty or missing.
    """

    scope: str = "all"
    degree: int = 0
    periods: tuple[float, ...] = ()
    baseline: Label = None

    def __post_init__(self) -> None:
        word(*SCOPES).check("scope", self.scope)
        object.__setattr__(self, "degree", whole(0, _MAX_DEGREE).check("degree", self.degree))
        periods = finite_numbers(self.periods, "periods")
        if any(period < _SHORTEST_PERIOD for period in periods):
            raise ParameterError(
                f"periods={periods} must be at least {_SHORTEST_PERIOD:g} sampling steps each;"
                " shorter cycles cannot be seen."
            )
        if len(set(periods)) < len(periods):
            raise ParameterError(f"periods={periods} names a period twice; name each once.")
        object.__setattr__(self, "periods", periods)
        if self.scope != "recording" and self.has_time:
            raise ParameterError(
                f"scope={self.scope!r} has one mean only, but degree={self.degree} and periods={periods}"
                " ask for more; trends and cycles need scope='recording'."
            )
        self._check_baseline()

    def _check_baseline(self) -> None:
        value = self.baseline
        if value is None:
            return
        if self.scope != "label":
            raise ParameterError(
                f"baseline={value!r} names a label, but scope={self.scope!r} reads no labels."
            )
        if isinstance(value, float) and value.is_integer():
            # True, 1 and 1.0 are the same label; one way to write it gives equal designs equal digests.
            object.__setattr__(self, "baseline", int(value))
        elif isinstance(value, int):
            object.__setattr__(self, "baseline", int(value))
        elif not isinstance(value, (str, float)) or value != value:
            raise ParameterError(f"baseline={value!r} must be a text or a number.")

    @property
    def has_time(self) -> bool:
        """Whether it depends on time: more than a mean."""
        return self.degree > 0 or bool(self.periods)

    def columns(self, times: FloatArray, span: tuple[float, float]) -> FloatArray:
        """(n, k) nuisance columns but for the constant, at these times; the recording lasts over `span`."""
        found: list[FloatArray] = [np.empty((len(times), 0))]
        if self.degree:
            first, last = span
            # Legendre polynomials over the recording are nearly orthogonal; powers of t are nearly collinear.
            place = 2.0 * (times - first) / max(last - first, 1.0) - 1.0
            found.append(
                np.asarray(np.polynomial.legendre.legvander(place, self.degree)[:, 1:], dtype=np.float64)
            )
        for period in self.periods:
            # The whole turns are dropped first: a sine of a large angle has lost its digits.
            angle = 2.0 * np.pi * ((times / period) % 1.0)
            found.append(np.column_stack([np.sin(angle), np.cos(angle)]))
        return np.concatenate(found, axis=1)

    def groups(
        self, rows: FloatArray, labels: NDArray[np.generic] | None, recording: str
    ) -> Iterator[tuple[Hashable, FloatArray]]:
        """Yield (group, rows) of consecutive rows: rows of one group share their mean."""
        if self.scope == "all":
            yield SHARED, rows
        elif self.scope == "recording":
            yield "recording", rows
        elif labels is None:
            raise DataError(
                f"recording {recording!r} has no label column, but center_by asks to centre rows by it."
            )
        else:
            baseline = is_baseline(labels, self.baseline)
            if baseline.any():
                yield SHARED, rows[baseline]
            values = np.array([str(value) for value in labels.tolist()])
            for value in sorted(set(values[~baseline].tolist())):
                yield ("label", value), rows[~baseline & (values == value)]


def finite_numbers(values: Sequence[float], what: str) -> tuple[float, ...]:
    """Return the values as finite floats, with one zero instead of two, or refuse them by name."""
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(listed, (list, tuple)) or any(isinstance(x, (bool, str)) for x in listed):
        raise ParameterError(f"{what}={values!r} must be a list of numbers.")
    try:
        found = tuple(float(value) + 0.0 for value in listed)
    except (TypeError, ValueError):
        raise ParameterError(f"{what}={values!r} must be a list of numbers.") from None
    if not np.all(np.isfinite(found)):
        raise ParameterError(f"{what}={found} must be finite numbers.")
    return found


ONE_MEAN = Nuisance()
"""What every design has at least."""
RECORDING_MEANS = Nuisance("recording")


def is_baseline(labels: NDArray[np.generic], baseline: Label = None) -> BoolArray:
    """(n,) whether a label equals `baseline`; without one, whether it is 0, False, empty or missing."""
    if baseline is not None:
        return np.array([value == baseline for value in labels.tolist()], dtype=bool)
    return np.array([value is None or value != value or not value for value in labels.tolist()], dtype=bool)


@dataclass(frozen=True)
class TimeBasis:
    """Orthonormal nuisance columns of one recording, but for the constant: ``(columns - mean) mix``.

    Cycles longer than a recording and polynomials are nearly the same columns; their products would lose twice
    as many digits as the columns themselves, so they are made orthogonal before anything is multiplied.
    """

    nuisance: Nuisance
    span: tuple[float, float]
    mean: FloatArray
    mix: FloatArray

    @staticmethod
    @lru_cache(maxsize=8)
    def over(nuisance: Nuisance, runs: tuple[tuple[int, int], ...]) -> TimeBasis:
        """The basis over rows at these times: (first, number) of consecutive ones. Recordings are often as long as others."""
        span = (float(runs[0][0]), float(runs[-1][0] + runs[-1][1] - 1))
        R: FloatArray | None = None
        for first, m in runs:
            columns = nuisance.columns(first + np.arange(m, dtype=np.float64), span)
            rows = np.column_stack([np.ones(m), columns])
            R = np.asarray(np.linalg.qr(rows if R is None else np.concatenate([R, rows]), mode="r"))
        assert R is not None
        mean, centred = R[0, 1:] / R[0, 0], R[1:, 1:]
        size = np.sqrt((centred**2).sum(axis=0))
        # Nuisance columns are of size one: what varies less than this is constant but for rounding.
        varying = np.flatnonzero(size > 1e-10 * abs(R[0, 0]))
        _, s, Vt = np.linalg.svd(centred[:, varying] / size[varying], full_matrices=False)
        real = s > _COLLINEAR
        mix = np.zeros((len(mean), int(real.sum())))
        mix[varying] = (Vt[real] / s[real, None]).T / size[varying, None]
        return TimeBasis(nuisance, span, mean, mix)

    def at(self, times: FloatArray) -> FloatArray:
        """(n, rank) columns at these times."""
        return (self.nuisance.columns(times, self.span) - self.mean) @ self.mix


def project_off(joint: Moments, q: int) -> tuple[FloatArray, int]:
    """(..., q, q) products of the first q columns after their mean and the other, orthonormal columns are taken off,
    and how many parameters that took.
    """
    rank = 1 + joint.q - q
    if joint.n <= rank:
        # Nothing is left of rows that the nuisances explain completely; what is computed is rounding.
        return np.zeros((*joint.mean.shape[:-1], q, q)), int(joint.n)
    cross = joint.scatter[..., q:, :q]
    known = np.linalg.solve(joint.scatter[..., q:, q:], cross)
    rest = joint.scatter[..., :q, :q] - cross.swapaxes(-1, -2) @ known
    return (rest + rest.swapaxes(-1, -2)) / 2, rank
