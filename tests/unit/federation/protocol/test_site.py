"""Small sites that are alike are read together, and each answers what it would answer alone."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from feddbn.core.arrays import FloatArray
from feddbn.core.designs import recordings as stacked_sites
from feddbn.core.designs.recordings import Block, StackedSite, stacks
from feddbn.core.statistics.moments import Moments
from feddbn.data.memory import ArrayRecording, MemorySite
from feddbn.errors import DataError
from feddbn.federation.programs.residual_checks import ResidualsQuestion
from feddbn.federation.protocol import site as sites
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.site import TOGETHER, Here, Record, answer_of_one, site_task
from feddbn.federation.sums.gram import GramQuestion

NAMES = ("a", "b", "c")


def site(*recordings: np.ndarray, **more: Any) -> MemorySite:
    made = tuple(ArrayRecording(f"r{i}", (Block(x, **more),)) for i, x in enumerate(recordings))
    return MemorySite(NAMES, made)


def rows(seed: int, n: int = 21) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, 3)) * (1.0, 5.0, 0.2) + (0.0, 2.0, 30.0)


def hears(state: dict[str, np.ndarray] | None = None) -> list[Here]:
    """Twenty sites of 21 rows, and between them others: longer, with an empty cell, with two recordings, later in time."""
    holed = rows(101)
    holed[7, 1] = np.nan
    data = [site(rows(k)) for k in range(20)]
    data[3:3] = [site(rows(100, 33)), site(holed), site(rows(102), rows(103)), site(rows(104), time=5)]
    return [Here(f"s{k}", one, dict(state or {})) for k, one in enumerate(data)]


def moments(**more: Any) -> GramQuestion:
    tried = {"try_degrees": (0, 1, 0), "try_cycles": (0, 0, 1), "try_periods": (7.0,)}
    return GramQuestion(n_lags=2, variables=NAMES, **{**tried, **more})


def residuals(**more: Any) -> ResidualsQuestion:
    rng = np.random.default_rng(0)
    units = np.array([[0.0, 2.0, 30.0], [1.0, 4.0, 0.25]])
    given = {"coefficients": rng.normal(size=(9, 3)) / 3, "offset": rng.normal(size=3), "units": units}
    return ResidualsQuestion(n_lags=2, variables=NAMES, **{**given, **more})


@pytest.mark.parametrize(
    "question",
    [
        moments(),
        moments(shape=True, origin=np.arange(9.0)),
        moments(try_degrees=(), try_cycles=()),
        moments(center="recording"),
        moments(center="recording", degree=1, periods=(5.0,)),
        residuals(),
        residuals(units=None),
        residuals(center="recording"),
    ],
    ids=["tried", "shape", "plain", "own means", "own trends", "residuals", "no curvature", "own residuals"],
)
def test_a_site_answers_the_same_together_as_alone(question: RowsQuestion) -> None:
    program, sites = site_task(question.name), hears({"kept": np.ones(1)})
    states, vectors = program.answer(sites, question, {})
    for here, state, vector in zip(sites, states, vectors, strict=True):
        alone, expected = answer_of_one(program, here, question)
        np.testing.assert_allclose(vector, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())
        assert state.keys() == alone.keys()
        assert "kept" in state
        for key, value in alone.items():
            np.testing.assert_allclose(state[key], value, rtol=1e-12, atol=1e-12 * np.abs(value).max())


def test_only_sites_that_are_alike_are_read_together() -> None:
    found = list(stacks([here.data for here in hears()], 9))
    assert [places for places, _ in found] == [[0, 1, 2, *range(7, 24)]]
    assert found[0][1].values.shape == (20, 21, 3)


def test_as_many_are_read_at_once_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked_sites, "_NUMBERS_TOGETHER", 18 * (21 + 9) * 9)
    assert [len(places) for places, _ in stacks([site(rows(k)) for k in range(20)], 9)] == [18, 2]
    monkeypatch.setattr(stacked_sites, "_NUMBERS_TOGETHER", 15 * (21 + 9) * 9)
    assert not list(stacks([site(rows(k)) for k in range(20)], 9))


@pytest.mark.parametrize(
    "more",
    [
        {"robust": "site"},
        {"log_scales": np.zeros(3)},
        {"abstain": True},
        {"fold": (0, 2, 400)},
        {"row_model": np.eye(10, 9)},
    ],
    ids=lambda more: next(iter(more)),
)
def test_rows_that_a_site_must_treat_by_itself_are_never_read_together(
    more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert moments().is_plain
    assert not moments(**more).is_plain

    def refuse(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("feddbn.federation.protocol.site.stacks", refuse)
    with pytest.raises(AssertionError):
        site_task("gram.rows").answer(hears(), moments(), {})
    whole = [here for here in hears() if here.data.one_array is not None]
    site_task("gram.rows").answer(whole, moments(**more), {})


def test_a_site_that_abstains_adds_nothing_among_many() -> None:
    sites = [
        Here(f"s{k}", site(rows(k)), {"agreement.abstains": np.ones(1)} if k == 5 else {}) for k in range(20)
    ]
    for question in (moments(abstain=True), residuals(abstain=True)):
        _, vectors = site_task(question.name).answer(sites, question, {})
        assert not vectors[5].any()
        assert all(vectors[k].any() for k in range(20) if k != 5)


def test_sites_too_short_for_the_lags_say_so_together() -> None:
    with pytest.raises(DataError, match="n_lags=2"):
        site_task("gram.rows").answer([Here(f"s{k}", site(rows(k, 2)), {}) for k in range(20)], moments(), {})


def test_moments_of_many_are_those_of_each() -> None:
    values = np.stack([rows(k) for k in range(4)])
    together = Moments.of_blocks(StackedSite(NAMES, values).recordings().__next__().blocks(), 2, 3)
    for k in range(4):
        z = np.hstack([values[k, 2:], values[k, 1:-1], values[k, :-2]])
        np.testing.assert_allclose(together.mean[k], z.mean(axis=0), rtol=1e-12)
        expected = np.cov(z.T) * (len(z) - 1)
        np.testing.assert_allclose(together.scatter[k], expected, atol=1e-12 * np.abs(expected).max())
        assert together.n == len(z)


@dataclass(frozen=True)
class Notes(Record):
    prefix = "notes"
    version = 1

    C: FloatArray


def test_a_memo_gives_back_what_was_kept_for_the_same_states_only():
    memo, notes = {}, Notes(np.arange(6.0).reshape(2, 3))
    states = notes.kept([{}, {}], None, memo, "a")
    assert Notes.read(states, memo, "a") is notes
    # Another site of the same name, or one that has gone on since, is read from its state.
    changed = [states[0], {**states[1], "notes.C": np.zeros(3)}]
    assert np.array_equal(Notes.read(changed, memo, "a").C, [[0, 1, 2], [0, 0, 0]])
    assert np.array_equal(Notes.read(states[:1], memo, "a").C, [[0, 1, 2]])
    assert np.array_equal(Notes.read(states, {}, "a").C, notes.C)


def test_a_memo_keeps_the_last_record_of_each_part_and_none_beyond_its_room(monkeypatch):
    memo: dict = {}
    for turn in range(5):
        for first in ("a", "b"):
            states = Notes(np.full((1, 3), turn)).kept([{}], None, memo, first)
    assert len(memo[TOGETHER]) == 2
    monkeypatch.setattr(sites, "_ROOM", 40)
    states = Notes(np.ones((1, 3))).kept([{}], None, memo, "b")
    assert len(memo[TOGETHER]) == 1
    assert np.array_equal(Notes.read(states, memo, "b").C, np.ones((1, 3)))
