"""PFDBNL: a personal network for every site, which borrows from the others as much as mu says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from feddbn.core.constraints import Edge
from feddbn.core.lagged import FloatArray
from feddbn.data import SiteData
from feddbn.federation.personal import PersonalFit, PersonalSettings, personal_arrays, personal_program
from feddbn.federation.statistics import Preparation
from feddbn.federation.task import Federation, Observer, ServerProgram
from feddbn.methods.base import DBNEstimator, history_frame, network
from feddbn.methods.selection import resolve_auto
from feddbn.model.dbn import DBN
from feddbn.runtime.in_process import InProcessFederation

__all__ = ["PFDBNL"]


class PFDBNL(DBNEstimator):
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
    schedule
        "adaptive", or "paper": the published penalties and the published alternation.
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
    forbidden_edges, required_edges, center, scale, acyclicity, federation
        As in `FDBNL`.
    random_state
        Seed of the draws of participants.

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
    """

    def __init__(
        self,
        mu: float | str = 0.5,
        n_lags: int | str = 1,
        lambda_w: float | str = 0.05,
        lambda_a: float | str = 0.05,
        *,
        participation: float | int = 1.0,
        schedule: str = "adaptive",
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
        scale: str = "none",
        acyclicity: str = "expm",
        random_state: int | None = 0,
        federation: Federation | None = None,
    ) -> None:
        self.mu = mu
        self.n_lags = n_lags
        self.lambda_w = lambda_w
        self.lambda_a = lambda_a
        self.participation = participation
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
        self.scale = scale
        self.acyclicity = acyclicity
        self.random_state = random_state
        self.federation = federation

    def _settings(self) -> PersonalSettings:
        names = PersonalSettings.__dataclass_fields__
        return PersonalSettings(**{name: self._value(name) for name in names})

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        resolve_auto(self, federation, observer)
        fit, seconds = self._run(self._program(federation, 0), federation, observer)
        self._set_fit(fit, seconds)
        self._collect(federation, fit)

    def _program(self, federation: Federation, run_number: int) -> ServerProgram[PersonalFit]:
        return personal_program(
            self._settings(),
            self._variables,
            self._constraints(),
            tuple(federation.sites),
            np.random.default_rng(self.random_state),
            run_number=run_number,
        )

    def _candidate(
        self, federation: Federation, run_number: int
    ) -> ServerProgram[tuple[FloatArray | None, Preparation]]:
        fit = yield from self._program(federation, run_number)
        return None, fit.preparation

    def _set_fit(self, fit: PersonalFit, seconds: list[float]) -> None:
        run, variables = fit.run, self._variables
        assert run.status is not None
        shared = network(fit.shared, fit.preparation, variables, fit.target_loss)
        self._set_network(shared, network(run.C, fit.preparation, variables))
        self.objective_ = fit.objective
        self.n_rounds_ = run.round
        self.status_ = run.status
        self.history_ = history_frame(run.history, seconds)
        self.center_ = fit.preparation.center_rule
        self.never_joined_ = fit.never_joined
        if fit.never_joined:
            names = ", ".join(fit.never_joined[:5])
            self.warnings_.append(
                f"{len(fit.never_joined)} sites never took part and got the shared network: {names}."
            )
        if not run.status.is_converged:
            self.warnings_.append(f"the fit {run.status.message}.")

    def _collect(self, federation: Federation, fit: PersonalFit) -> None:
        """Read the personal networks of simulated sites; a real federation has no way to offer them."""
        self.dbns_: dict[str, DBN] = {}
        self.dbns_raw_: dict[str, DBN] = {}
        if not isinstance(federation, InProcessFederation):
            return
        for name in federation.sites:
            site = federation.site(name)
            own = personal_arrays(site.state)
            preparation: Preparation = fit.preparation
            names = tuple(site.data.variables)
            self.dbns_[name] = network(own["C"], preparation, names, own["target_loss"])
            self.dbns_raw_[name] = network(own["C_raw"], preparation, names)
