"""The paper's baselines: what sites can do without a federated method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.graphs.constraints import has_cycle
from feddbn.core.graphs.pruning import break_cycles, threshold
from feddbn.core.graphs.status import Status
from feddbn.data import SiteData
from feddbn.errors import DataError, ParameterError
from feddbn.federation.programs.local_fits import LocalFits, local_fit_of_state, local_fits_program
from feddbn.federation.programs.treatment import AskedMoments
from feddbn.federation.protocol.task import Federation, Observer, ServerProgram, asked_of
from feddbn.findings import Finding
from feddbn.methods.base import history_frame, network
from feddbn.methods.fdbnl import CONSENSUS_RULES, ConsensusEstimator
from feddbn.methods.scoring import score
from feddbn.methods.treated import kind_findings, of_site, treatment_findings, treatment_summary
from feddbn.model.dbn import DBN
from feddbn.settings import Rule, number, whole, word

__all__ = ["Average", "BestSite", "LocalOnly", "Vote"]


_MOST_SAID = 24
"""So many remarks on single sites are said one by one."""


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
        """Sum what sites fit, after sums over all of them have decided what is done to the rows."""
        fits, seconds = self._run(self._program_of(len(federation.sites), answer), federation, observer)
        self._set_rounds(len(seconds))
        self._say_moments(fits.asked)
        return fits.total, fits.n_sites

    def _program_of(self, n_sites: int, answer: str) -> ServerProgram[LocalFits]:
        return local_fits_program(self._settings(), self._variables, self._constraints(), answer, n_sites)

    def _set_rounds(self, n_rounds: int) -> None:
        self.n_rounds_ = n_rounds
        self.status_ = Status.EXACT
        self.history_ = history_frame([])

    def _stack(self, C: FloatArray) -> DBN:
        d = len(self._variables)
        return DBN(C[:d], C[d:].reshape(-1, d, d), self._variables)


class _Alone(_LocalFits):
    """Fits of sites that know of no other: each decides by its own numbers what is done to its rows."""

    rules: ClassVar[Mapping[str, Rule]] = {
        **_LocalFits.rules,
        # A site alone has no scale but its own.
        "gains": word("auto", "none"),
    }
    treatments_: dict[str, dict[str, Any] | None]

    def _alone(self, federation: Federation, observer: Observer | None) -> dict[str, DBN]:
        """Fit every site as if there were no other, and read the networks; the sites must live in this process."""
        for name in federation.sites:
            if federation.state_of(name) is None:
                raise ParameterError(
                    f"{type(self).__name__} shows the sites' own networks, which stay at the sites of this "
                    "federation; read them there, or fit in one process."
                )
        networks: dict[str, DBN] = {}
        self.treatments_ = {}
        said: list[Finding] = []
        for name in federation.sites:
            try:
                fits, _ = self._run(asked_of(self._program_of(1, "count"), (name,)), federation, observer)
            except DataError as error:
                raise DataError(f"site {name!r}: {error}") from error
            networks[name] = self._network_at(federation, name, fits.asked)
            self.treatments_[name] = None
            if fits.asked is not None:
                self.treatments_[name] = treatment_summary(fits.asked, self._variables)
                notes = treatment_findings(fits.asked, self._variables)
                notes += kind_findings(fits.asked, self._variables)
                said += [of_site(note, name) for note in notes]
        self._tell(*said[:_MOST_SAID])
        if len(said) > _MOST_SAID:
            more = len(said) - _MOST_SAID
            self._tell(f"{more} more remarks on what was done to the rows of sites: see treatments_.")
        # What was done to the rows is a site's own business; where there is one site only, it is the fit's.
        self.treatment_ = self.treatments_[federation.sites[0]] if len(federation.sites) == 1 else None
        self._set_rounds(1)
        return networks

    def _give_own_networks(self, federation: Federation, sites: Mapping[str, SiteData] | None) -> None:
        """Every site has one already."""

    def _network_at(self, federation: Federation, name: str, asked: AskedMoments | None) -> DBN:
        state = federation.state_of(name)
        assert state is not None
        C, _, loss, preparation = local_fit_of_state(state)
        if asked is not None and asked.center == "recording":
            # Recordings lost their means; levels are those of the average recording.
            preparation = replace(preparation, center=asked.moments.mean)
        return network(C, preparation, self._variables, loss)


class Average(_LocalFits):
    """Ave: the mean of the sites' penalised weights, thresholded [fdbnl Benchmark Methods].

    Takes the arguments of `FDBNL`; what is done to the rows first is decided from sums over all sites, as there.
    The graph may contain cycles, as in the paper; `has_cycles_` says whether it does.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> model = feddbn.Average().fit(data.sites)
    >>> model.dbn_.edges()[["source", "target", "lag"]].values.tolist()
    [['x2', 'x0', 0], ['x2', 'x1', 0], ['x0', 'x0', 1], ['x0', 'x2', 1]]
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
            self._tell("the averaged graph has cycles, so it is not a network; the paper leaves them in.")
        self._set_network(self._stack(C), self._stack(raw))


class Vote(_LocalFits):
    """Vote: edges found by more than half of the sites; weakest majorities go first where cycles remain.

    Weights are the shares of sites that found the edge, in (0.5, 1]. Takes the arguments of `FDBNL`; what is done to the rows
    first is decided from sums over all sites, as there.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> model = feddbn.Vote().fit(data.sites)
    >>> model.dbn_.edges()[["source", "target", "lag"]].values.tolist()
    [['x1', 'x0', 0], ['x2', 'x0', 0], ['x2', 'x1', 0], ['x0', 'x0', 1], ['x0', 'x2', 1]]
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


class LocalOnly(_Alone):
    """Every site alone: `dbns_` holds one network per site, and nothing is shared.

    Takes the arguments of `FDBNL`. Every site decides by its own numbers what is done to its rows (`treatments_`); nobody is
    compared, so `gains` and `on_disagreement` change nothing.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> model = feddbn.LocalOnly().fit(data.sites)
    >>> sorted(model.dbns_)
    ['site-0', 'site-1']
    """

    dbns_: dict[str, DBN]

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        self.dbns_ = self._alone(federation, observer)


class BestSite(_Alone):
    """Best: the site network closest to the truth. Needs the truth, so it is a yardstick, not a method.

    ``BestSite().fit(sites, truth=dbn)``; closest is the smallest SHD of W plus SHD of A. Sites are
    learned as by `LocalOnly`.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> model = feddbn.BestSite().fit(data.sites, truth=data.truth)
    >>> model.dbn_.variables
    ('x0', 'x1', 'x2')
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
        networks = self._alone(federation, observer)

        def distance(name: str) -> float:
            scores = score(self._truth, networks[name])
            return float(scores["W"]["shd"] + scores["A"]["shd"])

        self.best_site_ = min(networks, key=distance)
        self.treatment_ = self.treatments_[self.best_site_]
        self._set_network(networks[self.best_site_], networks[self.best_site_])
