"""Every method in one table: its names, what it asks of sites, what it assumes, and who found it.

Rules of the file
-----------------
- Words only. A class is named, not imported: listing methods costs nothing, and a site that reads what a study asks
  for does not import estimators. So this module lies below every layer that lists methods.
- Whatever lists methods reads this table: ``import feddbn``, the commands, studies, sites' policies, reports
  and the table in docs/choosing.md, which a test compares with it.
- `feddbn.analysis.studies.register_method` adds a row; docs/extending.md shows how.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

from feddbn.errors import Given, ParameterError

__all__ = [
    "ENTRY_POINTS",
    "METHODS",
    "STUDY_METHODS",
    "Method",
    "add_method",
    "available_methods",
    "default_method",
    "find_method",
    "get_method",
    "make_estimator",
    "policy_names",
]

ENTRY_POINTS = "feddbn.methods"
"""Group of entry points by which an installed package offers methods: name of the method -> module that registers it."""


@dataclass(frozen=True)
class Method:
    """One method: a row of the table.

    Attributes
    ----------
    name
        What people type in commands and studies.
    cls, module
        Its class, which is also its name in Python, in stored results and in sites' policies; where the class is.
    label
        What tables show: the paper's name where it has one.
    summary
        One line for lists.
    assumes, reveals, rounds, gives
        For people who choose: what must hold, what leaves a site, in how many sums of a default fit of four sites or more
        that agree, and what comes out.
    citation
        Who found it.
    in_studies
        Whether a study may name it: it learns from sums alone, and what it learns is meant for everybody.
    takes_noise
        Whether a study of it may promise differential privacy: all it asks for are sums that sites can protect by noise.
    is_personal
        Whether it learns one network per site (``dbns_``).
    predicts
        Whether its weights are effects of straight lines, so that rows can be predicted with them alone.
    reads_scales
        Whether it fits one common noise variance in effect: least squares then prefers the order in which variance
        grows, so contemporaneous directions depend on the units.
    plain_messages
        What a server can read from messages that nothing protects, in short and in a sentence; None if it depends on
        how often the method asks.
    selects
        Parameters that `feddbn select` chooses by held-out loss if nothing else is asked for; empty if it cannot.
    resamples
        Whether it learns from summed moments alone (``fit_moments``), so that edges can be counted over resamples.
    lag_reach
        How many times its ``n_lags`` the rows it asks for reach back.
    is_usual
        Whether a comparison has it if no methods are named: it answers which edges one constant network of numbers has.

    Examples
    --------
    >>> from feddbn.method_table import get_method
    >>> method = get_method("oneshot")
    >>> method.cls, method.in_studies, method.summary
    ('OneShotDBN', True, 'one network from one exact sum, by a search over orders')
    """

    name: str
    cls: str
    module: str
    label: str
    summary: str
    assumes: str
    reveals: str
    rounds: str
    gives: str
    citation: str = ""
    in_studies: bool = False
    takes_noise: bool = False
    is_personal: bool = False
    predicts: bool = True
    reads_scales: bool = False
    plain_messages: tuple[str, str] | None = None
    selects: tuple[str, ...] = ()
    resamples: bool = False
    lag_reach: int = 1
    is_usual: bool = True

    @property
    def is_installed(self) -> bool:
        """Whether this installation has it."""
        return find_spec(self.module) is not None

    def load(self) -> type[Any]:
        """Return the estimator class."""
        found: type[Any] = getattr(import_module(self.module), self.cls)
        return found

    def parameters(self) -> tuple[str, ...]:
        """Names of its settings in the order in which they are given, without the federation."""
        found: tuple[str, ...] = self.load().settings.given_names()
        return found

    def named(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return values under its own names for them; one that it does not have raises ParameterError with the nearest."""
        found: dict[str, Any] = self.load().settings.named(parameters, self.cls)
        return found

    def has(self, name: str) -> bool:
        """Whether it has a setting of this name, plain or with a dot."""
        # Listing methods costs nothing: what needs numpy is imported where it is needed.
        from feddbn.settings import GROUPS

        return name in GROUPS or name in self.parameters()

    def own(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of some values that it has, under its own names for them."""
        from feddbn.settings import GROUPS

        spread = {
            one if name == one else f"{name}.{one}": each
            for name, value in parameters.items()
            for one, each in (
                value.items() if isinstance(value, Mapping) and name in GROUPS else [(name, value)]
            )
        }
        return self.named({name: value for name, value in spread.items() if self.has(name)})


# What a server can read from messages that nothing protects, in short and in a sentence.
_MOMENTS = ("Its second moments.", "What a site sends in one round is its second moments.")
_ROUNDS = (
    "Its second moments.",
    "Before the rounds a site sends its second moments; without that sum, plain messages of an iterative method determine "
    "them after a few rounds.",
)
_MOMENTS_AND_NETWORK = (
    "Its second moments and its own network.",
    "A site sends its second moments, and then the network it learned alone.",
)
_UNITS = "comparable units, or variables are scaled and some directions within a step stay open"
_ALONE = "whether the network is better for it than its own: one of three answers, counted over sites"
_PENALTIES = ("lambda_w", "lambda_a")
_CHEN = "Chen, Ma, Yue: Federated Learning of Dynamic Bayesian Network via Continuous Optimization from Time Series Data"
_PAMFIL = "Pamfil et al. 2020: DYNOTEARS: Structure Learning from Time-Series Data"
_BASELINES = "feddbn.methods.baselines"
_ROWS = (
    Method(
        name="oneshot",
        cls="OneShotDBN",
        module="feddbn.methods.oneshot",
        label="OneShotDBN",
        summary="one network from one exact sum, by a search over orders",
        assumes="additive effects, straight or curved; one network for all sites; comparable units, unless "
        '`noise_variance="free"`',
        reveals="the survey; second moments of each row with its lags, skewness and kurtosis; products of residuals; "
        "second moments of four parts of its rows; if effects are curved, products of spline terms; "
        + _ALONE,
        rounds="6; more if cells are empty, sites differ in scale, noise is autocorrelated or not Gaussian, or "
        "effects are curved",
        gives="one network with edge probabilities (`edge_probabilities_`); which directions stay open (`orientation_`)",
        citation="this package; docs/oneshot.md",
        in_studies=True,
        takes_noise=True,
        plain_messages=_MOMENTS,
        resamples=True,
    ),
    Method(
        name="changing",
        cls="ChangingDBN",
        module="feddbn.methods.changing",
        label="ChangingDBN",
        summary="one network that changes at some time steps",
        assumes="linear effects; few changes, at the same time at all sites; the same causal order throughout",
        reveals="the survey; second moments of all rows and of about 24 blocks of time; products of residuals",
        rounds="5",
        gives="one network per segment (`dbns_by_segment_`), which edges change and when (`changes_`), "
        "`variance_changes_`; `dbn_` is the last segment",
        citation="this package; docs/changing.md",
        in_studies=True,
        plain_messages=(
            "Its second moments, by blocks of time.",
            "What a site sends is its second moments, of all rows and of blocks of them.",
        ),
        is_usual=False,
    ),
    Method(
        name="mixed",
        cls="MixedDBN",
        module="feddbn.methods.mixed",
        label="MixedDBN",
        summary="counts, yes and no, levels and continuous values in one network",
        assumes="a generalised linear model of each variable's kind (`kinds`); one network, and one level for all "
        "recordings",
        reveals="counts of levels, rounded down to tens; products of the columns that stand for values; 4 to 12 sums of "
        "gradients and curvatures of likelihoods",
        rounds="5 to 14",
        gives="one network of distributions (`nodes_`): coefficients with standard errors, probabilities, counts",
        citation="this package; docs/mixed.md",
        in_studies=True,
        predicts=False,
        plain_messages=(
            "Its second moments.",
            "What a site sends is its second moments, and gradients of likelihoods at a few coefficients.",
        ),
        is_usual=False,
    ),
    Method(
        name="fdbnl",
        cls="FDBNL",
        module="feddbn.methods.fdbnl",
        label="FDBNL",
        summary="one network by penalised least squares, as in the paper",
        assumes="linear effects; one network for all sites; " + _UNITS,
        reveals="the survey; second moments; products of residuals; "
        + _ALONE
        + '; with `schedule="paper"` also one sum per round',
        rounds="5",
        gives="one network: the optimum of DYNOTEARS on the pooled rows; `certificate_`, `history_`, `status_`",
        citation=_CHEN,
        in_studies=True,
        reads_scales=True,
        plain_messages=_MOMENTS,
        selects=_PENALTIES,
        resamples=True,
    ),
    Method(
        name="pfdbnl",
        cls="PFDBNL",
        module="feddbn.methods.pfdbnl",
        label="PFDBNL",
        summary="one network per site around a shared one",
        assumes="linear effects; similar networks, as similar as `mu` says; " + _UNITS,
        reveals="the survey; second moments; in each round the change of its weights; products of residuals. Its own "
        "network stays at the site",
        rounds="100 to 200",
        gives="one network per site (`dbns_`) and a shared one (`dbn_`)",
        citation=_CHEN,
        in_studies=True,
        is_personal=True,
        reads_scales=True,
        plain_messages=_ROUNDS,
        selects=("mu",),
    ),
    Method(
        name="latent",
        cls="LatentDBN",
        module="feddbn.methods.latent",
        label="LatentDBN",
        summary="what can be known about causes when some are hidden",
        assumes="linear effects; one network for all sites, in which causes may be hidden; faithfulness (what is "
        "independent is not connected)",
        reveals="the survey; second moments, with twice as many lags as edges may have",
        rounds="3",
        gives="edges with marks (`graph_`, `edges_`): a cause (`-->`), a hidden common cause (`<->`), or not known "
        "(`o->`, `o-o`); `dbn_` has the causes",
        citation="Gerhardus and Runge 2020: High-recall causal discovery for autocorrelated time series with latent "
        "confounders; the search is this package's own",
        in_studies=True,
        takes_noise=True,
        plain_messages=_MOMENTS,
        lag_reach=2,
        is_usual=False,
    ),
    Method(
        name="summary",
        cls="MomentSummary",
        module="feddbn.methods.summary",
        label="MomentSummary",
        summary="the summed second moments themselves, for other algorithms",
        assumes="what the algorithm that reads the moments assumes",
        reveals="the survey; second moments, which are the result",
        rounds="3",
        gives="`summary_`: one matrix for PC, FCI, PCMCI, GES and other algorithms that read a covariance; `dbn_` is the"
        " plain vector autoregression",
        citation="this package; docs/interop.md",
        in_studies=True,
        takes_noise=True,
        plain_messages=_MOMENTS,
        is_usual=False,
    ),
    Method(
        name="dynotears",
        cls="Dynotears",
        module=_BASELINES,
        label="Alldata",
        summary="DYNOTEARS on the pooled rows, which no federation allows",
        assumes="linear effects; **rows may be pooled**; " + _UNITS,
        reveals="its rows, if they are pooled; otherwise the survey; second moments; products of residuals; "
        + _ALONE,
        rounds="5",
        gives="one network; the reference for federated methods",
        citation=_PAMFIL,
        reads_scales=True,
        plain_messages=_MOMENTS,
        selects=_PENALTIES,
        resamples=True,
    ),
    Method(
        name="average",
        cls="Average",
        module=_BASELINES,
        label="Ave",
        summary="mean of the sites' own DYNOTEARS weights",
        assumes="linear effects; one network for all sites; enough rows at every site",
        reveals="the survey; second moments; the weights of its own network, in a sum",
        rounds="4",
        gives="a baseline; it may have cycles",
        citation=_CHEN,
        reads_scales=True,
        plain_messages=_MOMENTS_AND_NETWORK,
    ),
    Method(
        name="local",
        cls="LocalOnly",
        module=_BASELINES,
        label="LocalOnly",
        summary="each site's own DYNOTEARS, nothing shared",
        assumes="linear effects; enough rows at every site",
        reveals="nothing",
        rounds="none",
        gives="one network per site (`dbns_`): what each can do alone",
        citation=_PAMFIL,
        is_personal=True,
        reads_scales=True,
    ),
)
_TABLE: dict[str, Method] = {method.name: method for method in _ROWS}
METHODS: Mapping[str, Method] = MappingProxyType(_TABLE)
"""The table by name, the recommended method first."""
STUDY_METHODS = tuple(method for method in _ROWS if method.in_studies)
"""What the default policy of a site allows; a method that another package adds has to be allowed by name."""


def add_method(method: Method) -> None:
    """Add a row; a name that another method answers to is refused.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from feddbn.method_table import add_method, get_method
    >>> add_method(replace(get_method("fdbnl"), module="elsewhere", cls="Other"))
    Traceback (most recent call last):
        ...
    feddbn.errors.ParameterError: name 'fdbnl' of method 'fdbnl' is taken by FDBNL; choose another.
    """
    for name in (method.name, method.cls, method.label):
        known = find_method(name)
        if known is not None and (known.module, known.cls) != (method.module, method.cls):
            raise ParameterError(
                f"name {name!r} of method {method.name!r} is taken by {known.cls}; choose another."
            )
    _TABLE[method.name] = method


def available_methods() -> list[Method]:
    """Return the methods of this installation, the recommended one first.

    Examples
    --------
    >>> from feddbn.method_table import available_methods
    >>> [method.name for method in available_methods()][:3]
    ['oneshot', 'changing', 'mixed']
    """
    return [method for method in METHODS.values() if method.is_installed]


def default_method() -> str:
    """Return the name of the recommended method.

    Examples
    --------
    >>> from feddbn.method_table import default_method
    >>> default_method()
    'oneshot'
    """
    return available_methods()[0].name


def find_method(name: str, *, offered: bool = False) -> Method | None:
    """Return the row of a name, a class or a label, in any case; None if there is none.

    With `offered`, installed packages that offer methods are imported before the answer is None. Sites never do that:
    no message may make them import anything.

    Examples
    --------
    >>> from feddbn.method_table import find_method
    >>> find_method("Alldata").name, find_method("no such method")
    ('dynotears', None)
    """
    key = name.strip().lower().replace("_", "-")
    for method in METHODS.values():
        if key in (method.name, method.cls.lower(), method.label.lower()):
            return method
    if not offered:
        return None
    from importlib.metadata import entry_points

    for entry in entry_points(group=ENTRY_POINTS):
        entry.load()
    return find_method(name)


def get_method(name: str) -> Method:
    """Return a method by any of its names; one that another installed package offers is imported when it is named.

    Examples
    --------
    >>> from feddbn.method_table import get_method
    >>> get_method("oneshotdbn").cls
    'OneShotDBN'
    """
    method = find_method(name, offered=True)
    if method is None or not method.is_installed:
        known = ", ".join(m.name for m in available_methods())
        raise ParameterError(
            f"{Given('method', name)} is not known; choose one of {known}.", argument="method"
        )
    return method


def policy_names(method: str) -> tuple[str, ...]:
    """Return the names under which a site's policy may allow what a study calls `method`.

    Examples
    --------
    >>> from feddbn.method_table import policy_names
    >>> policy_names("fdbnl")
    ('FDBNL', 'fdbnl')
    """
    found = find_method(method)
    return (method,) if found is None else (found.cls, found.name)


def make_estimator(name: str, parameters: Mapping[str, Any]) -> Any:
    """Return an unfitted estimator; a parameter it does not have is refused with the nearest name it has.

    Examples
    --------
    >>> from feddbn.method_table import make_estimator
    >>> make_estimator("oneshot", {"n_lags": 2})
    OneShotDBN(n_lags=2)
    """
    method = get_method(name)
    return method.load()(**method.named(parameters))
