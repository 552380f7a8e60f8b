"""Simulated federations with known networks: systems are drawn, made networks, and run from noise of their own.

The streams of structure, noise, corruptions and functions are independent, and every recording has one of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.ancestral.marks import true_marks
from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model.dbn import DBN
from feddbn.model.dynamics import first_rows
from feddbn.model.graph import AncestralGraph
from feddbn.model.network import random_generator
from feddbn.model.nodes import known
from feddbn.model.step import Step, draw_noise, impact, run
from feddbn.shown import Shown
from feddbn.sim.corruptions import CorruptionNames, Sites, corrupted
from feddbn.sim.functions import networks_of
from feddbn.sim.kinds import draw_ends, stable_network
from feddbn.sim.settings import AskedKinds, SimulationSettings, split_evenly
from feddbn.sim.systems import System, draw_systems

__all__ = ["SimulatedFederation", "simulate"]

_NUMBERS_TOGETHER = 1 << 24
"""Of the noise of recordings that are made at once: 128 megabytes."""


@dataclass(frozen=True, eq=False)
class SimulatedFederation(Shown):
    """Sites with recordings and the networks that generated them.

    Attributes
    ----------
    sites
        Site name (``site-0``, ``site-1``, ...) -> its recordings.
    truths
        Site name -> the network it follows; sites that share a network share the object.
    lag_damping
        Site name -> c. 1 unless no stable draw was found; then ``A_l`` was multiplied by ``c**l``, and weights may lie below
        the range that was asked for.
    parameters
        The arguments of `simulate`, `random_state` included; `corruptions` as name -> strength.
    whole
        Site name -> its network with the variables that are hidden (``hidden0``, ...); None if that is not known.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> data.truth.variables, sorted(data.sites), data.is_homogeneous
    (('x0', 'x1', 'x2'), ['site-0', 'site-1'], True)
    """

    sites: dict[str, list[pd.DataFrame]]
    truths: dict[str, DBN]
    lag_damping: dict[str, float]
    parameters: dict[str, Any] = field(repr=False)
    whole: dict[str, DBN] | None = field(default=None, repr=False)

    @property
    def is_homogeneous(self) -> bool:
        """Whether every site follows the same network."""
        return len({id(dbn) for dbn in self.truths.values()}) == 1

    @property
    def truth(self) -> DBN:
        """The one network of a homogeneous federation."""
        if not self.is_homogeneous:
            raise ParameterError(
                "the sites of this federation follow different networks, so there is no single truth; "
                "use .truths, one network per site."
            )
        return next(iter(self.truths.values()))

    def ancestral_truth(self) -> AncestralGraph:
        """What can be said of causes from seen variables alone, if all independences are known: see `true_marks`."""
        if self.whole is None:
            raise ParameterError("the whole network behind these data is not known; use feddbn.simulate.")
        seen, network = self.truth, next(iter(self.whole.values()))
        marks = true_marks(network.W, network.A, range(seen.d), network.n_lags)
        return AncestralGraph(marks, seen.variables)


def simulate(
    d: int = 10,
    n_lags: int = 1,
    n_sites: int = 10,
    n_samples: int = 512,
    mean_degree: float = 4,
    lag_degree: float = 1,
    w_range: tuple[float, float] = (0.3, 0.5),
    decay: float = 1.5,
    heterogeneity: float | str = 0.0,
    noise: str = "gaussian",
    noise_scale: float | Sequence[float] = 1.0,
    site_sizes: Sequence[int] | None = None,
    n_recordings: int = 1,
    burn_in: int = 300,
    variables: Sequence[str] | None = None,
    random_state: int | np.random.Generator | None = 0,
    corruptions: CorruptionNames = None,
    effects: str = "linear",
    kinds: AskedKinds = None,
    n_latent: int = 0,
) -> SimulatedFederation:
    """A federation of sites whose series follow known dynamic Bayesian networks.

    ``x_t = x_t W + x_{t-1} A_1 + ... + x_{t-p} A_p + u_t`` with row vectors, W acyclic, the whole stable. With other
    `effects` than linear ones every edge has a function of its own: a cause x adds ``w s f(x / s)``, where w is the edge's
    weight, s the standard deviation that the cause would have if all were linear, and f has mean 0 and variance 1 for a
    normal cause.

    Parameters
    ----------
    d, n_lags, n_sites
        Number of variables, lags p (0 for a static network) and sites.
    n_samples
        Usable rows of all sites together, split evenly; a recording has `n_lags` rows more, which only serve
        as lags.
    mean_degree
        Mean number of W's edges at a variable, both directions: ``mean_degree * d / 2`` edges are expected
        (at most the ``d (d-1) / 2`` an acyclic graph can hold).
    lag_degree
        Mean number of edges that leave a variable in each A_l; an edge from a variable to itself is allowed.
    w_range
        Smallest and largest absolute weight in W and in A_1; signs are drawn.
    decay
        Weights at lag l are ``decay**(l-1)`` times smaller.
    heterogeneity
        0: one network. A number in (0, 1]: each site replaces that share of the edges of a common backbone.
        "independent": each site draws its own network.
    noise, noise_scale
        "gaussian", "exponential", "gumbel", "laplace" or "uniform", with mean 0; its standard deviation, one
        for all variables or one for each.
    site_sizes
        Usable rows of each site; `n_samples` is then not used.
    n_recordings
        Recordings of each site, which share its rows evenly.
    burn_in
        Rows thrown away at the start of every recording.
    variables
        Names; ``x0, x1, ...`` by default.
    random_state
        A seed (same seed, same bits), a generator, or None for a new federation each time.
    corruptions
        What the sites do to their rows: a name, a list of names, or a dict from name to strength (None: its default), such
        as ``{"offsets": None, "spikes": 0.02}``; `feddbn.sim.CORRUPTIONS` lists functions whose docstrings say more. They act
        in the order of that list on the rows that the same seed gives without them, and change no truth.
    effects
        "linear"; "gp": f is drawn from a Gaussian process with a squared-exponential kernel of length 1 and constant beyond
        three standard deviations. Networks and noise are those of the same seed with linear effects.
    kinds
        Kinds of variables: a dict such as ``{"x0": "count", "x2": {"ordinal": ["no", "some", "bad"]}}`` (who is not named is
        continuous), or a list that is given out in turn, such as ``["continuous", "binary", "categorical:3"]``. A variable
        is drawn from its distribution given its causes, a weight acts in standard units of both ends
        (`feddbn.sim.kinds`), and recordings hold positions of levels, 0, 1, 2, ...
    n_latent
        Variables like the others that no site sees, beside the d that sites see, in linear systems. Truths then hold the
        edges between seen variables; `SimulatedFederation.ancestral_truth` says what data can tell of them.

    Examples
    --------
    >>> import feddbn
    >>> fed = feddbn.simulate(d=5, n_sites=3, n_samples=90)
    >>> [len(frames[0]) for frames in fed.sites.values()]
    [31, 31, 31]
    >>> fed.truth.W.shape, fed.truth.A.shape
    ((5, 5), (1, 5, 5))
    >>> mixed = feddbn.simulate(d=3, n_sites=2, n_samples=60, kinds=["continuous", "binary", "count"])
    >>> [kind.name for kind in mixed.truth.kinds]
    ['continuous', 'binary', 'count']
    """
    given = locals()
    settings = SimulationSettings(**{one.name: given[one.name] for one in fields(SimulationSettings)})
    made = _drawn(settings, random_generator(random_state))
    return replace(made, parameters={**asdict(settings), "random_state": random_state})


def _drawn(settings: SimulationSettings, rng: np.random.Generator) -> SimulatedFederation:
    """Draw the networks, then every recording from a stream of its own.

    The streams are derived from draws of `rng`, so a second call with the same generator gives new data.
    """
    drawn = settings.with_hidden
    kinds, scales = drawn.kinds_of_all, drawn.noise_scales
    seeds = np.random.SeedSequence(rng.integers(0, 2**32, size=4).tolist()).spawn(4)
    structure, series, corruption, shapes = seeds if not kinds else (*seeds[:2], seeds[3], seeds[2])
    systems, of_site = draw_systems(drawn, np.random.default_rng(structure))
    noise, shape_rng = scales, np.random.default_rng(shapes)
    if kinds:
        ends = [draw_ends(kind, scale, shape_rng) for kind, scale in zip(kinds, scales, strict=True)]
        systems, networks = map(
            list, zip(*(stable_network(one, drawn, ends) for one in systems), strict=True)
        )
        noise = networks[0].steps.sd
    else:
        networks = networks_of(systems, drawn, scales, shape_rng)
    plan = Recordings(drawn)
    rows = list(plan.run([networks[of_site[k]] for k in plan.sites], drawn.noise, noise, series))
    made = corrupted(plan.by_site(rows), drawn.strengths, corruption)
    follows = [networks[k] for k in of_site]
    return federation_of(made, [systems[k] for k in of_site], follows, settings.d)


class Recordings:
    """Which recordings there are: their lengths and sites, one after the other, and how many rows are burned before each."""

    def __init__(self, settings: SimulationSettings) -> None:
        self._n_sites, self._m = settings.n_sites, settings.n_recordings
        lengths = [split_evenly(rows, self._m) for rows in settings.usable_rows]
        self.sizes = [length + settings.n_lags for site in lengths for length in site]
        self.sites = [k for k in range(settings.n_sites) for _ in range(self._m)]
        self.n_burned = settings.burn_in if settings.n_lags else 0

    def by_site(self, series: list[FloatArray]) -> Sites:
        """The recordings of each site."""
        return [series[k * self._m : (k + 1) * self._m] for k in range(self._n_sites)]

    def shocks(
        self, part: slice, noise: str, scales: FloatArray, seed: np.random.SeedSequence
    ) -> list[FloatArray]:
        """(burned and seen rows, d) noise of some recordings, each of a stream of its own."""
        return [
            draw_noise(noise, scales, (self.n_burned + size,), np.random.default_rng(own))
            for size, own in zip(self.sizes[part], seed.spawn(len(self.sizes[part])), strict=True)
        ]

    def run(
        self, follows: Sequence[DBN], noise: str, scales: FloatArray, seed: np.random.SeedSequence
    ) -> Iterator[FloatArray]:
        """(rows, d) of every recording, by the network it follows."""
        # They are made in parts, as rows are burned for each.
        at_once = max(1, _NUMBERS_TOGETHER // (len(scales) * (self.n_burned + max(self.sizes))))
        for first in range(0, len(self.sizes), at_once):
            part = slice(first, first + at_once)
            yield from advance(follows[part], self.shocks(part, noise, scales, seed), self.n_burned)


def advance(follows: Sequence[DBN], shocks: Sequence[FloatArray], n_burned: int) -> list[FloatArray]:
    """One (rows, d) array per recording r, of the network ``follows[r]`` driven by ``shocks[r]``, without the first
    `n_burned` rows.

    Recordings of one length advance together if they follow one network, or linear ones, so the Python loop runs over time
    and not over recordings.
    """
    found: list[FloatArray] = [np.zeros((0, 0))] * len(shocks)
    together: dict[tuple[int, int], list[int]] = {}
    is_linear = len({id(dbn) for dbn in follows}) > 1 and all(dbn.is_linear for dbn in follows)
    for r, (dbn, u) in enumerate(zip(follows, shocks, strict=True)):
        together.setdefault((0 if is_linear else id(dbn), len(u)), []).append(r)
    for members in together.values():
        dbn, noise = follows[members[0]], np.stack([shocks[r] for r in members])
        step = _own_steps([follows[r] for r in members]) if is_linear else dbn.steps.step
        for r, path in zip(members, run(step, dbn.n_lags, first_rows(dbn), noise), strict=True):
            found[r] = path[n_burned:].copy()
    return found


def _own_steps(networks: Sequence[DBN]) -> Step:
    """One time step of paths that each follow a linear network of their own, without intercepts."""
    B = np.stack([impact(dbn.W) for dbn in networks])
    P = np.stack([dbn.A @ b for dbn, b in zip(networks, B, strict=True)], axis=1)

    def step(past: FloatArray, shocks: FloatArray, held: FloatArray) -> FloatArray:
        x = shocks[:, None] @ B
        for lag, coefficients in enumerate(P, 1):
            x += past[:, -lag, None] @ coefficients
        return np.asarray(x[:, 0])

    return step


def federation_of(
    recordings: Sites, systems: Sequence[System], networks: Sequence[DBN], n_seen: int
) -> SimulatedFederation:
    """Frames and networks of what was drawn, one of each for every site, of the first `n_seen` variables."""
    names = [f"site-{k}" for k in range(len(recordings))]
    seen = {id(dbn): dbn if dbn.d == n_seen else _part(dbn, n_seen) for dbn in networks}
    truths = [seen[id(dbn)] for dbn in networks]
    # One index for all: a hundred thousand small frames would otherwise hold one each.
    columns = pd.Index(list(truths[0].variables))
    frames = [[pd.DataFrame(rows[:, :n_seen], columns=columns) for rows in site] for site in recordings]
    return SimulatedFederation(
        sites=dict(zip(names, frames, strict=True)),
        truths=dict(zip(names, truths, strict=True)),
        lag_damping=dict(zip(names, (system.lag_damping for system in systems), strict=True)),
        parameters={},
        whole=None if truths[0].has_kinds else dict(zip(names, networks, strict=True)),
    )


def _part(dbn: DBN, n: int) -> DBN:
    """The edges between the first n variables of a linear network."""
    variances = known(dbn.noise_variances, "noise_variances")[:n]
    return DBN(dbn.W[:n, :n], dbn.A[:, :n, :n], dbn.variables[:n], noise_variances=variances)
