"""Selection by held-out loss."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn import FDBNL, PFDBNL, Dynotears, Prepare, select, simulate
from feddbn.core.designs.recordings import Block, held_out_part, training_part
from feddbn.data import Recording
from feddbn.federation.sums.statistics import make_fold


@pytest.fixture(scope="module")
def fed() -> feddbn.SimulatedFederation:
    return simulate(d=4, n_sites=3, n_samples=240, mean_degree=2, heterogeneity=0.2, random_state=5)


def _values(recording: object) -> np.ndarray:
    return np.concatenate([block.values[:, 0] for block in recording.blocks()])  # type: ignore[attr-defined]


def test_folds_train_on_the_past_and_test_on_the_block_that_follows() -> None:
    x = np.arange(20.0)[:, None]
    recording = Recording("r", (Block(x[:7]), Block(x[7:], starts_segment=False)))
    first, second = make_fold(0, 2, 0.4), make_fold(1, 2, 0.4)
    assert np.array_equal(_values(training_part(recording, first)), np.arange(12.0))
    assert np.array_equal(_values(held_out_part(recording, first, 1)), np.arange(11.0, 16.0))
    assert np.array_equal(_values(training_part(recording, second)), np.arange(16.0))
    assert np.array_equal(_values(held_out_part(recording, second, 2)), np.arange(14.0, 20.0))
    assert [block.starts_segment for block in training_part(recording, first).blocks()] == [True, False]


def test_held_out_loss_equals_the_loss_of_a_fit_to_the_earlier_rows() -> None:
    fed = simulate(d=3, n_sites=1, n_samples=99, mean_degree=1, random_state=0)
    (frame,) = fed.sites["site-0"]
    result = select(
        Dynotears(prepare=Prepare(center="none")),
        fed.sites,
        {"lambda_w": [0.1, 0.01]},
        n_blocks=1,
        share=0.25,
    )
    for value, loss in zip([0.1, 0.01], result.table["loss"], strict=True):
        m = Dynotears(lambda_w=value, prepare=Prepare(center="none")).fit({"a": frame.iloc[:75]})
        x = frame.to_numpy()
        residual = x[75:] - m.dbn_.intercept - x[75:] @ m.W_ - x[74:-1] @ m.A_[0]
        assert loss == pytest.approx(0.5 * np.sum(residual**2) / 25)


@pytest.mark.slow
def test_auto_mu_tells_shared_from_independent_sites() -> None:
    together = simulate(d=5, n_sites=4, n_samples=160, mean_degree=3, random_state=1)
    apart = simulate(
        d=5, n_sites=4, n_samples=160, mean_degree=3, heterogeneity="independent", random_state=1
    )
    mu = [PFDBNL(mu="auto").fit(fed.sites).selected_["mu"] for fed in (together, apart)]
    assert mu[0] > mu[1]


def test_auto_penalty_and_lags(fed: feddbn.SimulatedFederation) -> None:
    m = FDBNL(lambda_w="auto", lambda_a="auto").fit(fed.sites)
    assert m.selected_["lambda_w"] == m.selected_["lambda_a"]
    assert m.selection_["chosen"].sum() == 2
    again = FDBNL(lambda_w=m.selected_["lambda_w"], lambda_a=m.selected_["lambda_a"]).fit(fed.sites)
    assert np.array_equal(m.W_, again.W_)
    two_lags = simulate(
        d=3, n_lags=2, n_sites=2, n_samples=800, mean_degree=1, lag_degree=1.5, decay=1.0, random_state=0
    )
    lags = Dynotears(n_lags="auto").fit(two_lags.sites)
    assert lags.selected_["n_lags"] == 2
    assert lags.A_.shape == (2, 3, 3)


def test_paired_standard_errors_are_those_of_site_totals(fed: feddbn.SimulatedFederation) -> None:
    table = select(FDBNL(), fed.sites, {"lambda_w": [0.2, 0.05]}).table
    assert (table["standard_error"] == 0).sum() == 1
    assert table["chosen"].sum() == 1
    assert table["standard_error"].max() > 0


@pytest.mark.slow
def test_the_order_in_which_candidates_are_given_does_not_matter(fed: feddbn.SimulatedFederation) -> None:
    tables = [select(PFDBNL(), fed.sites, {"mu": mu}, n_blocks=1).table for mu in ([2.0, 0.1], [0.1, 2.0])]
    pd.testing.assert_frame_equal(*tables)
    assert tables[0]["mu"].tolist() == [0.1, 2.0]


def test_sites_borrow_only_if_it_clearly_pays(fed: feddbn.SimulatedFederation) -> None:
    selection = select(PFDBNL(), fed.sites, {"mu": [0.03, 0.25, 2.0]}, n_blocks=1)
    table = selection.table
    good = table[table["loss"] <= table["loss"].min() + table["standard_error"]]
    assert selection.chosen["mu"] == good["mu"].min()


@pytest.mark.slow
@pytest.mark.parametrize("corruption", ["offsets", "cycle", {"missing": 0.3}])
def test_what_is_wrong_with_rows_does_not_choose_the_lags(corruption: object) -> None:
    # Before, rows with an empty cell among their lags were not judged, so more lags had fewer rows and less loss; and
    # means of recordings that had been taken off were held against every candidate.
    clean, corrupt = (
        select(
            Dynotears(),
            simulate(d=5, n_sites=5, n_samples=1000, random_state=3, corruptions=what).sites,  # type: ignore[arg-type]
            {"n_lags": [0, 1, 2]},
        )
        for what in (None, corruption)
    )
    assert clean.chosen == corrupt.chosen == {"n_lags": 1}
    np.testing.assert_allclose(corrupt.table["loss"], clean.table["loss"], rtol=0.15)
