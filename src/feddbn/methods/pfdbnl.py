"""PFDBNL: a personal network for every site, which borrows from the others as much as mu says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from feddbn.core.arrays import FloatArray
from feddbn.core.penalised.optimum import PersonalCertificate
from feddbn.data import SiteData
from feddbn.federation.programs.pfdbnl.rounds import PersonalFit, PFDBNLSettings, personal_program
from feddbn.federation.programs.pfdbnl.shared_edges import edge_counts_program
from feddbn.federation.programs.pfdbnl.site import personal_arrays
from feddbn.federation.programs.residual_checks import ROWS_A_COLUMN, own_checks_program
from feddbn.federation.protocol.task import Federation, Observer, ServerProgram
from feddbn.federation.sums.statistics import Preparation
from feddbn.findings import Finding
from feddbn.methods.base import network
from feddbn.methods.fdbnl import IterativeEstimator
from feddbn.methods.selection import auto_selection
from feddbn.model.dbn import DBN
from feddbn.results.remarks import are_looked_at
from feddbn.results.shared_edges import SharedEdges, counts_of_networks, shared_edges_of
from feddbn.settings import takes

__all__ = ["PFDBNL"]


_ROUNDS_OF_A_CANDIDATE = 300
"""Held-out losses are compared long before the last digits of the weights have settled."""


class PFDBNL(IterativeEstimator[PFDBNLSettings]):
    """Personalised federated learning of dynamic Bayesian networks [fdbnl Algorithm 2].

        min over W_k, A_k, W, A   sum_k  w_k (loss_k(W_k, A_k) + lambda_w |W_k|_1 + lambda_a |A_k|_1)
                                         + mu (|W_k - W|^2 + |A_k - A|^2)         subject to   every W_k acyclic

    mu -> 0 gives separate DYNOTEARS fits, mu -> infinity one graph for all. Each round the server needs only the sum of
    the participants' answers; the personal graphs stay at their sites.

    Attributes
    ----------
    dbns_
        Site name -> its personal `DBN`. Only a simulation in this process can fill it; in a deployment each personal
        network stays at its site.
    dbn_, W_, A_
        The shared network: the common weights, thresholded and without cycles.
    never_joined_
        Sites that were not part of any round; they get the shared network.
    n_rounds_, status_, history_, objective_
        How the fit went.
    certificate_
        How many sites have the network with their lowest objective, the common weights given, and the others' largest
        gap (`core.penalised.optimum.PersonalCertificate`); None in a deployment (it stays there) or without a search.
    residuals_
        What the sites' residuals say about the model, as in `FDBNL`.
    center_values_, scale_values_
        (q,) what was taken off the lagged columns of all sites, and what they were divided by.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> model = feddbn.PFDBNL(mu=0.5, rounds=feddbn.PersonalRounds(tol=0.01)).fit(data.sites)
    >>> sorted(model.dbns_), model.dbn_.d
    (['site-0', 'site-1'], 3)
    """

    certificate_: PersonalCertificate | None

    @takes(PFDBNLSettings)
    def __init__(self) -> None: ...

    def _give_own_networks(self, federation: Federation, sites: Mapping[str, SiteData] | None) -> None:
        """Every site has one already."""

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        self._choose(*auto_selection(self, federation, observer))
        fit, seconds = self._run(self._program(federation, self._settings), federation, observer)
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
            program = edge_counts_program(self._shared, self.federation.sites, left_out)
            counts, _ = self._run(program, self.federation, None)
            in_units = counts.mean_weight * self._scale[: shared.d] / self._scale[:, None]
            counts = replace(counts, mean_weight=in_units)
        return shared_edges_of(counts, shared, self.dbns_, min_count)

    def _program(
        self, federation: Federation, settings: PFDBNLSettings, run_number: int = 0, is_proven: bool = True
    ) -> ServerProgram[PersonalFit]:
        return personal_program(
            settings,
            self._variables,
            self._constraints(),
            tuple(federation.sites),
            run_number=run_number,
            is_proven=is_proven,
        )

    def _look(self, fit: PersonalFit, federation: Federation, observer: Observer | None) -> None:
        """Say what residuals near the sites' own networks tell, if they are looked at."""
        settings = self._settings
        by_default = settings.schedule != "paper" and not settings.rows.is_settled
        if not are_looked_at(settings.check_residuals, federation, by_default=by_default):
            return
        checked = self._checked_network(fit.preparation, fit.asked)
        self._say_residuals(self._run(own_checks_program(checked), federation, observer)[0])
        if self.residuals_ is None:
            values = {"rows_a_column": ROWS_A_COLUMN, "n_columns": len(checked.weights)}
            self._tell(Finding("own-residuals-not-looked-at", "unknown", values))

    def _candidate(
        self, federation: Federation, run_number: int
    ) -> ServerProgram[tuple[FloatArray | None, Preparation]]:
        settings = self._settings
        # Candidates are compared by held-out loss: no proof is needed.
        most = min(settings.rounds.max_rounds, _ROUNDS_OF_A_CANDIDATE)
        quick = replace(settings, rounds=replace(settings.rounds, max_rounds=most))
        fit = yield from self._program(federation, quick, run_number, is_proven=False)
        return None, fit.preparation

    def _set_fit(self, fit: PersonalFit, seconds: list[float]) -> None:
        run, variables = fit.run, self._variables
        shared = network(fit.shared, fit.preparation, variables, fit.target_loss)
        self._set_network(self._directed(shared, fit.scale), network(run.shared, fit.preparation, variables))
        self.center_values_, self.scale_values_ = fit.preparation.center, fit.preparation.scale
        self.objective_ = fit.objective
        self._set_course(run, fit.preparation, fit.asked, fit.scale, seconds)
        self.never_joined_ = fit.never_joined
        if fit.never_joined:
            self._tell(Finding("never-joined", "warning", about=fit.never_joined))

    def _collect(self, federation: Federation, fit: PersonalFit) -> None:
        """Read the personal networks of simulated sites; a real federation has no way to offer them."""
        self.dbns_: dict[str, DBN] = {}
        self.dbns_raw_: dict[str, DBN] = {}
        certificates: dict[str, tuple[float, float]] = {}
        variables = self._variables
        for name in federation.sites:
            state = federation.state_of(name)
            if state is None:
                continue
            own = personal_arrays(state)
            found = network(own["C"], fit.preparation, variables, own["target_loss"])
            self.dbns_[name] = self._defining(self._directed(found, fit.scale))
            self.dbns_raw_[name] = network(own["C_raw"], fit.preparation, variables)
            objective, bound = own["certificate"].tolist()
            if bound > 0:
                certificates[name] = objective, bound
        self.certificate_ = PersonalCertificate.of(certificates) if certificates else None
