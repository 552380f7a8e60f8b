"""Several modules: programs that cannot use missing cells answer for kept rows exactly what they do for dropped ones."""

from __future__ import annotations

import numpy as np
import pytest

from feddbn.core.designs.recordings import SiteData, held_out_part, training_part
from feddbn.data import read_sites
from feddbn.federation.programs.held_out import HeldOutQuestion
from feddbn.federation.programs.residual_checks import ResidualsQuestion
from feddbn.federation.protocol.site import Here, site_task
from feddbn.federation.protocol.task import Question
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.statistics import make_fold

D, P = 3, 1
NAMES = ("x0", "x1", "x2")


def _data(missing: str) -> SiteData:
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(n, D)) for n in (80, 50)]
    for part in values:
        part[rng.random(part.shape) < 0.05] = np.nan
        part[30:32] = np.nan
    return read_sites({"A": values}, missing=missing)["A"]


def _answer(question: Question, data: SiteData) -> np.ndarray:
    return site_task(question.name).answer(Here("A", data, {}), question)[1]


QUESTIONS: list[Question] = [
    ResidualsQuestion(
        n_lags=P, variables=NAMES, center="recording", coefficients=np.eye(2 * D)[:, :D], offset=np.zeros(D)
    ),
    GramQuestion(
        n_lags=P,
        variables=NAMES,
        center="recording",
        origin=np.zeros(2 * D),
    ),
]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_kept_rows_are_left_out_where_they_cannot_be_used(question: Question) -> None:
    kept, dropped = _answer(question, _data("keep")), _answer(question, _data("drop"))
    assert np.all(np.isfinite(kept))
    np.testing.assert_allclose(kept, dropped, rtol=1e-12)


def test_held_out_rows_are_never_trained_on_and_are_complete() -> None:
    fold = make_fold(0, 2, 0.4)
    for recording in _data("keep").recordings():
        train = np.concatenate([b.values for b in training_part(recording, fold).blocks()])
        test = np.concatenate([b.values for b in held_out_part(recording, fold, 0).blocks()])
        n = sum(len(b.values) for b in recording.blocks())
        assert len(train) == n - round(0.4 * n)
        seen = train[~np.isnan(train)]
        assert not np.isin(test[~np.isnan(test)], seen).any()
    question = HeldOutQuestion(
        n_lags=P,
        variables=NAMES,
        fold=fold,
        candidate=0,
        n_candidates=1,
        origin=np.zeros(2 * D),
        scale=np.ones(2 * D),
        C=np.zeros((2 * D, D)),
    )
    assert np.all(np.isfinite(_answer(question, _data("keep"))))
