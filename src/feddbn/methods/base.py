"""What every estimator shares: checking arguments, reading data, opening a federation, forgetting an earlier fit."""

from __future__ import annotations

import contextlib
import copy
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError

from feddbn.core.arrays import FloatArray
from feddbn.core.constraints import Edge, EdgeConstraints
from feddbn.core.designs.cells import mapped
from feddbn.core.designs.recordings import all_rows
from feddbn.core.orders.hidden import HiddenDoubts
from feddbn.core.penalised.path import RoundRecord, Status
from feddbn.core.statistics.made_up import filled_in
from feddbn.core.statistics.moments import Moments, dependences, safe_roots
from feddbn.core.statistics.survey import FEWEST_SITES
from feddbn.core.threads import one_thread
from feddbn.data import SiteData, check_sites, read_sites, summary
from feddbn.data.doubts import certain_doubts
from feddbn.data.layout import Layout
from feddbn.data.site import check_magnitudes, with_columns
from feddbn.errors import (
    DataError,
    DependentColumnsWarning,
    FeddbnError,
    ParameterError,
    ResidualsWarning,
    ResultWarning,
)
from feddbn.federation.guards.weights import RowWeights
from feddbn.federation.programs.alone import Alone, verdict_of
from feddbn.federation.programs.held_out import AUTO_GRIDS
from feddbn.federation.programs.residual_checks import ResidualReport
from feddbn.federation.protocol.rows import does_not_fit
from feddbn.federation.protocol.site import Site, notes_of
from feddbn.federation.protocol.task import Federation, Observer, ServerProgram, Sum, Task, run_program
from feddbn.federation.sums.in_view import FewerVariables
from feddbn.federation.sums.prepare import AS_THEY_ARE, Prepare, PreparedSettings
from feddbn.federation.sums.statistics import Preparation
from feddbn.federation.sums.treatment import AskedMoments
from feddbn.findings import Finding, Findings, together
from feddbn.method_table import find_method
from feddbn.model.dbn import DBN
from feddbn.model.definitions import far_definitions
from feddbn.model.dynamics import rows_with_past
from feddbn.model.trends import fit_trend
from feddbn.results.edge_table import without_direction
from feddbn.results.identities import Identity, near_identities
from feddbn.results.remarks import (
    ResidualSummary,
    alone_finding,
    hidden_findings,
    hidden_table,
    kind_findings,
    not_looked_at,
    of_site,
    residual_findings,
    site_notes,
    summarise,
    treatment_findings,
    treatment_summary,
)
from feddbn.results.result import Result
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.settings import MethodSettings, is_federation, with_parameters, word
from feddbn.shown import ShownEstimator
from feddbn.words import say

__all__ = [
    "DBNEstimator",
    "FederatedEstimator",
    "history_frame",
    "in_process",
    "learned_from",
    "network",
    "simulated",
]

T = TypeVar("T")
S = TypeVar("S", bound=MethodSettings)
# What somebody looks for at an estimator and its network has.
_ELSEWHERE = {
    "predict": "forecast",
    "irf": "impulse_responses",
    "coef": "edges",
    "graph": "to_networkx",
    "plot": "edges",
}
_PACKAGE = str(Path(__file__).parents[1])


def network(
    C: FloatArray,
    preparation: Preparation,
    variables: tuple[str, ...],
    target_loss: FloatArray | None = None,
    total_weight: float = 1.0,
) -> DBN:
    """Return the DBN in the units of the data from weights C ((p+1) d, d) of prepared variables.

    With x = center + scale * x', a weight C'[i, j] is C'[i, j] scale_j / scale_i; the intercept follows from the means.
    """
    d = C.shape[1]
    scale = preparation.scale
    C = C * scale[:d] / scale[:, None]
    intercept = preparation.center[:d] - preparation.center @ C
    # A perfect fit of very few rows leaves a loss of zero, up to rounding of either sign.
    variances = (
        None if target_loss is None else 2.0 * np.maximum(target_loss, 0.0) / total_weight * scale[:d] ** 2
    )
    return DBN(C[:d], C[d:].reshape(-1, d, d), variables, intercept, variances)


def history_frame(history: Iterable[object], seconds: Iterable[float] | None = None) -> pd.DataFrame:
    """One row per round."""
    rows = [vars(record) for record in history]
    frame = pd.DataFrame(rows, columns=None if rows else list(RoundRecord.__dataclass_fields__))
    times = [] if seconds is None else list(seconds)
    frame["seconds"] = times[-len(frame) :] if len(times) >= len(frame) else np.nan
    return frame


def simulated(
    data: Any,
    *,
    protection: str = "exact",
    random_state: int = 0,
    layout: Layout | None = None,
    **columns: Any,
) -> InProcessFederation:
    """Return a federation of sites that live in this process, as every fit without ``federation=`` makes one.

    Parameters
    ----------
    data
        Anything `feddbn.data.read_sites` takes.
    protection, random_state
        "exact": the sums as they are; "weights": rows have the weights that they have by default in masked studies between
        institutions, drawn by `random_state`.
    layout, columns
        Which columns are what: a `feddbn.Layout`, or its fields by name.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> federation = feddbn.simulated(data.sites)
    >>> feddbn.OneShotDBN(federation=federation).fit(None).W_.shape
    (3, 3)
    """
    sites = read_sites(data, layout=Layout.of(layout, columns, "simulated"))
    word("exact", "weights").check("protection", protection)
    if protection == "exact":
        return in_process(sites)
    return InProcessFederation(
        {
            name: Site(name, site, (RowWeights(f"{random_state} {name}".encode()),))
            for name, site in sites.items()
        }
    )


def learned_from(federation: Federation, rows: Prepare) -> Federation:
    """The federation without the variables that are computed from others."""
    kept = rows.learned(federation.variables)
    return federation if kept == tuple(federation.variables) else FewerVariables(federation, kept, ())


def in_process(sites: Mapping[str, SiteData]) -> InProcessFederation:
    """Return a federation of sites that were read already."""
    return InProcessFederation({name: Site(name, site) for name, site in sites.items()})


def _frames_of_package() -> int:
    """How many frames lie between whoever asked for a fit and the caller of this: what a warning should point at."""
    frame, n = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, n = frame.f_back, n + 1
    return n


def _missing_attribute(estimator: Any, name: str) -> AttributeError:
    """The error of an attribute that is not there: `NotFittedError` before a fit, else what there is instead."""
    owner, fitted = type(estimator).__name__, vars(estimator)
    if name.startswith("_"):
        return AttributeError(f"{owner!r} object has no attribute {name!r}")
    if name.endswith("_") and "n_features_in_" not in fitted:
        return NotFittedError(  # type: ignore[no-any-return]
            f"this {owner} has not learned anything yet, so it has no {name}; call fit first."
        )
    own = _ELSEWHERE.get(name.rstrip("_"))
    if own is not None and hasattr(type(estimator), own):
        return AttributeError(f"{owner!r} object has no attribute {name!r}; use {own}.")
    return AttributeError(_where_instead(owner, fitted, name))


def _where_instead(owner: str, fitted: dict[str, Any], name: str) -> str:
    start, ask = f"{owner!r} object has no attribute {name!r}", _ELSEWHERE.get(name.rstrip("_"), name)
    if f"{name}_" in fitted:
        return f"{start}; what was learned ends in an underscore: {name}_."
    if hasattr(DBN, ask):
        return f"{start}; ask its network: dbn_.{ask}."
    learned = [key for key in fitted if key.endswith("_") and not key.startswith("_")]
    if name.endswith("_") and learned:
        return f"{start}; it has {', '.join(sorted(learned))}."
    return f"{start}."


def unwarned(estimator: T) -> T:
    """Return the estimator; its fits and those of its copies warn of nothing from now on. `findings_` has all they find."""
    vars(estimator)["_warns"] = False
    return estimator


class FederatedEstimator(ShownEstimator, BaseEstimator, Generic[S]):  # type: ignore[misc]
    """Base of all estimators; a subclass takes its settings (`feddbn.settings.takes`) and implements `_fit`.

    A fit keeps what it learned and no rows. Before a fit there is nothing to read: whatever ends in an underscore raises
    `NotFittedError`. A fit that fails leaves nothing behind either.
    """

    settings: ClassVar[type[MethodSettings]] = MethodSettings
    is_selectable: ClassVar[bool] = False
    needed_tasks: ClassVar[frozenset[str]] = frozenset()
    """Questions without which there is no fit; sites that fit noise to one matrix of products do not answer all."""
    federation: Federation | None
    findings_: Findings
    _warns = True
    """Whether a fit warns of what it finds, too; `unwarned` has it off."""
    n_rounds_: int
    _n_sums: int = 0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        made = getattr(cls.__dict__.get("__init__"), "settings", None)
        if made is not None:
            cls.settings = made
            cls.__doc__ = with_parameters(cls.__doc__ or "", made)

    def fit(
        self,
        data: Any,
        y: None = None,
        *,
        layout: Layout | None = None,
        observer: Observer | None = None,
        **columns: Any,
    ) -> Any:
        """Learn from `data` and return self.

        Parameters
        ----------
        data
            Anything `feddbn.data.read_sites` takes: a dict from site name to recordings, one long DataFrame with
            `site`, `series` and `time` columns, or a path. None with ``federation=``: the sites have the data.
        layout, columns
            Which columns are what, and how times are read: a `feddbn.Layout`, or its fields by name (``site="ward"``).
        observer
            Called after every sum with the task and the answer; for progress bars.
        """

        def run(federation: Federation, sites: Mapping[str, SiteData] | None) -> None:
            tasks = federation.answered_tasks
            if tasks is not None and not tasks >= self.needed_tasks:
                missing = " and ".join(map(repr, sorted(self.needed_tasks - tasks)))
                raise ParameterError(
                    f"{type(self).__name__} needs {missing}, which this federation does not answer (noise is fitted to one "
                    "matrix of products of values as they are); use OneShotDBN.",
                    code="tasks-not-answered",
                )
            self._fit(federation, sites, observer)
            self.n_rounds_ = self._n_sums
            self._give_own_networks(federation, sites)

        if observer is not None and not callable(observer):
            raise ParameterError(f"observer={observer!r} must be a function; feddbn.Progress() is one.")
        self._begin()
        try:
            self._on_federation(data, run, Layout.of(layout, columns, "fit"))
        except BaseException:
            self._forget()
            raise
        return self

    @property
    def _settings(self) -> S:
        """The arguments as they are now, checked, with what was selected for them."""
        names = [one.name for one in fields(self.settings)]
        given: Any = self.settings(**{name: getattr(self, name) for name in names})
        chosen = vars(self).get("selected_")
        found: S = given.but(chosen) if chosen else given
        return found

    def named_parameters(self) -> dict[str, Any]:
        """The arguments by the names that commands and studies have for them, without the federation."""
        return self.settings(**self.get_params(deep=False)).to_dict()

    @property
    def _rows(self) -> Prepare:
        """What is to be done to the rows first."""
        settings = self._settings
        return settings.rows if isinstance(settings, PreparedSettings) else AS_THEY_ARE

    def _rows_on(self, federation: Federation) -> Prepare:
        """The same at this federation; what its sites do not answer is not asked for."""
        rows = self._rows.among(len(federation.sites))
        is_by_row = getattr(federation, "unit", None) == "row"
        return rows.answered_by(federation.answered_tasks, is_by_row=is_by_row)

    def set_params(self, **given: Any) -> Any:
        """Change arguments by their names, plain or with a dot, and return self."""
        now = self.get_params(deep=False)
        for name, value in self.settings.completed(given, type(self).__name__, now=now).items():
            setattr(self, name, value)
        return self

    def check_parameters(self) -> None:
        """Refuse arguments that cannot be, with a sentence; needs no data."""
        self.settings(**self.get_params(deep=False))

    def _tell(self, *found: Finding | str, warn: type[Warning] | None = None) -> None:
        """Add to `findings_`, and warn of it where `warn` says as what."""
        told = [one if isinstance(one, Finding) else Finding("text", "note", {"text": one}) for one in found]
        self.findings_ = Findings([*self.findings_, *told])
        for one in told if warn is not None and self._warns else ():
            warnings.warn(say(one), warn, stacklevel=_frames_of_package())

    def _begin(self) -> None:
        """Check the arguments and forget an earlier fit."""
        self.check_parameters()
        self._forget()
        self._n_sums = 0
        self.selected_: dict[str, Any] = {}

    def _forget(self) -> None:
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)

    def __getattr__(self, name: str) -> Any:
        raise _missing_attribute(self, name)

    def __sklearn_clone__(self) -> Any:
        """Return an unfitted copy; a federation is a place, so the copy goes to the same one."""
        given = self.get_params(deep=False)
        other = type(self)(**{k: v if k == "federation" else copy.deepcopy(v) for k, v in given.items()})
        return other if self._warns else unwarned(other)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Rows with missing values are left out, and a lag never crosses them.
        tags.input_tags.allow_nan = True
        return tags

    def _on_federation(
        self,
        data: Any,
        run: Callable[[Federation, Mapping[str, SiteData] | None], None],
        layout: Layout,
        longest_lag: int | None = None,
    ) -> None:
        """Call `run` with the federation given by ``federation=``, or with one that simulates the sites of `data`.

        `longest_lag` replaces n_lags where several numbers of lags will be tried.
        """
        if self.federation is not None:
            if data is not None or layout != Layout():
                given = "data" if data is not None else repr(layout)
                raise ParameterError(
                    f"{given} must be None when federation= is given: the federation's sites hold the data."
                )
            federation = learned_from(self.federation, self._rows)
            self._set_variables(federation.variables)
            self.sites_ = pd.DataFrame(index=pd.Index(federation.sites, name="site"))
            run(federation, None)
            self.site_notes_ = site_notes(federation)
            return
        if is_federation(data):
            raise ParameterError(
                f"data is a federation; give it as {type(self).__name__}(federation=...) and call fit(None)."
            )
        layout = replace(layout, label=self._label_column(layout.label))
        as_read = self._read(data, layout)
        sites = self._without_defined(as_read)
        n_lags = self._largest_lag if longest_lag is None else longest_lag
        self._check(sites, n_lags)
        check_magnitudes(sites)
        self._set_variables(tuple(dict.fromkeys(name for site in sites.values() for name in site.variables)))
        self.sites_ = summary(sites, n_lags)
        self._tell(*far_definitions(as_read.values(), self._rows.definitions))
        found = certain_doubts(sites, self.sites_, n_lags, not self._rows.fills)
        if not self._rows.is_settled:
            maps = self._rows.given.cell_maps
            found += filled_in({name: mapped(site, maps) for name, site in sites.items()}, self._rows.inputs)
        known = np.atleast_1d(np.asarray(self._rows.empty_values, dtype=float)).tolist()
        self._tell(*(one for one in found if one.code != "sentinel" or one.values["value"] not in known))
        at_home = in_process(sites)
        with one_thread():
            run(at_home, sites)
        self.sites_["used_rows"] = self._used_rows(self.sites_)
        states = {name: at_home.state_of(name) for name in at_home.sites}
        out = [name for name, state in states.items() if self._stays_out(state)]
        self.sites_.loc[out, "used_rows"] = 0
        self.site_notes_ = site_notes(at_home)
        odd = [*self.findings_.of("sites-disagree"), *self.findings_.of("two-rates")]
        # What sites find about themselves is the reason, and stands with what it is the reason of.
        is_wrong = any(one.level == "error" for one in odd)
        notes = [
            Finding("site-note", "error" if is_wrong else one.level, {"site": name, "finding": one.to_dict()})
            for name, state in states.items()
            for one in ([] if state is None else notes_of(state))
        ]
        others = [one for one in self.findings_ if one not in odd]
        self.findings_ = Findings([*others, *together("sites-compared", [*odd, *notes])])

    def _used_rows(self, counts: pd.DataFrame) -> pd.Series:
        """How many rows of each site the fit has used: all usable ones, or only complete ones."""
        done = vars(self).get("treatment_")
        fills = self._rows.fills if done is None else done["missing"] == "fill"
        return counts["usable_rows" if fills else "complete_rows"]

    def _stays_out(self, state: Mapping[str, np.ndarray] | None) -> bool:
        """Whether a site took no part in the network of all, since it does not fit the others."""
        done = vars(self).get("treatment_")
        return done is not None and done["left_out"] > 0 and state is not None and does_not_fit(state)

    def _read(self, data: Any, layout: Layout) -> Mapping[str, SiteData]:
        kinds = getattr(self, "kinds", None)
        return read_sites(data, layout=layout if kinds is None else replace(layout, kinds=kinds))

    def _without_defined(self, sites: Mapping[str, SiteData]) -> Mapping[str, SiteData]:
        """The sites without the variables that are computed from others."""
        if not self._rows.definitions:
            return sites
        every = tuple(dict.fromkeys(name for site in sites.values() for name in site.variables))
        kept = self._rows.learned(every)
        return {
            name: with_columns(site, tuple(one for one in site.variables if one in kept))
            for name, site in sites.items()
        }

    def _check(self, sites: Mapping[str, SiteData], n_lags: int) -> None:
        check_sites(sites, n_lags)

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        raise NotImplementedError

    def _give_own_networks(self, federation: Federation, sites: Mapping[str, SiteData] | None) -> None:
        """Give sites that stayed out networks of their own; an estimator that learns one network for all does."""

    def _label_column(self, label: str | None) -> str | None:
        """Column of row labels; an estimator that needs one says so here."""
        return label

    def _set_variables(self, variables: tuple[str, ...]) -> None:
        unknown = [name for name in self._rows.made_up or () if name not in variables]
        if unknown:
            raise ParameterError(
                f"made_up contains {unknown[0]!r}, which is not a variable; the variables are {', '.join(variables[:10])}."
            )
        self._identities: tuple[tuple[int, ...], ...] = ()
        self.feature_names_in_ = np.array(variables, dtype=object)
        self.n_features_in_ = len(variables)
        self.findings_ = Findings()

    @property
    def _largest_lag(self) -> int:
        """How far back a row must reach."""
        raise NotImplementedError

    @property
    def _variables(self) -> tuple[str, ...]:
        return tuple(str(name) for name in self.feature_names_in_)

    def _run(
        self, program: ServerProgram[T], federation: Federation, observer: Observer | None
    ) -> tuple[T, list[float]]:
        """Drive a program; also return the seconds each sum took."""
        seconds: list[float] = []
        last = time.perf_counter()

        def watch(task: Task, answer: Sum) -> None:
            nonlocal last
            now = time.perf_counter()
            seconds.append(now - last)
            last = now
            if observer is not None:
                observer(task, answer)

        found = run_program(program, federation, watch)
        self._n_sums += len(seconds)
        return found, seconds


class DBNEstimator(FederatedEstimator[S]):
    """Base of the estimators that learn a network."""

    n_lags: Any
    forbidden_edges: Iterable[Edge] | None = None
    required_edges: Iterable[Edge] | None = None
    # The scales that sites were brought to, in which the weights are.
    _log_scales: FloatArray | None = None

    dbn_: DBN
    W_: FloatArray
    A_: FloatArray
    W_raw_: FloatArray
    A_raw_: FloatArray
    status_: Status
    residuals_: ResidualSummary | None
    alone_: Alone | None
    hidden_: pd.DataFrame
    history_: pd.DataFrame

    @property
    def _selected(self) -> dict[str, Any]:
        """What was selected so far; nothing before a fit."""
        chosen: dict[str, Any] = vars(self).get("selected_", {})
        return chosen

    def _choosing(self, chosen: Mapping[str, Any]) -> Self:
        """Return a copy for which these values are chosen; this estimator stays as it is."""
        other = copy.copy(self)
        other.selected_ = dict(chosen)
        return other

    def _choose(self, chosen: dict[str, Any], table: pd.DataFrame | None) -> None:
        """Set what was chosen for parameters that are "auto", and the table of what was tried."""
        self.selected_ = chosen
        if table is not None:
            self.selection_ = table

    def _value(self, name: str) -> Any:
        """Return a parameter: what was selected for it, else what was given."""
        return self._selected.get(name, getattr(self, name))

    @property
    def _largest_lag(self) -> int:
        """How far back a row must reach; with n_lags="auto", until it is chosen, as far as will be tried."""
        chosen = self._value("n_lags")
        if chosen != "auto":
            return int(chosen)
        return int(max(AUTO_GRIDS["n_lags"]))

    def _constraints(self) -> EdgeConstraints:
        into_inputs: list[Edge] = [
            ("*", j, lag) for j in self._inputs for lag in range(self._largest_lag + 1)
        ]
        forbidden = [*(self.forbidden_edges or ()), *into_inputs]
        return EdgeConstraints.from_edges(self._variables, self._largest_lag, forbidden, self.required_edges)

    @property
    def _inputs(self) -> tuple[int, ...]:
        """Positions of the variables that only act on others."""
        names, inputs = self._variables, self._rows.inputs
        for name in inputs:
            if name not in names:
                raise ParameterError(
                    f"exogenous contains {name!r}, which is not a variable; the variables are {', '.join(names[:10])}."
                )
        found = tuple(j for j, name in enumerate(names) if name in inputs)
        if found and len(found) == len(names):
            raise ParameterError(
                "exogenous names all variables, so there is nothing to explain; leave some out."
            )
        return found

    def _say_moments(self, asked: AskedMoments | None) -> None:
        """Say what the first sums told: what was done to the rows, and which variables follow from others."""
        self._say_treatment(asked)
        if asked is not None:
            found = dependences(asked.in_units.scatter, asked.in_units.n, len(self._variables), self._inputs)
            self._say_dependent([one.finding(self._variables) for one in found])

            self._say_identities(near_identities(asked.in_units, len(self._variables), self._inputs))

    def _say_dependent(self, found: Sequence[Finding]) -> None:
        self._tell(*found, warn=DependentColumnsWarning)

    def _say_identities(self, found: Sequence[Identity]) -> None:
        """Say which variables look computed from others; edges among these have no direction, unless it was given."""
        self._tell(*(one.finding(self._variables) for one in found), warn=DependentColumnsWarning)
        self._identities = tuple(one.members for one in found)
        self._leave_open()

    def _leave_open(self) -> None:
        """Leave edges among the members of an identity without a direction."""
        dbn: DBN | None = vars(self).get("dbn_")
        if not self._identities or dbn is None:
            return
        free = without_direction(self._constraints(), self._identities) & dbn.is_edge[0]
        names = self._variables
        pairs = [(names[i], names[j]) for i, j in np.argwhere(free).tolist()]
        self.dbn_ = replace(dbn, open_edges=(*dbn.open_edges, *pairs))

    def _say_treatment(self, asked: AskedMoments | None) -> None:
        """Set `center_` and `treatment_`, and say what the data made necessary."""
        rows = self._rows
        given = getattr(self._settings, "prepare", rows)
        self.center_ = given.center if asked is None else asked.center
        self.treatment_ = None if asked is None else treatment_summary(asked, self._variables)
        self._log_scales = None if asked is None else asked.treatment.log_scales
        if asked is None:
            return
        if asked.survey is None and asked.evidence is None and rows.center == "auto":
            # Under differential privacy noise is fitted to one matrix of products; to look around takes more.
            self._tell(Finding("not-looked-at-under-noise", "unknown", cure={"prepare.center": "recording"}))
        if asked.center == "recording" and not asked.moments.mean.any():
            self._tell(Finding("no-intercepts", "note"))
        row = find_method(type(self).__name__)
        one_network = row is None or not row.is_personal
        self._tell(*treatment_findings(asked, self._variables, one_network=one_network))
        self._tell(*kind_findings(asked, self._variables, getattr(self, "kinds", None) or ()))

    def _say_residuals(self, report: ResidualReport | None) -> None:
        """Set `residuals_`, say what contradicts the model, and warn of what may make edges wrong."""
        self.residuals_ = None if report is None else summarise(report, self._variables)
        found = [] if report is None else not_looked_at(report)
        if self.residuals_ is not None:
            found = residual_findings(self.residuals_, len(self.dbn_.A))
        for one in found:
            self._tell(one, warn=ResidualsWarning if one.level == "warning" else None)

    def _say_alone(self, found: Alone | None, federation: Federation) -> None:
        """Set `alone_`, and say for how many sites the network is better than their own; sites of this process by name."""
        self.alone_ = found
        if found is None:
            return
        states = {name: federation.state_of(name) for name in federation.sites}
        verdicts = {name: verdict_of(state) for name, state in states.items() if state is not None}
        named = {name: one for name, one in verdicts.items() if one is not None}
        self.alone_ = replace(found, sites=named)
        told = alone_finding(self.alone_, len(federation.sites), self._rows.center)
        self._tell(told, warn=ResultWarning if told.level == "error" else None)

    def _say_hidden(self, moments: Moments | None, doubts: HiddenDoubts | None) -> None:
        """Set `hidden_`, and say which edges hidden causes could stand for."""
        self.hidden_ = hidden_table(self.dbn_, moments, doubts)
        self._tell(*hidden_findings(self.hidden_, doubts, self.dbn_.variables))

    def update(self, data: Any, **new: Any) -> Any:
        """Refuse to add new rows to a fit; estimators that learn from summed moments can (`methods.updating`)."""
        raise ParameterError(
            f"{type(self).__name__} does not learn from summed moments alone, so new rows cannot be added to a fit; fit all "
            "rows again, or use OneShotDBN or FDBNL.",
            code="cannot-update",
        )

    def _give_own_networks(self, federation: Federation, sites: Mapping[str, SiteData] | None) -> None:
        """Set `dbns_`: site -> the common network, or of a site that stayed out what the method learns from its rows alone.

        Where sites keep their data (`sites` is None) `dbns_` is empty: owners are told how to learn theirs at home.
        """
        if not self._rows.is_personal:
            return
        self.dbns_: dict[str, DBN] = {}
        done = vars(self).get("treatment_")
        if done is None or done["n_rows"] is None or len(federation.sites) < FEWEST_SITES:
            self._tell(Finding("no-site-compared", "warning", {"fewest": FEWEST_SITES}))
        for name, site in (sites or {}).items():
            state = federation.state_of(name)
            own = self._learned_alone(name, site) if self._stays_out(state) else self.dbn_
            if own is not None:
                self.dbns_[name] = own

    def _learned_alone(self, name: str, site: SiteData) -> DBN | None:
        """What a copy of the estimator learns from one site; None, and a finding, where that cannot be."""
        given = {"federation": None, "prepare.on_disagreement": "ignore", **self._selected}
        # What the copy says is said by the estimator.
        alone: DBNEstimator[Any] = unwarned(clone(self)).set_params(**given)
        alone._begin()
        alone._set_variables(tuple(site.variables))
        alone.sites_ = summary({name: site}, alone._largest_lag)
        try:
            alone._fit(simulated({name: site}), {name: site}, None)
        except FeddbnError as error:
            self._tell(Finding("no-own-network", "warning", {"site": name, "why": str(error)}))
            return None
        self._tell(*(of_site(one, name, ", its own network") for one in alone.findings_))
        return alone.dbn_

    def score(self, data: Any, y: None = None, *, layout: Layout | None = None, **columns: Any) -> float:
        """Return the mean log-likelihood of a row of new data given the rows before it; higher is better.

        So ``GridSearchCV(model, {"n_lags": [1, 2]}, cv=TimeSeriesSplit()).fit(table)`` chooses settings. Rows are treated as
        in the fit. Where it took means, trends and cycles off each recording, those of the new recordings are taken off.
        Rows with an empty cell, or without their past, are left out. `feddbn.select` does the same from sums.

        Parameters
        ----------
        data, layout, columns
            As for `fit`.
        """
        given = replace(Layout.of(layout, columns, "score"), missing="keep")
        names, total, n = self._variables, 0.0, 0
        for name, site in self._without_defined(self._read(data, given)).items():
            missing = [one for one in names if one not in site.variables]
            if missing:
                raise DataError(f"data of {name!r} lack the variable {missing[0]!r}, which the network has.")
            dbn = vars(self).get("dbns_", {}).get(name) or vars(self).get("dbn_")
            if dbn is None:
                raise ParameterError(f"data has rows of {name!r}, a site that this fit has no network for.")
            here, n_here = self._likelihood(dbn, with_columns(site, names))
            total, n = total + here, n + n_here
        if not n:
            raise DataError(
                f"data has no row whose cells, and those of the {self._largest_lag} rows before it, are all there; give more "
                "rows.",
                code="no-usable-rows",
            )
        return total / n

    def _likelihood(self, dbn: DBN, site: SiteData) -> tuple[float, int]:
        """The log-likelihood of the usable rows of a site, and how many they are."""
        done, total, n = vars(self).get("treatment_") or {}, 0.0, 0
        for recording in mapped(site, tuple(done.get("cell_maps") or ())).recordings():
            rows, at = all_rows(recording)
            network = dbn
            if done.get("center") == "recording":
                trend = fit_trend(rows, done["degree"], done["periods"], times=at, variables=dbn.variables)
                network = dbn.at_level(np.zeros(dbn.d) if dbn.is_linear else trend.coefficients[0])
                rows = rows - trend.at(at) if dbn.is_linear else rows
            parts = np.split(rows, np.flatnonzero(np.diff(at) != 1) + 1)
            with contextlib.suppress(DataError):
                n_here = len(rows_with_past(network, parts))
                total, n = total + network.log_likelihood(parts), n + n_here
        return total, n

    def summary(self) -> str:
        """What was learned as text: sizes, how the fit ended, what to know first, and every edge with its standard error."""
        return Result.from_estimator(self).summary()

    def impulse_responses(self, horizon: int = 10, level: float = 0.9) -> pd.DataFrame:
        """Frame source, target, step, response, lower, upper: what a unit shock does, with bands (`DBN.response_bands`)."""
        return Result.from_estimator(self).impulse_responses(horizon, level)

    def _set_sums(self, moments: Moments) -> None:
        """Set what is known of the rows of a fit that has nothing left to settle."""
        self.status_, self.n_samples_ = Status.EXACT, int(moments.n)
        d = len(self._variables)
        self.standard_deviations_ = safe_roots(np.diag(moments.scatter)[:d] / moments.n)

    def _defining(self, dbn: DBN) -> DBN:
        """The network with the variables that are computed from its own, for its forecasts."""
        return replace(dbn, definitions=self._rows.definitions) if self._rows.definitions else dbn

    def _set_network(self, dbn: DBN, raw: DBN) -> None:
        self.dbn_ = self._defining(dbn)
        self.W_, self.A_ = dbn.W, dbn.A
        self.W_raw_, self.A_raw_ = raw.W, raw.A
        self.adjacency_matrices_ = dbn.adjacency_matrices
        self._leave_open()
