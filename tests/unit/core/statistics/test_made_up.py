"""Values that somebody made are told from measured and rounded ones, and emptied cells are those that were made."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.core.designs.cells import mapped, triples
from feddbn.core.designs.recordings import Block
from feddbn.core.statistics.made_up import filled_in, made_up_sums
from feddbn.data import Recording, Site
from feddbn.errors import ParameterError
from feddbn.federation.sums.gram import GramQuestion, require_separate_units
from feddbn.words import say
from support.saying import only

N = 1500


def autoregressive(phi: float, seed: int = 0, n: int = N, d: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = np.zeros((n, d))
    for t in range(1, n):
        x[t] = phi * x[t - 1] + rng.normal(size=d)
    return x


def with_gaps(x: np.ndarray, kept: float = 0.6, seed: int = 1) -> pd.DataFrame:
    frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(x.shape[1])])
    return frame.mask(np.random.default_rng(seed).random(frame.shape) > kept)


def told(*sites: np.ndarray) -> dict[str, tuple[str, float]]:
    data = {f"s{k}": Site(("x0", "x1", "x2"), [Recording("r", (Block(x),))]) for k, x in enumerate(sites)}
    return {
        name: (one.values["kinds"][name], share)
        for one in filled_in(data)
        for name, share in zip(one.about, one.values["shares"], strict=True)
    }


def kinds_of(x: np.ndarray) -> set[str]:
    return {kind for kind, _ in told(x).values()}


T = np.arange(N)[:, None]
NOISE = np.random.default_rng(5).normal(size=(N, 3))
CLEAN = {
    **{f"AR {phi}": autoregressive(phi) for phi in (0.0, 0.5, 0.9, 0.99, 1.0)},
    **{
        f"AR {phi} rounded to {step}": np.round(autoregressive(phi) / step) * step
        for phi in (0.0, 0.9, 0.99, 1.0)
        for step in (0.1, 0.3, 1.0, 3.0)
    },
    "counts": np.random.default_rng(2).poisson(30.0, size=(N, 3)).astype(float),
    "standardised counts": (np.random.default_rng(2).poisson(30.0, size=(N, 3)) - 30.0) / 5.5,
    "rare counts": np.random.default_rng(2).poisson(0.2, size=(N, 3)).astype(float),
    "yes and no": (autoregressive(0.95) > 0).astype(float),
    "a dose that is seldom changed": np.repeat(
        np.random.default_rng(3).integers(0, 6, (N // 50, 3)), 50, axis=0
    )
    / 2,
    "cubic trend": (4 * T / N - 2) ** 3 + NOISE,
    "cycle": 3 * np.sin(2 * np.pi * T / 24) + NOISE,
}


@pytest.mark.parametrize("name", CLEAN)
def test_measured_rounded_and_counted_values_are_not_made_up(name):
    assert kinds_of(CLEAN[name]) == set()


@pytest.mark.parametrize("phi", [0.0, 0.9, 1.0])
def test_interpolated_and_carried_values_are_told_with_their_share(phi):
    frame = with_gaps(autoregressive(phi))
    empty = frame.isna().to_numpy()[1:-1].mean(axis=0)
    for made, kind in (
        (frame.interpolate(limit_direction="both"), "lines"),
        (frame.ffill().bfill(), "repeats"),
    ):
        found = told(made.to_numpy())
        assert {one for one, _ in found.values()} == {kind}
        assert [share for _, share in found.values()] == pytest.approx(empty, abs=0.03)


def test_rounded_values_that_were_carried_over_long_gaps_are_told():
    x = np.round(autoregressive(0.5), 1)
    x[(np.arange(N) % 40 >= 30)] = np.nan
    assert kinds_of(pd.DataFrame(x).ffill().to_numpy()) == {"repeats"}


def test_a_moving_average_of_a_slow_variable_is_smooth_and_a_cycle_explains_it():
    x = autoregressive(1.0)
    smooth = np.column_stack([np.convolve(column, np.ones(7) / 7, "valid") for column in x.T])
    assert kinds_of(smooth) == {"smooth"}
    wave = 3 * np.sin(2 * np.pi * T / 24) + 0.02 * NOISE
    assert kinds_of(wave) == set()


def test_sums_count_what_a_loop_counts_also_around_empty_cells():
    x = np.round(with_gaps(autoregressive(0.9), 0.9).ffill(limit=1).to_numpy(), 1)
    n, line, repeat, run, back, _ = made_up_sums(x)[:, 0]
    counted = np.zeros(5)
    for a, b, c in zip(x[:-2, 0], x[1:-1, 0], x[2:, 0], strict=True):
        if np.isnan([a, b, c]).any():
            continue
        is_line = abs((c - b) - (b - a)) < 1e-12 and abs(b - a) > 1e-9
        counted += [1, is_line, a == b, a == b == c, a == c != b]
    assert [n, line, repeat, run, back] == pytest.approx(counted.tolist())


def test_emptied_cells_are_those_that_were_made_also_where_a_segment_is_cut():
    frame = with_gaps(autoregressive(0.5, n=400))
    frame.iloc[[0, -1]] = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    lines = frame.interpolate(limit_area="inside").to_numpy()
    carried = frame.ffill().to_numpy()
    x = np.column_stack([lines[:, 0], carried[:, 1], lines[:, 2]])
    expected = np.column_stack([frame.to_numpy()[:, :2], lines[:, 2]])
    text = ('made_up={"x0": "lines", "x1": "repeats"}',)
    for cuts in ([], [7, 100, 101, 250]):
        blocks = [Block(part, starts_segment=k == 0) for k, part in enumerate(np.split(x, cuts))]
        site = Site(("x0", "x1", "x2"), [Recording("r", tuple(blocks))])
        (recording,) = mapped(site, text).recordings()
        seen = np.concatenate([block.values for block in recording.blocks()])
        np.testing.assert_array_equal(seen, expected)


def test_segments_do_not_touch_and_sites_may_be_stacked():
    x = np.array([[0.0], [1.0], [2.0], [3.0]])
    blocks = (Block(x[:2]), Block(x[2:]))
    (recording,) = mapped(Site(("a",), [Recording("r", blocks)]), ('made_up={"a": "lines"}',)).recordings()
    assert not np.isnan(np.concatenate([block.values for block in recording.blocks()])).any()
    both = triples(np.stack([x, 2 * x]))
    assert both[0, :, :, 0].tolist() == [[False, True, True, False]] * 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lines", "repeats"])
def test_a_fit_says_it_and_with_the_cure_learns_what_the_gaps_would_have_told(kind):
    data = feddbn.simulate(
        d=5, n_sites=3, n_samples=2000, mean_degree=2, w_range=(0.4, 0.8), random_state=701
    )
    rows = {name: with_gaps(np.asarray(site[0])) for name, site in data.sites.items()}
    fill = (lambda x: x.interpolate()) if kind == "lines" else (lambda x: x.ffill())
    made = {name: fill(frame) for name, frame in rows.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw = feddbn.OneShotDBN(features="linear").fit(made)
        found = only(raw.findings_, "made-up-values")
        cure = found.cure["prepare.made_up"]
        cured = feddbn.OneShotDBN(features="linear", prepare=feddbn.Prepare(made_up=cure)).fit(made)
        gaps = feddbn.OneShotDBN(features="linear").fit(rows)
        checked = feddbn.check(made)
    assert (found.level, set(cure.values())) == ("warning", {kind})
    assert set(cure) == set(data.truth.variables)
    assert "made-up-values" in checked.codes
    assert say(found)
    assert "made-up-values" not in cured.findings_.codes

    def wrong(model):
        scores = feddbn.score(data.truth, model.dbn_)
        return scores["W"]["shd"] + scores["A"]["shd"]

    assert wrong(cured) == wrong(gaps)
    assert wrong(raw) >= wrong(cured) + 3


def test_a_stuck_sensor_of_one_site_is_found_and_no_clean_one():
    for corruption, codes in (("stuck", 1), (None, 0)):
        data = feddbn.simulate(d=5, n_sites=4, n_samples=400, corruptions=corruption, random_state=702)
        assert feddbn.check(data.sites).codes.count("made-up-values") == codes


def test_what_is_no_variable_or_no_kind_is_refused():
    with pytest.raises(ParameterError, match="made_up"):
        feddbn.OneShotDBN(prepare=feddbn.Prepare(made_up={"typo": "lines"})).fit({"a": autoregressive(0.5)})
    with pytest.raises(ParameterError, match="made_up"):
        feddbn.Prepare(made_up={"x0": "curves"})


def test_it_does_not_go_with_noise_that_protects_single_rows():
    question = GramQuestion(n_lags=1, variables=("a",), cell_maps=('made_up={"a": "lines"}',))
    require_separate_units(question, "recording")
    with pytest.raises(ParameterError) as caught:
        require_separate_units(question, "row")
    assert caught.value.code == "made-up-mixes"
