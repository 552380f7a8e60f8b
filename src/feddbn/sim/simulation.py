"""Simulated federations with known networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from feddbn.core.ancestral.marks import true_marks
from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model.conditionals import NaturalEffect
from feddbn.model.dbn import DBN
from feddbn.model.dynamics import require_linear
from feddbn.model.graph import AncestralGraph
from feddbn.model.mechanisms import Additive, Mechanisms, known
from feddbn.model.network import edge_at, random_generator
from feddbn.shown import Shown
from feddbn.sim.corruptions import CorruptionNames
from feddbn.sim.federated import SimulatedArrays, simulate_arrays
from feddbn.sim.series import terms_of
from feddbn.sim.settings import AskedKinds, SimulationSettings
from feddbn.sim.shapes import EdgeEffect
from feddbn.sim.systems import HiddenVariables, System

__all__ = [
    "SimulatedFederation",
    "TrueNetwork",
    "simulate",
]


class _Drawn(Additive):
    """What the variables of a drawn system do; unlike curves that were learned, its functions are tables."""

    def __init__(self, system: System, intercept: FloatArray | None, variances: FloatArray | None) -> None:
        weights = np.concatenate([system.W[None], system.A])
        size = len(system.A), len(system.W)
        super().__init__(*terms_of([system]), *size, intercept, variances, weights)
        self._system = system

    def shapes(self) -> NDArray[np.object_]:
        """(p+1, d, d) linear, curved or product."""
        shapes, drawn = super().shapes(), self._system.shapes
        assert drawn is not None
        for edge in drawn.curves:
            shapes[edge] = "curved"
        for product in drawn.products:
            for i, lag in product.causes:
                shapes[lag, i, product.target] = "product"
        return shapes


@dataclass(frozen=True, eq=False, repr=False, init=False)
class TrueNetwork(DBN):
    """A true network: W and A as in `DBN`, and the function of every edge.

    Where effects are not linear, W and A hold the weights of the edges (`feddbn.simulate`), so edges can be scored as
    ever, and the column `standardised` of `edges` is ``weight * sd_from / sd_to``; forecasts, effects and simulated data are
    those of the functions. A stored truth keeps W, A and a table of every function; what is read back is a `DBN`.

    Attributes
    ----------
    system
        What was simulated, in which functions of edges are tables; None if the numbers of the network say all.

    Examples
    --------
    >>> import feddbn
    >>> feddbn.simulate(d=3, n_sites=1, n_samples=50, effects="gp").truth.is_linear
    False
    """

    system: System | None

    def __init__(self, *numbers: Any, system: System | None = None, **named: Any) -> None:
        object.__setattr__(self, "system", system)
        super().__init__(*numbers, **named)

    @cached_property
    def mechanisms(self) -> Mechanisms:
        """What its variables do given their causes."""
        shapes = None if self.system is None else self.system.shapes
        if self.system is None or shapes is None or not (shapes.curves or shapes.products):
            return super().mechanisms
        return _Drawn(self.system, self.intercept, self.noise_variances)

    def at_level(self, mean: ArrayLike) -> Self:
        """As `DBN.at_level`; functions of edges that were drawn move along, too."""
        moved = super().at_level(mean)
        if self.system is None or self.system.shapes is None or self.is_linear:
            return moved
        shapes, straight = self.system.shapes, self.system.linear_part
        shift = np.asarray(mean, dtype=np.float64) - self.stationary_mean()
        system = replace(self.system, shapes=replace(shapes, centre=shapes.centre + shift))
        intercept = known(self.intercept, "intercept") + shift - shift @ (straight.W + straight.A.sum(axis=0))
        return replace(moved, system=system, intercept=intercept)

    def effect(self, source: str | int, target: str | int, lag: int = 0) -> EdgeEffect | NaturalEffect:  # type: ignore[override]
        """The function of an edge: ``truth.effect("x1", "x3", lag=1)(values)`` is what these values of x1 add to x3.

        It is a function of the data as they are before sites change units, offsets or cells of them.
        """
        if self.system is None:
            return super().effect(source, target, lag)  # type: ignore[return-value]
        i, j, lag = edge_at(self, source, target, lag)
        return self.system.effect((lag, i, j))

    @property
    def interactions(self) -> list[dict[str, Any]]:
        """Products of two lagged causes: ``{"causes": [(name, lag), (name, lag)], "target": name, "weight": ...}``."""
        shapes = None if self.system is None else self.system.shapes
        return [
            {
                "causes": [(self.variables[i], lag) for i, lag in product.causes],
                "target": self.variables[product.target],
                "weight": product.weight,
            }
            for product in (() if shapes is None else shapes.products)
        ]

    def functions(self, n_points: int = 61) -> list[dict[str, Any]]:
        """Source, target, lag, kind and weight of every edge, and `n_points` values of its cause with what they add."""
        if self.system is None:
            return []
        found = []
        for edge in self.system.edges:
            effect = self.system.effect(edge)
            lag, i, j = edge
            x, y = effect.points(n_points)
            names = {"source": self.variables[i], "target": self.variables[j], "lag": lag}
            found.append({**names, "kind": effect.kind, "weight": effect.weight, "values": x, "adds": y})
        return found

    def direct_effects(self, horizon: int) -> FloatArray:
        """As `DBN.direct_effects`, of linear networks: a function that was drawn has no weight that is its slope."""
        if self.system is not None:
            require_linear(self, "direct_effects", "truth.effect(source, target, lag)")
        return super().direct_effects(horizon)


@dataclass(frozen=True, eq=False)
class SimulatedFederation(Shown):
    """Sites with recordings and the networks that generated them.

    Attributes
    ----------
    sites
        Site name (``site-0``, ``site-1``, ...) -> its recordings.
    truths
        Site name -> the network it follows, a `DBN` that also has the functions of its edges (``effect``); sites that
        share a network share the object.
    lag_damping
        Site name -> c. 1 unless no stable draw was found, or variances of curved effects and products would not settle;
        then ``A_l`` and products were multiplied by ``c**l``, and weights may lie below the range that was asked for.
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
    truths: dict[str, TrueNetwork]
    lag_damping: dict[str, float]
    parameters: dict[str, Any] = field(repr=False)
    whole: dict[str, DBN] | None = field(default=None, repr=False)

    @property
    def is_homogeneous(self) -> bool:
        """Whether every site follows the same network."""
        return len({id(dbn) for dbn in self.truths.values()}) == 1

    @property
    def truth(self) -> TrueNetwork:
        """The one network of a homogeneous federation."""
        if not self.is_homogeneous:
            raise ParameterError(
                "the sites of this federation follow different networks, so there is no single truth; "
                "use .truths, one network per site."
            )
        return next(iter(self.truths.values()))

    def ancestral_truth(self, site: str | None = None, n_lags: int | None = None) -> AncestralGraph:
        """What can be said of causes from seen variables alone, if all independences are known: see `true_marks`.

        Parameters
        ----------
        site
            Whose network; None for the one network of all.
        n_lags
            Lags of the window; by default those of the network.
        """
        if self.whole is None:
            raise ParameterError("the whole network behind these data is not known; use feddbn.simulate.")
        if site is not None and site not in self.whole:
            raise ParameterError(f"site={site!r} is not known; the sites are {', '.join(self.whole)}.")
        seen = self.truth if site is None else self.truths[site]
        network = next(iter(self.whole.values())) if site is None else self.whole[site]
        window = network.n_lags if n_lags is None else n_lags
        marks = true_marks(network.W, network.A, range(seen.d), window)
        return AncestralGraph(marks, seen.variables)


def simulate(
    d: int = 10,
    n_lags: int = 1,
    n_sites: int = 10,
    n_samples: int = 512,
    mean_degree: float = 4,
    lag_degree: float = 1,
    w_range: tuple[float, float] = (0.3, 0.5),
    a_range: tuple[float, float] | None = None,
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
    interactions: float = 0,
    kinds: AskedKinds = None,
    n_latent: int = 0,
    latent_strength: float = 1.0,
    latent_lagged: bool = True,
) -> SimulatedFederation:
    """A federation of sites whose series follow known dynamic Bayesian networks.

    ``x_t = x_t W + x_{t-1} A_1 + ... + x_{t-p} A_p + u_t`` with row vectors, W acyclic, the whole stable. With other
    `effects` than linear ones every edge has a function of its own: a cause x adds ``w s f((x - m) / s)``, where w is
    the edge's weight, m and s are about the cause's mean and standard deviation, and f has mean 0 and variance 1 for a
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
    w_range, a_range
        Smallest and largest absolute weight in W and in A_1 (default: as W); signs are drawn.
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
        as ``{"offsets": None, "spikes": 0.02}``. `feddbn.sim.CORRUPTIONS` lists them, each a function whose docstring says
        what a strength means. They act in the order of that list, each with randomness of its own, on the rows that the
        same seed gives without them, and change no truth: at sites that see every other row, it is that of all rows.
    effects
        "linear"; or what f is drawn from, for contemporaneous edges and lagged ones: "gp" (a Gaussian process with a
        squared-exponential kernel of length 1), "spline" (natural cubic, six knots), "sigmoid" (tanh of random slope
        and place), "threshold" (a sharp or a smooth step), "quadratic" (constant beyond two standard deviations); or
        "mixed": every edge is linear with probability 1/2, else any of these. All are constant beyond three standard
        deviations, so systems stay stable. Networks and noise are those of the same seed with linear effects, unless
        the variances of curved effects need more damping (`lag_damping`).
    interactions
        Products of two lagged causes that act on a target: how many in every network, or, below 1, how many for each
        lagged edge (rounded). A product adds ``w sqrt(s_a s_b) z_a z_b``, every z kept within +-3, with w from
        `a_range`.
    kinds
        Kinds of variables: a dict such as ``{"x0": "count", "x1": "binary", "x2": {"ordinal": ["no", "some", "bad"]}}``
        (who is not named is continuous), or a list that is given out in turn, such as ``["continuous", "binary", "count",
        "categorical:3"]``. Every variable then is drawn from its distribution given its causes, a weight acts in standard
        units of both ends (`feddbn.sim.federated`), counts are Poisson, and recordings hold positions of
        levels, 0, 1, 2, ... The truth has them as `conditionals`, W and A what these say.
    n_latent, latent_strength, latent_lagged
        Variables that drive the others and that no site sees, beside the d that sites see; by how much their effects are
        multiplied; whether they have a past, or are noise that acts on several variables at once. Truths then hold the edges
        between seen variables; what data can tell of them is `SimulatedFederation.ancestral_truth`. Effects are linear
        then, and there are no corruptions.

    Returns
    -------
    SimulatedFederation

    Raises
    ------
    ParameterError
        If an argument is impossible.

    Notes
    -----
    Both causes of a product have lagged edges in the truth; where there was none, with the weight of the product.

    Examples
    --------
    >>> import feddbn
    >>> fed = feddbn.simulate(d=5, n_sites=3, n_samples=90)
    >>> [len(frames[0]) for frames in fed.sites.values()]
    [31, 31, 31]
    >>> fed.truth.W.shape, fed.truth.A.shape
    ((5, 5), (1, 5, 5))

    >>> curved = feddbn.simulate(d=5, n_sites=3, n_samples=90, effects="sigmoid")
    >>> edge = curved.truth.edges().iloc[0]
    >>> added = curved.truth.effect(edge.source, edge.target, edge.lag)
    >>> added.kind, added([-1.0, 0.0, 1.0]).shape
    ('sigmoid', (3,))

    >>> mixed = feddbn.simulate(d=3, n_sites=2, n_samples=60, kinds=["continuous", "binary", "count"])
    >>> [kind.name for kind in mixed.truth.kinds]
    ['continuous', 'binary', 'count']
    """
    given = locals()
    asked = {one.name: given[one.name] for one in fields(SimulationSettings)}
    hidden = HiddenVariables(n_latent, latent_strength, latent_lagged)
    if n_latent and (corruptions or kinds or effects != "linear" or interactions):
        raise ParameterError(
            f"n_latent={n_latent!r} hides variables of linear systems; use effects='linear', interactions=0, "
            "corruptions=None and kinds=None."
        )
    settings = SimulationSettings(**asked)
    drawn = settings if not n_latent else _with_hidden(settings, hidden)
    arrays = simulate_arrays(drawn, random_generator(random_state), hidden if n_latent else None)
    return federation_of(arrays, {**asdict(settings), **_said(hidden), "random_state": random_state}, hidden)


def federation_of(
    arrays: SimulatedArrays, parameters: dict[str, Any], hidden: HiddenVariables | None = None
) -> SimulatedFederation:
    """Frames and networks of what was drawn, without the hidden variables."""
    hidden = hidden or HiddenVariables()
    n_seen = len(arrays.variables) - hidden.n_latent
    names = list(arrays.variables[:n_seen])
    # One index for all: a hundred thousand small frames would otherwise hold one each.
    columns = pd.Index(names)
    truths: dict[int, TrueNetwork] = {}
    whole: dict[int, DBN] = {}
    for site, system in arrays.systems.items():
        if id(system) in truths:
            continue
        seen = hidden.seen(system) if hidden.n_latent else system
        if arrays.networks is not None:
            truths[id(system)] = TrueNetwork.from_dict(arrays.networks[site].to_dict())
        else:
            truths[id(system)] = TrueNetwork(
                seen.W, seen.A, names, noise_variances=arrays.noise_variances[:n_seen], system=seen
            )
            whole[id(system)] = DBN(system.W, system.A, arrays.variables)
    return SimulatedFederation(
        sites={
            site: [pd.DataFrame(rows[:, :n_seen], columns=columns) for rows in recordings]
            for site, recordings in arrays.recordings.items()
        },
        truths={site: truths[id(system)] for site, system in arrays.systems.items()},
        lag_damping={site: system.lag_damping for site, system in arrays.systems.items()},
        parameters=parameters,
        whole={site: whole[id(system)] for site, system in arrays.systems.items()} if whole else None,
    )


def _with_hidden(settings: SimulationSettings, hidden: HiddenVariables) -> SimulationSettings:
    """The same for a system that has hidden variables, too; their noise is of the mean size of the others'."""
    scales = settings.noise_scales
    return replace(
        settings,
        d=settings.d + hidden.n_latent,
        variables=hidden.names(settings.variable_names),
        noise_scale=(*scales.tolist(), *[float(scales.mean())] * hidden.n_latent),
    )


def _said(hidden: HiddenVariables) -> dict[str, Any]:
    given = {"n_latent": hidden.n_latent, "latent_strength": hidden.strength, "latent_lagged": hidden.lagged}
    return given if hidden.n_latent else {}
