"""The paper's baselines: DYNOTEARS on the pooled rows, which no federation allows, and at every site alone.

One class, `Baseline`, with three presets by the names of the paper. What becomes of the sites' own networks is the preset's
`becomes`: their mean, or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.constraints import has_cycle, threshold
from feddbn.core.penalised.path import Status
from feddbn.data import SiteData
from feddbn.errors import DataError, ParameterError
from feddbn.federation.programs.fdbnl import PenalisedSettings, PooledSettings
from feddbn.federation.programs.local_fits import LocalFits, local_fit_of_state, local_fits_program
from feddbn.federation.protocol.task import Federation, Observer, ServerProgram, asked_of, run_program
from feddbn.federation.sums.treatment import AskedMoments
from feddbn.findings import Finding
from feddbn.methods.base import history_frame, network
from feddbn.methods.fdbnl import P, PenalisedEstimator, PooledEstimator
from feddbn.model.dbn import DBN
from feddbn.results.remarks import kind_findings, of_site, treatment_findings, treatment_summary
from feddbn.settings import Rule, number, setting, takes, whole, word

__all__ = ["Average", "Dynotears", "LocalOnly"]

_MOST_SAID = 24
"""So many remarks on single sites are said one by one."""


@dataclass(frozen=True, repr=False)
class LocalSettings(PenalisedSettings):
    """What a person may choose of fits of single sites: nothing is chosen on held-out rows, as no network is common."""

    n_lags: int = setting(1, whole(0), "Number of lags p; 0 learns a static network.", kw_only=False)
    lambda_w: float = setting(0.05, number(0), "L1 penalty of contemporaneous edges.", kw_only=False)
    lambda_a: float = setting(0.05, number(0), "L1 penalty of lagged edges.", kw_only=False)


@dataclass(frozen=True, repr=False)
class AloneSettings(LocalSettings):
    """The same of sites that know of no other: each has no scale but its own."""

    may_be: ClassVar[Mapping[str, Rule]] = {"gains": word("auto", "none")}


class Baseline(PenalisedEstimator[P]):
    """A fit of DYNOTEARS at one of the places where rows are.

    `becomes` is what becomes of the fits: "pooled" (there is one, of all rows), "mean" of the sites' own networks, or "each"
    (they stay apart).
    """

    becomes: ClassVar[Literal["pooled", "mean", "each"]]
    dbns_: dict[str, DBN]
    treatments_: dict[str, dict[str, Any] | None]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.is_selectable = cls.becomes == "pooled"

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        if self.becomes == "pooled":
            super()._fit(federation, sites, observer)
        elif self.becomes == "mean":
            self._set_mean(self._summed(federation, observer))
        else:
            networks = self._alone(federation, observer)
            self.dbns_ = {name: self._defining(one) for name, one in networks.items()}

    def _local_program(self, n_sites: int, answer: str) -> ServerProgram[LocalFits]:
        return local_fits_program(self._settings, self._variables, self._constraints(), answer, n_sites)

    def _summed(self, federation: Federation, observer: Observer | None) -> LocalFits:
        """Sum what sites fit, after sums over all of them have decided what is done to the rows."""
        program = self._local_program(len(federation.sites), "weights")
        fits, _ = self._run(program, federation, observer)
        self.status_, self.history_ = Status.EXACT, history_frame([])
        self._say_moments(fits.asked)
        return fits

    def _set_mean(self, fits: LocalFits) -> None:
        constraints, settings, d = self._constraints(), self._settings, len(self._variables)
        q = len(constraints.allowed)
        weights, level, noise = np.split(fits.total / fits.n_sites, [q * d, q * d + q])
        raw = weights.reshape(q, d)
        C = threshold(raw, constraints.required, settings.w_threshold, settings.a_threshold)
        self.has_cycles_ = has_cycle(C[:d] != 0)
        if self.has_cycles_:
            self._tell(Finding("mean-has-cycles", "warning"))
        own = self.center_ == "recording"
        if own and fits.asked is not None:
            level = fits.asked.moments.mean
        # Recordings that lost their means without telling them leave no level.
        mean = None if own and not level.any() else level
        self._set_network(*(self._stacked(one, mean, noise) for one in (C, raw)))

    def _stacked(self, C: FloatArray, mean: FloatArray | None = None, noise: FloatArray | None = None) -> DBN:
        d = len(self._variables)
        level = None if mean is None else mean[:d] - mean @ C
        return DBN(C[:d], C[d:].reshape(-1, d, d), self._variables, level, noise)

    def _alone(self, federation: Federation, observer: Observer | None) -> dict[str, DBN]:
        """Fit every site as if there were no other, and read the networks; the sites must live in this process."""
        if any(federation.state_of(name) is None for name in federation.sites):
            raise ParameterError(
                f"{type(self).__name__} shows the sites' own networks, which stay at the sites of this "
                "federation; read them there, or fit in one process.",
                code="networks-stay-at-sites",
            )
        networks: dict[str, DBN] = {}
        self.treatments_ = {}
        told: list[Finding] = []
        for name in federation.sites:
            try:
                program = asked_of(self._local_program(1, "count"), (name,))
                # No sum over sites: every site answers itself.
                fits = run_program(program, federation, observer)
            except DataError as error:
                raise DataError(f"site {name!r}: {error}", code=error.code) from error
            networks[name] = self._network_at(federation, name, fits.asked)
            self.treatments_[name] = None
            if fits.asked is not None:
                self.treatments_[name] = treatment_summary(fits.asked, self._variables)
                found = treatment_findings(fits.asked, self._variables)
                found += kind_findings(fits.asked, self._variables)
                told += [of_site(one, name) for one in found]
        self._tell(*told[:_MOST_SAID])
        if len(told) > _MOST_SAID:
            self._tell(Finding("more-of-sites", "note", {"n": len(told) - _MOST_SAID}))
        # What was done to the rows is a site's own business; where there is one site only, it is the fit's.
        self.treatment_ = self.treatments_[federation.sites[0]] if len(federation.sites) == 1 else None
        self.status_, self.history_ = Status.EXACT, history_frame([])
        return networks

    def _network_at(self, federation: Federation, name: str, asked: AskedMoments | None) -> DBN:
        state = federation.state_of(name)
        assert state is not None
        C, _, loss, preparation = local_fit_of_state(state)
        if asked is not None and asked.center == "recording":
            # Recordings lost their means; levels are those of the average recording.
            preparation = replace(preparation, center=asked.moments.mean)
        return network(C, preparation, self._variables, loss)

    def _give_own_networks(self, federation: Federation, sites: Mapping[str, SiteData] | None) -> None:
        if self.becomes != "each":
            super()._give_own_networks(federation, sites)


class Dynotears(Baseline[PooledSettings], PooledEstimator[PooledSettings]):
    """DYNOTEARS (Pamfil et al. 2020) on the pooled rows of all sites: the paper's Alldata.

        min_{W, A}  1/(2n) |X - X W - sum_l X_{-l} A_l|^2 + lambda_w |W|_1 + lambda_a |A|_1   subject to   W acyclic

    This is `FDBNL` of the rows of all sites together, and a maintained DYNOTEARS for whoever has one data set. A lag never
    crosses from one recording to another. As it needs the data only through their lagged Gram matrix, cost does not grow
    with rows after one pass.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> model = feddbn.Dynotears().fit(data.sites)
    >>> model.dbn_.edges()[["source", "target", "lag"]].values.tolist()
    [['x1', 'x0', 0], ['x2', 'x0', 0], ['x2', 'x1', 0], ['x0', 'x0', 1], ['x0', 'x2', 1]]
    """

    becomes = "pooled"

    @takes(PooledSettings)
    def __init__(self) -> None: ...


class Average(Baseline[LocalSettings]):
    """Ave: the mean of the sites' penalised weights, thresholded [fdbnl Benchmark Methods].

    The intercept follows from the mean of the sites' means, noise variances are the mean of those that the sites' weights
    leave. What is done to the rows first is decided from sums over all sites, as in `FDBNL`. The graph may contain cycles, as
    in the paper; `has_cycles_` says whether it does.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> model = feddbn.Average().fit(data.sites)
    >>> model.dbn_.edges()[["source", "target", "lag"]].values.tolist()
    [['x2', 'x0', 0], ['x2', 'x1', 0], ['x0', 'x0', 1], ['x0', 'x2', 1]]
    """

    becomes = "mean"

    @takes(LocalSettings)
    def __init__(self) -> None: ...


class LocalOnly(Baseline[AloneSettings]):
    """Every site alone: `dbns_` holds one network per site, and nothing is shared.

    Every site decides by its own numbers what is done to its rows (`treatments_`); nobody is compared, so `gains` and
    `on_disagreement` change nothing.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> model = feddbn.LocalOnly().fit(data.sites)
    >>> sorted(model.dbns_)
    ['site-0', 'site-1']
    """

    becomes = "each"

    @takes(AloneSettings)
    def __init__(self) -> None: ...
