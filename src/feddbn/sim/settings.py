"""What is simulated, checked before anything is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.kinds import Kind
from feddbn.data.kinds import read_kinds
from feddbn.errors import Given, ParameterError
from feddbn.model.step import NOISE_FAMILIES
from feddbn.settings import Rule, nothing, number, several, whole, word
from feddbn.sim.corruptions import CorruptionNames, strengths_of

EFFECTS = ("linear", "gp")
"""What effects can be asked for: straight lines, or functions drawn from a Gaussian process."""
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
    kinds: AskedKinds = None
    n_latent: int = 0

    def __post_init__(self) -> None:
        for name, rule in _RULES.items():
            rule.check(name, getattr(self, name))
        d, names = self.d, self.variables
        several(number(above=0), f"one positive number or d={d} of them").check(
            "noise_scale", np.ravel(self.noise_scale).tolist()
        )
        if np.size(self.noise_scale) not in (1, d):
            raise ParameterError(
                f"noise_scale must be one positive number or d={d} of them, got {self.noise_scale!r}."
            )
        if self.site_sizes is not None and len(self.site_sizes) != self.n_sites:
            raise ParameterError(
                f"site_sizes must hold {self.n_sites} numbers, one per site, got {self.site_sizes!r}."
            )
        if names is not None and not len(names) == len({str(name) for name in names}) == d:
            raise ParameterError(f"variables must be d={d} different names, got {names!r}.")
        smallest = min(self.usable_rows)
        if smallest < self.n_recordings:
            raise ParameterError(
                f"n_recordings={self.n_recordings} needs as many usable rows at every site, but one has "
                f"{smallest}; raise n_samples or site_sizes, or lower n_sites or n_recordings."
            )
        object.__setattr__(self, "corruptions", strengths_of(self.corruptions, d))
        plain: dict[str, object] = {"effects": "linear", "corruptions": {}}
        clashes = {
            "kinds": {**plain, "noise": "gaussian"} if self.kinds_of_all else {},
            "n_latent": {**plain, "kinds": None} if self.n_latent else {},
        }
        for asked, others in clashes.items():
            for name, value in others.items():
                if getattr(self, name) != value:
                    raise ParameterError(
                        f"{name}={getattr(self, name)!r} cannot be simulated together with "
                        f"{asked}={getattr(self, asked)!r}; leave {name} or {asked} out."
                    )

    @property
    def with_hidden(self) -> SimulationSettings:
        """The same for all variables, ``hidden0, hidden1, ...`` after those that are seen; their noise is of mean size."""
        n, scales = self.n_latent, self.noise_scales
        names = (*self.variable_names, *(f"hidden{k}" for k in range(n)))
        sizes = (*scales.tolist(), *[float(scales.mean())] * n)
        return replace(self, d=self.d + n, variables=names, noise_scale=sizes, n_latent=0)

    @property
    def usable_rows(self) -> tuple[int, ...]:
        """Usable rows of every site: `site_sizes`, or `n_samples` split evenly, the larger shares first."""
        if self.site_sizes is not None:
            return tuple(int(size) for size in self.site_sizes)
        return split_evenly(self.n_samples, self.n_sites)

    @property
    def strengths(self) -> dict[str, float]:
        """Corruption -> strength, in the order in which they act."""
        return dict(self.corruptions)  # type: ignore[arg-type]

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


def split_evenly(total: int, n_parts: int) -> tuple[int, ...]:
    """`n_parts` sizes that differ by at most one and add up to `total`; the larger ones first."""
    share, remainder = divmod(total, n_parts)
    return tuple(share + (part < remainder) for part in range(n_parts))


def _is_range(value: Any) -> bool:
    try:
        low, high = (float(bound) for bound in value)
    except (TypeError, ValueError):
        return False
    return 0 < low <= high < math.inf


_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("d", "n_sites", "n_samples", "n_recordings"), whole(1)),
    **dict.fromkeys(("n_lags", "burn_in", "n_latent"), whole(0)),
    **dict.fromkeys(("mean_degree", "lag_degree"), number(0.0)),
    "decay": number(1.0),
    "w_range": Rule(_is_range, ("two sizes 0 < low <= high",)),
    "noise": word(*NOISE_FAMILIES),
    "heterogeneity": number(0, most=1) | word("independent"),
    "effects": word(*EFFECTS),
    "site_sizes": several(whole(1), "whole numbers of rows") | nothing(),
    "variables": Rule(lambda value: not isinstance(value, str), ("several names",)),
}
"""Argument -> what it may be by itself."""
