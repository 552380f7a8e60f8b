"""PFDBNL: a personal network for every site, which borrows from the others as much as mu says.

Long because the class explains every argument and attribute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.graphs.constraints import Edge, EdgeConstraints
from feddbn.core.optimum.certified import PersonalCertificate
from feddbn.core.statistics.moments import safe_roots
from feddbn.data import SiteData, check_sites, read_sites
from feddbn.data.layout import Layout
from feddbn.errors import ParameterError
from feddbn.federation.programs.pfdbnl.entries import Entries
from feddbn.federation.programs.pfdbnl.rounds import PersonalFit, PersonalSettings, personal_program
from feddbn.federation.programs.pfdbnl.site import personal_arrays
from feddbn.federation.programs.residual_checks import ROWS_A_COLUMN, own_checks_program
from feddbn.federation.programs.shared_edges import edge_counts_program
from feddbn.federation.programs.statistics import Preparation
from feddbn.federation.protocol.task import Federation, Observer, ServerProgram
from feddbn.methods.base import DBNEstimator, history_frame, network
from feddbn.methods.edge_table import equivalently_directed
from feddbn.methods.fdbnl import (
    CONSENSUS_RULES,
    looks_by_default,
    network_of_fit,
    say_scale,
    settings_of,
    still_open,
)
from feddbn.methods.residuals import ResidualSummary, are_looked_at
from feddbn.methods.selection import auto_selection
from feddbn.methods.shared_edges import SharedEdges, counts_of_networks, shared_edges_of
from feddbn.model.dbn import DBN
from feddbn.settings import Rule, flag, lags_of_sites, number, share_or_count, whole, word

__all__ = ["PFDBNL"]


_ROUNDS_OF_A_CANDIDATE = 300
"""Held-out losses are compared long before the last digits of the weights have settled."""


class PFDBNL(DBNEstimator[Any]):
    """Personalised federated learning of dynamic Bayesian networks [fdbnl Algorithm 2].

        min over W_k, A_k, W, A   sum_k  w_k (loss_k(W_k, A_k) + lambda_w |W_k|_1 + lambda_a |A_k|_1)
                                         + mu (|W_k - W|^2 + |A_k - A|^2)         subject to   every W_k acyclic

    mu -> 0 gives separate DYNOTEARS fits, mu -> infinity one graph for all. Each round the server needs only the sum of
    the participants' answers; the personal graphs stay at their sites.

    Parameters
    ----------
    mu
        Pull of every site towards the common weights; `numpy.inf` for one graph, "auto" to choose by held-out loss.
    n_lags, lambda_w, lambda_a
        As in `FDBNL`; the penalties act on every site's own graph.
    participation
        Share of the sites, or their number, that is drawn for each round; the others keep their state.
    n_clusters
        Number of common models: every site picks the one that fits its own data best, in secret; "auto" chooses by
        held-out loss.
    site_lags
        Site name -> its own number of lags, at most `n_lags`.
    different_variables
        Whether sites may hold different variables (`feature_names_in_` is the union of their names). What a site has
        not measured, its parents outside included, is completed by the others' second moments: one more sum, entry by
        entry. Its network in `dbns_` shows the variables it has.
    schedule
        "rounds", or "paper": the published penalties and the published alternation.
    alpha
        "site": each site keeps its own multiplier of acyclicity; "shared": the paper's one for all.
    average
        "running": C is the mean over all sites that ever joined, whoever was drawn; "participants": the paper's mean
        over this round's sites.
    weighting
        "samples": w_k = n_k / mean n; "sites": 1, as in the paper. The same if sites have as many rows.
    rho1, rho2, phi1, phi2, max_rounds, h_tol, tol
        As in `FDBNL`; `tol` bounds the residuals of the rounds, personal weights are then solved exactly.
    w_threshold, a_threshold, refit
        As in `FDBNL`, applied by each site to its own graph; the refit keeps the pull and drops the L1 penalty.
    forbidden_edges, required_edges, exogenous, center, detrend, period, spikes, missing, scale, acyclicity
    device, federation
        As in `FDBNL`.
    optimum
        As in `FDBNL`, but every site searches on its own penalised objective, pull included; nothing of it leaves the site.
    gains, on_disagreement
        As in `FDBNL`, but sites with networks of their own have scales of their own, and none is left out: "personal" is
        what this method does, and counts sites as "warn" does.
    random_state
        Seed of the draws of participants.
    check_residuals
        As in `FDBNL`, each site about its own network, which stays there; sites with few rows have no part in that sum, and
        with `different_variables` or `site_lags` it is not asked for.

    Attributes
    ----------
    dbns_
        Site name -> its personal `DBN`. Only a simulation in this process can fill it; in a deployment each personal
        network stays at its site.
    dbn_, W_, A_
        The shared network: the common weights, thresholded and without cycles.
    cluster_dbns_
        The common network of each cluster; the server knows these, not which site is in which.
    never_joined_
        Sites that were not part of any round; they get the shared network.
    n_rounds_, status_, history_, objective_
        How the fit went.
    certificate_
        How many sites have the network with their lowest objective, the common weights given, and the others' largest
        gap (`core.optimum.certified.PersonalCertificate`); None in a deployment (it stays there) or without a search.
    residuals_
        What the sites' residuals say about the model, as in `FDBNL`.
    center_values_, scale_values_
        (q,) what was taken off the lagged columns of all sites, and what they were divided by.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> model = feddbn.PFDBNL(mu=0.5, tol=0.01).fit(data.sites)
    >>> sorted(model.dbns_), model.dbn_.d
    (['site-0', 'site-1'], 3)
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        **CONSENSUS_RULES,
        "schedule": word("rounds", "paper"),
        # Every site keeps a network of its own, so none is left out.
        "on_disagreement": word("personal", "warn", "ignore"),
        "mu": replace(number(above=0, finite=False), passing=("positive (infinity gives one graph for all)",))
        | word("auto"),
        "participation": share_or_count(),
        "n_clusters": whole(1) | word("auto"),
        "site_lags": lags_of_sites(),
        "different_variables": flag(),
        "alpha": word("site", "shared"),
        "average": word("running", "participants"),
    }
    is_selectable = True
    certificate_: PersonalCertificate | None

    def __init__(
        self,
        mu: float | str = 0.5,
        n_lags: int | str = 1,
        lambda_w: float | str = 0.05,
        lambda_a: float | str = 0.05,
        *,
        participation: float | int = 1.0,
        n_clusters: int | str = 1,
        site_lags: Mapping[str, int] | None = None,
        different_variables: bool = False,
        schedule: str = "rounds",
        alpha: str = "site",
        average: str = "running",
        weighting: str = "samples",
        rho1: float | None = None,
        rho2: float | None = None,
        phi1: float | None = None,
        phi2: float | None = None,
        max_rounds: int = 2000,
        h_tol: float = 1e-8,
        tol: float = 1e-4,
        w_threshold: float = 0.2,
        a_threshold: float = 0.2,
        refit: bool = True,
        forbidden_edges: Iterable[Edge] | None = None,
        required_edges: Iterable[Edge] | None = None,
        center: str = "auto",
        detrend: int | str = "auto",
        period: float | Sequence[float] | str | None = "auto",
        gains: str = "none",
        spikes: str = "auto",
        missing: str = "fill",
        on_disagreement: str = "warn",
        exogenous: Sequence[str] | None = None,
        scale: str = "auto",
        acyclicity: str = "expm",
        optimum: str = "order",
        random_state: int | None = 0,
        check_residuals: bool | str = "auto",
        device: str = "cpu",
        federation: Federation | None = None,
    ) -> None:
        self.mu = mu
        self.n_lags = n_lags
        self.lambda_w = lambda_w
        self.lambda_a = lambda_a
        self.participation = participation
        self.n_clusters = n_clusters
        self.site_lags = site_lags
        self.different_variables = different_variables
        self.schedule = schedule
        self.alpha = alpha
        self.average = average
        self.weighting = weighting
        self.rho1 = rho1
        self.rho2 = rho2
        self.phi1 = phi1
        self.phi2 = phi2
        self.max_rounds = max_rounds
        self.h_tol = h_tol
        self.tol = tol
        self.w_threshold = w_threshold
        self.a_threshold = a_threshold
        self.refit = refit
        self.forbidden_edges = forbidden_edges
        self.required_edges = required_edges
        self.center = center
        self.detrend = detrend
        self.period = period
        self.gains = gains
        self.spikes = spikes
        self.missing = missing
        self.on_disagreement = on_disagreement
        self.exogenous = exogenous
        self.scale = scale
        self.acyclicity = acyclicity
        self.optimum = optimum
        self.random_state = random_state
        self.check_residuals = check_residuals
        self.device = device
        self.federation = federation

    def check_parameters(self) -> None:
        """Refuse arguments that cannot be, alone or together."""
        if self.schedule != "adaptive":
            super().check_parameters()
        chosen = still_open(self)
        if self.site_lags and chosen:
            raise ParameterError(
                "site_lags cannot be combined with 'auto'; choose first, with the same lags everywhere."
            )
        settings_of(PersonalSettings, self, chosen)
        if self.check_residuals is True and self._is_partial:
            raise ParameterError(
                "check_residuals=True needs sites with the same variables and lags; leave it at 'auto' with "
                "different_variables or site_lags."
            )

    def _settings(self) -> PersonalSettings:
        settings = settings_of(PersonalSettings, self, self._selected)
        is_said = settings.on_disagreement == "personal"
        return replace(settings, on_disagreement="warn") if is_said else settings

    def _give_own_networks(self, federation: Federation, sites: Mapping[str, SiteData] | None) -> None:
        """Every site has one already."""

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        n_sites = len(federation.sites)
        if self.n_clusters != "auto" and int(self.n_clusters) > n_sites:
            raise ParameterError(f"n_clusters={self.n_clusters} is more than the {n_sites} sites.")
        self._choose(*auto_selection(self, federation, observer))
        fit, seconds = self._run(self._program(federation, 0), federation, observer)
        self._set_fit(fit, seconds)
        self._look(fit, federation, observer)
        self._collect(federation, fit)
        self._shared, self._scale = fit.shared, fit.preparation.scale

    def shared_edges(self, min_count: int = 1, opt_out: Iterable[str] = ()) -> SharedEdges:
        """Return in how many sites each edge is present, its shared weight and each site's deviation.

        With ``federation=`` one sum of indicators and weights; otherwise the simulated sites' networks are counted, as
        the fit keeps these and not the sites. Counts below `min_count` are not shown; sites in `opt_out` are counted
        only for edges of the shared network. The weights are in the units of the data.
        """
        shared, left_out = self.dbn_, tuple(opt_out)
        if self.federation is None:
            counts = counts_of_networks(shared, self.dbns_, left_out)
        else:
            counts, _ = self._run(edge_counts_program(self._shared, left_out), self.federation, None)
            in_units = counts.mean_weight * self._scale[: shared.d] / self._scale[:, None]
            counts = replace(counts, mean_weight=in_units)
        return shared_edges_of(counts, shared, self.dbns_, min_count)

    def _program(
        self, federation: Federation, run_number: int, most_rounds: int | None = None
    ) -> ServerProgram[PersonalFit]:
        settings = self._settings()
        if most_rounds is not None:
            # Candidates are compared by held-out loss: no proof is needed.
            settings = replace(settings, max_rounds=min(settings.max_rounds, most_rounds), is_proven=False)
        return personal_program(
            settings,
            self._variables,
            self._constraints(),
            tuple(federation.sites),
            np.random.default_rng(self.random_state),
            run_number=run_number,
            site_lags=self.site_lags,
            is_partial=self._is_partial,
        )

    @property
    def _is_partial(self) -> bool:
        return bool(self.different_variables or self.site_lags)

    def _look(self, fit: PersonalFit, federation: Federation, observer: Observer | None) -> None:
        """Say what residuals near the sites' own networks tell, if they are looked at."""
        self.residuals_: ResidualSummary | None = None
        # What a site has not measured is missing from its residuals.
        by_default = looks_by_default(self) and not self._is_partial
        if not are_looked_at(self.check_residuals, federation, by_default=by_default):
            return
        network = network_of_fit(self, fit.preparation, fit.asked)
        self._say_residuals(self._run(own_checks_program(network), federation, observer)[0])
        if self.residuals_ is None:
            self._tell(
                f"whether residuals contradict the model was not looked at: no site has {ROWS_A_COLUMN} rows for each of the "
                f"{len(network.weights)} columns of a row."
            )

    def _candidate(
        self, federation: Federation, run_number: int
    ) -> ServerProgram[tuple[FloatArray | None, Preparation]]:
        fit = yield from self._program(federation, run_number, _ROUNDS_OF_A_CANDIDATE)
        return None, fit.preparation

    def _read(self, data: Any, layout: Layout) -> Mapping[str, SiteData]:
        """Return the sites; with `different_variables` each as it is, over the union of all names."""
        if not self.different_variables:
            return super()._read(data, layout)
        return read_sites(data, same_variables=False, layout=layout)

    def _check(self, sites: Mapping[str, SiteData], n_lags: int) -> None:
        lags = dict(self.site_lags or {})
        for name, p in lags.items():
            if name not in sites:
                raise ParameterError(f"site_lags names {name!r}, which is not a site of the data.")
            if isinstance(p, bool) or not isinstance(p, int) or not 0 <= p <= n_lags:
                raise ParameterError(
                    f"site_lags[{name!r}]={p!r} must be a whole number from 0 to n_lags={n_lags}."
                )
        if not (lags or self.different_variables):
            super()._check(sites, n_lags)
            return
        for name, site in sites.items():
            check_sites({name: site}, lags.get(name, n_lags))

    def _set_fit(self, fit: PersonalFit, seconds: list[float]) -> None:
        run, variables = fit.run, self._variables
        assert run.status is not None
        shared = self._directed(network(fit.shared, fit.preparation, variables, fit.target_loss), fit)
        self._set_network(shared, network(run.shared, fit.preparation, variables))
        self.center_values_, self.scale_values_ = fit.preparation.center, fit.preparation.scale
        self.objective_ = fit.objective
        self.n_rounds_ = run.round
        self.status_ = run.status
        self.history_ = history_frame(run.history, seconds)
        self.cluster_dbns_ = [
            self._directed(network(C, fit.preparation, variables), fit) for C in fit.clusters
        ]
        self._say_moments(fit.asked)
        self.center_ = fit.preparation.center_rule
        say_scale(self, fit.scale)
        self.standard_deviations_ = safe_roots(fit.preparation.summary.variance[: len(variables)])
        self.n_samples_ = round(fit.preparation.summary.n)
        self.never_joined_ = fit.never_joined
        if fit.never_joined:
            names = ", ".join(fit.never_joined[:5])
            self._tell(f"{len(fit.never_joined)} sites never took part and got the shared network: {names}.")
        if not run.status.is_converged:
            self._tell(f"the fit {run.status.message}.")

    def _directed(self, dbn: DBN, fit: PersonalFit, limits: EdgeConstraints | None = None) -> DBN:
        """The network with its open edges, which scaled variables leave."""
        if fit.scale is None or fit.scale.rule == "none":
            return dbn
        return equivalently_directed(dbn, self._constraints() if limits is None else limits)

    def _collect(self, federation: Federation, fit: PersonalFit) -> None:
        """Read the personal networks of simulated sites; a real federation has no way to offer them."""
        self.dbns_: dict[str, DBN] = {}
        self.dbns_raw_: dict[str, DBN] = {}
        certificates: dict[str, tuple[float, float]] = {}
        variables, most_lags, full = self._variables, self._value("n_lags"), self._constraints()
        for name in federation.sites:
            state = federation.state_of(name)
            if state is None:
                continue
            own = personal_arrays(state)
            names = tuple(variables[i] for i in own["columns"].astype(int))
            n_lags = (self.site_lags or {}).get(name, most_lags)
            entries = Entries.of(names, variables, n_lags, most_lags)
            preparation = _part(fit.preparation, entries)
            loss = own["target_loss"][entries.columns]
            found = network(entries.take(own["C"]), preparation, names, loss)
            allowed, required = (
                entries.take(part.astype(float)) > 0 for part in (full.allowed, full.required)
            )
            limits = EdgeConstraints(allowed, required)
            self.dbns_[name] = self._directed(found, fit, limits)
            self.dbns_raw_[name] = network(entries.take(own["C_raw"]), preparation, names)
            objective, bound = own["certificate"].tolist()
            if bound > 0:
                certificates[name] = objective, bound
        self.certificate_ = PersonalCertificate.of(certificates) if certificates else None


def _part(preparation: Preparation, entries: Entries) -> Preparation:
    """Return the preparation of the entries a site holds."""
    return replace(
        preparation, center=entries.take(preparation.center), scale=entries.take(preparation.scale)
    )
