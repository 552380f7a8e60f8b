"""A method in one file: delayed effects by least squares, from one sum of moments."""

import numpy as np

from feddbn.core.graphs.status import Status
from feddbn.federation.programs.treatment import moments_program
from feddbn.methods.base import DBNEstimator
from feddbn.methods.registry import Method, register_method
from feddbn.model.dbn import DBN
from feddbn.settings import a_federation, number, whole


class Toy(DBNEstimator):
    """Least squares of every variable on the past of all; smaller weights than `threshold` are no edges."""

    rules = {"n_lags": whole(1), "threshold": number(0), "federation": a_federation()}  # noqa: RUF012

    def __init__(self, n_lags=1, *, threshold=0.1, federation=None):
        self.n_lags = n_lags
        self.threshold = threshold
        self.federation = federation

    def _fit(self, federation, sites, observer):
        names, d = self._variables, len(self._variables)
        moments, seconds = self._run(moments_program(names, self.n_lags), federation, observer)
        S = moments.scatter
        raw = np.linalg.solve(S[d:, d:], S[d:, :d])
        kept = np.where(np.abs(raw) >= self.threshold, raw, 0.0)
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
        gives="one network without edges within a moment",
        citation="Gauss 1809",
        tasks=("moments",),
        in_studies=True,
        plain_messages=("Its second moments.", "A toy hides nothing: a site sends its second moments."),
    )
)
