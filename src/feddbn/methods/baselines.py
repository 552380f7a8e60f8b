"""The paper's baselines: what sites can do without a federated method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.graphs.constraints import has_cycle
from feddbn.core.graphs.pruning import break_cycles, threshold
from feddbn.core.graphs.status import Status
from feddbn.data import SiteData
from feddbn.errors import ParameterError
from feddbn.federation.programs.local_fits import local_fit_of_state, local_fits_program
from feddbn.federation.protocol.task import Federation, Observer
from feddbn.methods.base import history_frame, network
from feddbn.methods.fdbnl import CONSENSUS_RULES, ConsensusEstimator
from feddbn.methods.parameters import Rule, number, whole
from feddbn.methods.scoring import score
from feddbn.model.dbn import DBN

__all__ = ["Average", "BestSite", "LocalOnly", "Vote"]


class _LocalFits(ConsensusEstimator):
    """One DYNOTEARS fit per site; subclasses say what becomes of them."""

    # What becomes of them is no program of rounds that could be run on earlier rows, so nothing can be "auto".
    rules: ClassVar[Mapping[str, Rule]] = {
        **CONSENSUS_RULES,
        "n_lags": whole(0),
        "lambda_w": number(0),
        "lambda_a": number(0),
    }
    is_selectable = False

    def _local_fits(
        self, federation: Federation, observer: Observer | None, answer: str
    ) -> tuple[FloatArray, int]:
        program = local_fits_program(self._settings(), self._variables, self._constraints(), answer)
        (total, contributors), seconds = self._run(program, federation, observer)
        self.n_rounds_ = len(seconds)
        self.status_ = Status.EXACT
        self.history_ = history_frame([])
        return total, len(contributors)

    def _site_networks(self, federation: Federation) -> dict[str, DBN]:
        """Read the sites' own networks; only possible where the sites live in this process."""
        networks = {}
        for name in federation.sites:
            state = federation.state_of(name)
            if state is None:
                raise ParameterError(
                    f"{type(self).__name__} shows the sites' own networks, which stay at the sites of this "
                    "federation; read them there, or fit in one process."
                )
            C, _, loss, preparation = local_fit_of_state(state)
            networks[name] = network(C, preparation, self._variables, loss)
        return networks

    def _stack(self, C: FloatArray) -> DBN:
        d = len(self._variables)
        return DBN(C[:d], C[d:].reshape(-1, d, d), self._variables)


class Average(_LocalFits):
    """Ave: the mean of the sites' penalised weights, thresholded [fdbnl Benchmark Methods].

    The graph may contain cycles, as in the paper; `has_cycles_` says whether it does.
    """

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        total, n_sites = self._local_fits(federation, observer, "weights")
        constraints, d = self._constraints(), len(self._variables)
        raw = total.reshape(-1, d) / n_sites
        C = threshold(raw, constraints.required, self.w_threshold, self.a_threshold)
        self.has_cycles_ = has_cycle(C[:d] != 0)
        if self.has_cycles_:
            self.warnings_.append(
                "the averaged graph has cycles, so it is not a network; the paper leaves them in."
            )
        self._set_network(self._stack(C), self._stack(raw))


class Vote(_LocalFits):
    """Vote: edges found by more than half of the sites; weakest majorities go first where cycles remain.

    Weights are the shares of sites that found the edge, in (0.5, 1].
    """

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        total, n_sites = self._local_fits(federation, observer, "votes")
        constraints, d = self._constraints(), len(self._variables)
        shares = total.reshape(-1, d) / n_sites
        C = np.where((shares > 0.5) | constraints.required, shares, 0.0)
        C[:d], dropped = break_cycles(C[:d], constraints.required[:d])
        self.dropped_edges_ = [(self._variables[i], self._variables[j], share) for i, j, share in dropped]
        self._set_network(self._stack(C), self._stack(shares))


class LocalOnly(_LocalFits):
    """Every site alone: `dbns_` holds one network per site, and nothing is shared."""

    dbns_: dict[str, DBN]

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        self._local_fits(federation, observer, "count")
        self.dbns_ = self._site_networks(federation)


class BestSite(_LocalFits):
    """Best: the site network closest to the truth. Needs the truth, so it is a yardstick, not a method.

    ``BestSite().fit(sites, truth=dbn)``; closest is the smallest SHD of W plus SHD of A.
    """

    best_site_: str

    def fit(self, data: Any, y: None = None, *, truth: DBN | None = None, **options: Any) -> Any:
        """Learn from `data`, choose with `truth`, and return self."""
        if truth is None:
            raise ParameterError(
                "BestSite needs truth=, the network the sites are compared with; no data can replace it."
            )
        self._truth = truth
        return super().fit(data, y, **options)

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        self._local_fits(federation, observer, "count")
        networks = self._site_networks(federation)

        def distance(name: str) -> float:
            scores = score(self._truth, networks[name])
            return float(scores["W"]["shd"] + scores["A"]["shd"])

        self.best_site_ = min(networks, key=distance)
        self._set_network(networks[self.best_site_], networks[self.best_site_])
