"""A method in one file: delayed effects by least squares, from one sum of moments."""

from dataclasses import dataclass

import numpy as np

from feddbn.analysis.studies import Method, register_method
from feddbn.core.penalised.path import Status
from feddbn.federation.sums.treatment import moments_program
from feddbn.methods.base import DBNEstimator
from feddbn.model.dbn import DBN
from feddbn.settings import MethodSettings, number, setting, takes, whole


@dataclass(frozen=True, repr=False)
class ToySettings(MethodSettings):
    """What a person may choose."""

    n_lags: int = setting(1, whole(1), "Number of lags.", kw_only=False)
    threshold: float = setting(0.1, number(0), "Smaller weights are no edges.")


class Toy(DBNEstimator[ToySettings]):
    """Least squares of every variable on the past of all."""

    @takes(ToySettings)
    def __init__(self) -> None: ...

    def _fit(self, federation, sites, observer):
        settings, names, d = self._settings, self._variables, len(self._variables)
        moments, seconds = self._run(moments_program(names, settings.n_lags), federation, observer)
        S = moments.scatter
        raw = np.linalg.solve(S[d:, d:], S[d:, :d])
        kept = np.where(np.abs(raw) >= settings.threshold, raw, 0.0)
        intercept = moments.mean[:d] - moments.mean[d:] @ kept
        variances = np.diag(S[:d, :d] - S[:d, d:] @ raw) / moments.n

        def network(C):
            return DBN(np.zeros((d, d)), C.reshape(-1, d, d), names, intercept, variances)

        self._set_network(network(kept), network(raw))
        self.status_, self.n_rounds_, self.n_samples_ = Status.EXACT, len(seconds), round(moments.n)


register_method(
    Method(
        name="toy",
        cls="Toy",
        module=__name__,
        label="Toy",
        summary="delayed effects by least squares",
        assumes="linear effects, all of them delayed",
        reveals="its part of one sum of second moments",
        rounds="1",
        gives="one network without contemporaneous edges",
        citation="Gauss 1809",
        in_studies=True,
        plain_messages=("Its second moments.", "A toy hides nothing: a site sends its second moments."),
    )
)
