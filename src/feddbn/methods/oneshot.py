"""The recommended method: one exact sum of second moments, then a search over orders at the server."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.constraints import Edge
from feddbn.core.lagged import FloatArray
from feddbn.core.one_round import LearnOptions, refit
from feddbn.core.order_search import Criterion
from feddbn.core.status import Status
from feddbn.data import SiteData
from feddbn.errors import ParameterError, UnitsWarning
from feddbn.federation.oneshot import OneShotOptions, OneShotOutcome, oneshot_program
from feddbn.federation.task import Federation, Observer
from feddbn.methods.base import DBNEstimator
from feddbn.model.dbn import DBN

__all__ = ["OneShotDBN"]

_DEFAULT_PENALTY = {"bic": (2.0, 0.0), "ebic": (1.0, 0.5)}


class OneShotDBN(DBNEstimator):
    """A dynamic Bayesian network from one sum of lagged second moments, exactly as from pooled data.

    minimise over networks    n d log(sum_j RSS_j / (n d)) + penalty    (equal noise variances)
                              sum_j n log(RSS_j / n) + penalty          (free noise variances)

    Parameters
    ----------
    n_lags
        Number of lags, or "auto": the number up to `max_lags` with the lowest score, from the same sum.
    max_lags
        Largest number considered by ``n_lags="auto"``.
    search
        "order": search over orders of the variables.
    noise_variance
        "equal" reads the order off the scales and so depends on the units; "free" does not depend on them
        but leaves
        some directions open; "auto" decides by BIC (`noise_variance_`, `reason_`).
    criterion
        "bic": ``penalty log(n)`` per edge. "ebic": ``penalty log(n)`` per edge plus the log of the number of
        networks of that size, which adapts to the density.
    penalty
        Multiplier of log(n); by default 2 for "bic" and 1 for "ebic". With 1, BIC adds wrong edges, because
        it does not charge for choosing among many candidates.
    average
        Average over orders and parent sets and take the edges with probability above one half, instead of
        the single best network. "auto": below 200 rows, where that makes fewer mistakes.
    n_restarts
        How often the search shakes its best order and tries again.
    use_nongaussian
        Direct what second moments leave open (free variances only) by sums of nonlinear functions of the
        residuals. "auto": if they are clearly not Gaussian; that is tested by one more sum, and only if
        something is open.
    forbidden_edges, required_edges
        ``(from, to, lag)``; names or positions; ``"*"`` stands for every variable.
    center
        "none": one intercept per variable. "recording": every recording has its own mean.
    scale
        "none", or "federated" to search on variables scaled to unit variance. Weights are always in the
        original
        units.
    random_state
        Seed of restarts and averaging.
    federation
        Where the sums are carried out; by default in this process.

    Attributes
    ----------
    W_, A_
        (d, d) and (p, d, d) least-squares weights of the network, [from, to].
    W_raw_, A_raw_
        The same: nothing is shrunk or thresholded here.
    dbn_
        The network with intercepts and noise variances.
    order_
        The variables, causes first.
    n_lags_, lag_scores_
        Number of lags, and the score of each number tried (None unless "auto").
    noise_variance_, reason_
        "equal" or "free", and why.
    orientation_
        DataFrame source, target, score_difference, oriented: how much worse the best network with that edge's
        ends exchanged scores. 0 means that the data cannot tell.
    edge_probabilities_
        DataFrame source, target, lag, weight, probability (only where orders were averaged, else None).
    units_
        Evidence on the units (equal variances only, else None); a `UnitsWarning` is given if edges change.
    nongaussian_
        What the noise decided, or None if it was not asked.
    score_
        Criterion of the network.
    n_rounds_
        Number of sums.
    n_samples_
        Usable rows over all sites.
    feature_names_in_, n_features_in_
        Variables.
    """

    def __init__(
        self,
        n_lags: int | str = 1,
        *,
        max_lags: int = 3,
        search: str = "order",
        noise_variance: str = "auto",
        criterion: str = "bic",
        penalty: float | None = None,
        average: bool | str = "auto",
        n_restarts: int = 5,
        use_nongaussian: bool | str = "auto",
        forbidden_edges: Sequence[Edge] | None = None,
        required_edges: Sequence[Edge] | None = None,
        center: str = "none",
        scale: str = "none",
        random_state: int | None = 0,
        federation: Federation | None = None,
    ) -> None:
        self.n_lags = n_lags  # type: ignore[assignment]
        self.max_lags = max_lags
        self.search = search
        self.noise_variance = noise_variance
        self.criterion = criterion
        self.penalty = penalty
        self.average = average
        self.n_restarts = n_restarts
        self.use_nongaussian = use_nongaussian
        self.forbidden_edges = forbidden_edges
        self.required_edges = required_edges
        self.center = center
        self.scale = scale
        self.random_state = random_state
        self.federation = federation

    @property
    def _largest_lag(self) -> int:
        return self._options().n_lags

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        rng = np.random.default_rng(self.random_state)
        program = oneshot_program(self._variables, self._constraints(), self._options(), rng)
        outcome, _ = self._run(program, federation, observer)
        self._report(outcome)

    def _options(self) -> OneShotOptions:
        _require_choice("search", self.search, ("order",))
        _require_choice("noise_variance", self.noise_variance, ("auto", "equal", "free"))
        _require_choice("criterion", self.criterion, tuple(_DEFAULT_PENALTY))
        _require_choice("center", self.center, ("none", "recording"))
        _require_choice("scale", self.scale, ("none", "federated"))
        for name in ("average", "use_nongaussian"):
            _require_choice(name, getattr(self, name), (True, False, "auto"))
        is_auto = isinstance(self.n_lags, str) and self.n_lags == "auto"
        n_lags = _whole("max_lags", self.max_lags) if is_auto else _whole("n_lags", self.n_lags)
        c, gamma = _DEFAULT_PENALTY[self.criterion]
        if self.penalty is not None:
            if (
                isinstance(self.penalty, bool)
                or not isinstance(self.penalty, (int, float))
                or self.penalty <= 0
            ):
                raise ParameterError(f"penalty must be a positive number or None, got {self.penalty!r}.")
            c = float(self.penalty)
        # The choices were checked above, which the type checker cannot see.
        noise_variance: Any = self.noise_variance
        average: Any = self.average
        center: Any = self.center
        scale: Any = self.scale
        use_nongaussian: Any = self.use_nongaussian
        n_restarts = _whole("n_restarts", self.n_restarts)
        learn = LearnOptions(noise_variance, Criterion(c, gamma), n_restarts, average)
        return OneShotOptions(n_lags, is_auto, center, scale, use_nongaussian, learn)

    def _report(self, outcome: OneShotOutcome) -> None:
        learned, names = outcome.learned, self._variables
        d = len(names)
        C, intercept, variances = refit(outcome.moments, learned.support)
        self.n_lags_ = outcome.n_lags
        self.lag_scores_ = None if outcome.lag_scores is None else outcome.lag_scores.tolist()
        if learned.noise.kind == "equal" and self.scale == "none":
            variances = np.full(d, float(variances.mean()))
        dbn = DBN(C[:d], C[d:].reshape(outcome.n_lags, d, d), names, intercept, variances)
        self._set_network(dbn, dbn)
        self.status_ = Status.EXACT
        self.order_ = [names[j] for j in learned.order]
        self.noise_variance_, self.reason_ = learned.noise.kind, learned.noise.reason
        self.orientation_ = pd.DataFrame(
            [(names[e.source], names[e.target], e.score_difference, e.oriented) for e in learned.orientation],
            columns=["source", "target", "score_difference", "oriented"],
        )
        self.edge_probabilities_ = _edge_table(learned.posterior.probability, C, names)
        self.units_, self.nongaussian_ = learned.units, outcome.nongaussian
        self.score_ = learned.score
        self.n_rounds_ = outcome.n_sums
        self.n_samples_ = int(outcome.moments.n)
        units = learned.units
        if units is not None and units.n_changed + units.n_open and self.scale == "none":
            sentence = (
                f"this network rests on equal noise variances in the units given: {units.n_changed} entries "
                f"change when the variables are scaled to unit variance, and {units.n_open} other edges have "
                f"a direction only because of the units (varsortability {units.varsortability:.2f}); "
                "use noise_variance='free' if the units are arbitrary."
            )
            self.warnings_.append(sentence)
            warnings.warn(sentence, UnitsWarning, stacklevel=4)


def _edge_table(probability: FloatArray, C: FloatArray, names: tuple[str, ...]) -> pd.DataFrame:
    d = len(names)
    rows = [
        (names[m % d], names[j], m // d, C[m, j], probability[m, j])
        for m in range(len(C))
        for j in range(d)
        if not (m < d and m == j)
    ]
    table = pd.DataFrame(rows, columns=["source", "target", "lag", "weight", "probability"])
    return table.sort_values("probability", ascending=False, kind="stable", ignore_index=True)


def _require_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        raise ParameterError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise ParameterError(f"{name}={value!r} must be a whole number of at least 0.")
    return int(value)
