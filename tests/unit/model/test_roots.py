"""`DBN.root_causes`: laws of shares and noise, roots that are found, and rows that say nothing."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from feddbn.errors import DataError, ParameterError
from feddbn.model import roots
from feddbn.model.dbn import DBN
from feddbn.model.dynamics import paths_from
from feddbn.model.roots import RootCauses
from support.mixed_networks import mixed_network

pytestmark = pytest.mark.promise

# x acts on y at once, y on z two rows later, and nothing acts on w.
CHAIN = DBN(
    [[0, 0.8, 0, 0], [0] * 4, [0] * 4, [0] * 4],
    [np.diag([0.4, 0.3, 0.5, 0.2]), [[0] * 4, [0, 0, 0.9, 0], [0] * 4, [0] * 4]],
    ["x", "y", "z", "w"],
)


def rows_with(
    dbn: DBN, added: dict[tuple[int, int], float], n: int = 300, seed: int = 0, rows: int = 10
) -> np.ndarray:
    """(n, d) rows of a network from 0 on; `added` (position, variable) -> what is added to that noise for some rows."""
    u = np.random.default_rng(seed).normal(size=(1, n, dbn.d)) * np.sqrt(dbn.noise_variances)
    for (first, variable), size in added.items():
        u[0, first : first + rows, variable] += size
    return paths_from(dbn, np.zeros((1, dbn.n_lags, dbn.d)), u)[0]


def by_name(found: RootCauses) -> pd.DataFrame:
    return found.table.set_index("variable")


def test_shares_are_those_of_responses_and_add_up(random_dbn):
    """Without draws of any kind: what the noise of j does to the target by impulse responses."""
    dbn = random_dbn(3)
    rows = rows_with(dbn, {(190, 1): 5.0}, 200)
    begin, span, k = 190, 190 - dbn.n_lags, 2
    u = dbn.residuals(rows)
    mean = u[: span - dbn.n_lags].mean(axis=0)
    noise, responses = u[span - dbn.n_lags :] - mean, dbn.impulse_responses(200)
    parts = np.array(
        [
            [sum(noise[s, j] * responses[t - s, j, k] for s in range(t + 1)) for t in range(len(noise))]
            for j in range(dbn.d)
        ]
    )[:, begin - span :]
    total = parts.sum(axis=0)
    shares = by_name(dbn.root_causes(rows, begin, target=k))["share"]
    assert np.allclose(shares[list(dbn.variables)], parts @ total / (total @ total), atol=1e-9)
    assert by_name(dbn.root_causes(rows, begin))["share"].sum() == pytest.approx(1)


@pytest.mark.parametrize("root", [0, 1, 2, 3])
def test_the_root_is_named_and_what_follows_it_is_not(root):
    for seed in range(900, 903):
        found = CHAIN.root_causes(rows_with(CHAIN, {(280, root): 6.0}, 290, seed), 280)
        assert found.roots == (CHAIN.variables[root],)
        assert found.table["largest"][0] > 0.95


def test_two_roots_are_named_and_one_whose_effect_comes_late():
    rows = rows_with(CHAIN, {(280, 0): 6.0, (280, 3): -6.0}, 290)
    assert set(CHAIN.root_causes(rows, 280).roots) == {"x", "w"}
    # The window has the rows in which z is off only; the noise of y came two rows before.
    late = rows_with(CHAIN, {(280, 1): 12.0}, 285, rows=1)
    found = CHAIN.root_causes(late, 282, 282, "z")
    assert found.roots == ("y",)
    assert found.n_window == 1
    assert by_name(found)["share"]["y"] > 0.8


def test_spread_alone_is_a_root_too():
    u = np.random.default_rng(5).normal(size=(1, 290, 4))
    u[0, 270:, 1] *= 5
    rows = paths_from(CHAIN, np.zeros((1, 2, 4)), u)[0]
    found = CHAIN.root_causes(rows, 270)
    assert found.roots == ("y",)
    assert by_name(found)["spread"]["y"] > 3


def test_wrong_weights_within_their_errors_name_no_follower():
    """A huge root moves its effect by the error of the weight; that is no noise of the effect."""
    learned = DBN(CHAIN.W * 1.06, CHAIN.A, CHAIN.variables)
    named = [
        learned.root_causes(rows_with(CHAIN, {(280, 0): 60.0}, 290, s), 280).roots for s in range(900, 905)
    ]
    assert all(roots[0] == "x" for roots in named)
    assert sum("y" in roots for roots in named) <= 1
    sure = [
        learned.root_causes(rows_with(CHAIN, {(280, 0): 60.0}, 290, s), 280, n_rows=10**6)
        for s in range(900, 903)
    ]
    assert all("y" in found.roots for found in sure)


@pytest.mark.parametrize("tails", ["gaussian", "exponential"])
def test_p_values_hold_in_windows_in_which_nothing_happened(tails, monkeypatch):
    monkeypatch.setattr(roots, "_SHARE_DRAWS", 1)
    rng, alarms = np.random.default_rng(900), 0
    for _ in range(40):
        rows = CHAIN.simulate(120, random_state=rng, noise=tails).to_numpy()
        found = CHAIN.root_causes(rows, 110, random_state=rng)
        alarms += bool(found.roots)
        assert ("roots-none" in found.findings.codes) == (not found.roots)
    assert alarms <= 5


def test_curves_and_kinds_have_roots(curved_dbn):
    curved = curved_dbn()
    rows = rows_with(curved, {(280, 1): 8 * np.sqrt(curved.noise_variances[1])}, 290)
    assert curved.root_causes(rows, 280).roots[0] == curved.variables[1]
    mixed = mixed_network()
    frame = mixed.simulate(200, random_state=0)
    found = mixed.root_causes(frame, 190)
    assert np.isfinite(found.table[["score", "share", "lower", "upper"]].to_numpy()).all()
    number = next(k for k, kind in enumerate(mixed.kinds) if kind.name == "continuous")
    frame.iloc[190:, number] += 20 * np.sqrt(mixed.noise_variances[number])
    assert mixed.root_causes(frame, 190).roots[0] == mixed.variables[number]


def test_missing_cells_are_taken_as_expected_and_told():
    rows = rows_with(CHAIN, {(280, 0): 6.0}, 290)
    rows[283, 1] = rows[100, 2] = np.nan
    found = CHAIN.root_causes(rows, 280)
    assert found.roots == ("x",)
    assert found.findings.of("roots-missing-cells")[0].values["n"] == 1
    # Row 100 and the two after it, which have it as their past, do not say what is normal.
    assert found.n_before == 278 - 2 - 3
    # Cells are filled at the level of the recording.
    assert np.allclose(
        by_name(CHAIN.root_causes(rows + 1e3, 280))["share"], by_name(found)["share"], atol=1e-6
    )
    rows[278:, 3] = np.nan
    assert np.isnan(by_name(CHAIN.root_causes(rows, 280))["p_value"]["w"])


def test_what_never_moves_is_no_root_until_it_does():
    rows = rows_with(CHAIN, {(280, 0): 6.0}, 290)
    rows[:, 3] = 1e6
    assert CHAIN.root_causes(rows, 280).roots == ("x",)
    rows[285:, 3] += 1.0
    assert CHAIN.root_causes(rows, 280).roots == ("w", "x")


def test_few_rows_before_and_a_network_that_does_not_hold_are_told():
    rows = rows_with(CHAIN, {(280, 0): 6.0}, 290)
    few = CHAIN.root_causes(rows[270:], 10)
    assert few.roots == ("x",)
    assert "roots-few-rows" in few.findings.codes
    everywhere = rows.copy()
    everywhere[280:] += 30 * np.random.default_rng(0).normal(size=(10, 4))
    assert "roots-everywhere" in CHAIN.root_causes(everywhere, 280).findings.codes
    unsure = DBN(CHAIN.W, CHAIN.A, CHAIN.variables, open_edges=[("x", "y")])
    assert "roots-open" in unsure.root_causes(rows, 280).findings.codes


def test_rows_are_named_by_their_labels_and_the_level_of_a_recording_does_not_matter():
    rows = rows_with(CHAIN, {(280, 0): 6.0}, 290)
    times = pd.date_range("2024-01-01", periods=290, freq="h")
    frame = pd.DataFrame(rows, times, CHAIN.variables)
    plain = CHAIN.root_causes(rows, 280, 285)
    for other in (frame, frame + 1000.0):
        found = CHAIN.root_causes(other, times[280], str(times[285]))
        assert np.allclose(by_name(found)["share"], by_name(plain)["share"][by_name(found).index], atol=1e-6)
    told = json.loads(json.dumps(plain.to_dict()))
    assert told["roots"] == ["x"]
    assert len(told["table"]) == 4
    assert max(map(len, str(CHAIN.root_causes(rows[:30], 25)).splitlines())) <= 79


@pytest.mark.parametrize(
    ("given", "kind", "name"),
    [
        ({"first": 400}, ParameterError, "first=400"),
        ({"first": 20, "last": 10}, ParameterError, "last=10"),
        ({"first": "soon"}, ParameterError, "first='soon'"),
        ({"first": 1}, DataError, "first=1"),
        ({"first": 20, "target": "v"}, ParameterError, "'v'"),
        ({"first": 20, "level": 2}, ParameterError, "level"),
        ({"first": 20, "n_rows": 0}, ParameterError, "n_rows"),
    ],
)
def test_bad_input_is_named(given, kind, name):
    with pytest.raises(kind, match=name.replace("(", "\\(")):
        CHAIN.root_causes(rows_with(CHAIN, {}, 50), **given)
