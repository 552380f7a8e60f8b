"""A monitor names what has changed, since when and nothing else; it goes on bit for bit from what it has stored."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn import AS_THEY_ARE, Monitor, OneShotDBN
from feddbn.analysis import monitor as module
from feddbn.errors import DataError, FileError, ParameterError
from feddbn.results.result import Result
from feddbn.words import say

pytestmark = [
    pytest.mark.promise,
    pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning"),
]
NAMES = ["a", "b", "c", "d"]
W = np.zeros((4, 4))
W[0, 1], W[1, 2], W[2, 3] = 0.6, 0.6, 0.6
A = np.diag([0.5, 0.3, 0.3, 0.3])
A[0, 2] = 0.4
QUICK = {"features": "linear", "use_nongaussian": False, "noise_variance": "free"}


class Sites:
    """Sites whose rows go on from batch to batch, each batch with its last row again in front."""

    def __init__(self, n_sites=4, seed=900):
        self.rng, self.last = np.random.default_rng(seed), np.zeros((n_sites, 4))
        self.rows(30)

    def rows(self, n, W=W, A=A, level=0.0, noise=1.0):
        found, inverse = [self.last], np.linalg.inv(np.eye(4) - W)
        for _ in range(n):
            shock = self.rng.normal(size=self.last.shape) * noise + level
            found.append((found[-1] @ A + shock) @ inverse)
        self.last = found[-1]
        tables = np.stack(found, axis=1)
        return {f"s{k}": [pd.DataFrame(table, columns=NAMES)] for k, table in enumerate(tables)}


@pytest.fixture(scope="module")
def fitted():
    return OneShotDBN(1, prepare=AS_THEY_ARE, **QUICK).fit(Sites().rows(200))


def of(matrix, place, value):
    new = matrix.copy()
    new[place] = value
    return new


@pytest.mark.parametrize(
    ("code", "source", "target", "lag", "change"),
    [
        ("edge-gone", "a", "c", 1, {"A": of(A, (0, 2), 0.0)}),
        ("edge-gone", "b", "c", 0, {"W": of(W, (1, 2), 0.0)}),
        ("edge-new", "d", "b", 1, {"A": of(A, (3, 1), 0.4)}),
        ("edge-changed", "a", "a", 1, {"A": of(A, (0, 0), 0.9)}),
        ("level-changed", None, "b", None, {"level": np.array([0, 0.5, 0, 0])}),
        ("noise-changed", None, "b", None, {"noise": np.array([1, 1.6, 1, 1])}),
    ],
)
def test_a_change_is_named_and_what_follows_from_it_is_not(fitted, code, source, target, lag, change):
    monitor, sites = Monitor(fitted), Sites(seed=901)
    for k in range(16):
        monitor.look(sites.rows(50, **(change if k >= 6 else {})))
    (alarm,) = monitor.alarms
    found = [alarm.values[name] for name in ("source", "target", "lag")]
    assert (alarm.code, *found) == (code, source, target, lag)
    assert abs(alarm.values["since"] - 7) <= 1
    assert alarm.values["evidence"] >= monitor.bar / 4
    before, after = {
        "edge-gone": (0.6 if lag == 0 else 0.4, 0.0),
        "edge-new": (0.0, 0.4),
        "edge-changed": (0.5, 0.9),
        "level-changed": (0.0, 0.5),
        "noise-changed": (1.0, 1.6),
    }[code]
    assert alarm.values["before"] == pytest.approx(before, abs=0.1)
    assert alarm.values["after"] == pytest.approx(after, abs=0.15)
    assert target in say(alarm)


def test_of_two_changes_of_one_mechanism_the_most_probable_is_named_once(fitted):
    monitor, sites = Monitor(fitted), Sites(seed=908)
    for k in range(12):
        monitor.look(sites.rows(50, **({"W": of(W, (1, 2), 0.0), "A": of(A, (3, 2), 0.4)} if k >= 4 else {})))
    (one,) = monitor.alarms
    found = (one.code, *one.about, one.values["lag"])
    assert found in (("edge-gone", "b", "c", 0), ("edge-new", "d", "c", 1))
    assert one.values["since"] == 5


def test_sites_and_their_order_do_not_matter_and_sums_do_as_well_as_rows(fitted):
    sites = Sites(seed=902)
    batches = [sites.rows(50) for _ in range(3)]
    one, other, chain = (
        Monitor(one) for one in (fitted, fitted, Result.from_estimator(fitted, keep_sums=True))
    )
    longer = OneShotDBN(1, prepare=AS_THEY_ARE, **QUICK).fit(Sites().rows(200))
    for batch in batches:
        one.look(batch)
        tables = [table for recording in batch.values() for table in recording][::-1]
        other.look(federation=feddbn.simulated({"x": tables[:1], "y": tables[1:]}))
        before = longer._tally
        chain.look_at(longer.update(batch)._tally.minus(before))
    for monitor in (other, chain):
        pd.testing.assert_frame_equal(one.evidence, monitor.evidence, rtol=1e-7)
    assert list(one.evidence.columns) == list(module.EVIDENCE)
    means = one.evidence[one.evidence["what"] != "mechanism"].groupby(["look", "target"])["e_value"].mean()
    whole = one.evidence[one.evidence["what"] == "mechanism"].set_index(["look", "target"])["e_value"]
    np.testing.assert_allclose(means.sort_index(), whole.sort_index())
    assert [look.n_rows for look in one.looks] == [200] * 3


def test_it_goes_on_from_what_it_has_stored_bit_for_bit(fitted, monkeypatch):
    monkeypatch.setattr(module, "_MOST_PARTS", 4)
    straight, sites = Monitor(fitted), Sites(seed=903)
    stored = straight.to_dict()
    for k in range(8):
        batch = sites.rows(40, **({"level": 0.5} if k >= 5 else {}))
        straight.look(batch)
        again = Monitor.from_dict(json.loads(json.dumps(stored, allow_nan=False)))
        again.look(batch)
        stored = again.to_dict()
        assert stored == straight.to_dict()
    assert [part.start for part in straight._parts] == [1, 6, 7, 8]
    assert straight.alarms
    assert all(alarm.values["since"] in (1, 6) for alarm in straight.alarms)
    for damage in ({"version": 2}, {"parts": [{}]}, {"settled": [[1.0]]}, {"sums": None}):
        with pytest.raises(FileError):
            Monitor.from_dict({**stored, **damage})


def test_starts_that_are_no_longer_followed_change_no_other_evidence(fitted, monkeypatch):
    sites = Sites(seed=904)
    batches = [sites.rows(40) for _ in range(6)]
    monkeypatch.setattr(module, "_MOST_PARTS", 3)
    short = Monitor(fitted)
    for batch in batches:
        short.look(batch)
    monkeypatch.undo()
    full = Monitor(fitted)
    history = [full.look(batch) and full._by_start() for batch in batches]
    np.testing.assert_allclose(short._by_start(), history[-1][[0, 4, 5]], rtol=1e-9)
    # At looks 4, 5 and 6 the starts 2, 3 and 4 were left, with what they had.
    left = sum(np.exp(history[k + 1][k - 1]) / (k * (k + 1)) for k in (2, 3, 4))
    np.testing.assert_allclose(np.exp(short._settled), left, rtol=1e-9)


def test_a_site_that_drifts_away_hears_of_it_by_itself(fitted):
    federation = Sites(n_sites=8, seed=905)
    # What a site has received: a network without sums.
    received = Result.from_estimator(fitted)
    assert received.sums is None
    monitors = {f"s{k}": Monitor(received) for k in range(8)}
    for _ in range(8):
        batch, state = federation.rows(60), federation.last.copy()
        drifted = federation.rows(60, W=of(W, (0, 1), 0.0))
        federation.last[:7] = state[:7]
        for name, monitor in monitors.items():
            monitor.look({name: (drifted if name == "s7" else batch)[name]})
    assert [name for name, monitor in monitors.items() if monitor.alarms] == ["s7"]
    assert [(one.code, *one.about) for one in monitors["s7"].alarms] == [("edge-gone", "a", "b")]


def test_levels_of_recordings_cost_rows_and_are_not_watched():
    sites = Sites(seed=906)
    prepare = replace(AS_THEY_ARE, center="recording")
    monitor = Monitor(OneShotDBN(1, prepare=prepare, **QUICK).fit(sites.rows(200)))
    for k in range(3):
        batch = sites.rows(60)
        monitor.look({name: [table + 10.0 * k for table in tables] for name, tables in batch.items()})
    assert [part.n / monitor._worth for part in (monitor._base, *monitor._parts)] == pytest.approx(
        [796] + [236] * 3
    )
    assert set(monitor.evidence["what"]) == {"mechanism", "edge", "noise"}
    assert not monitor.alarms


def test_inputs_act_and_have_no_mechanism():
    rows = Sites(seed=909).rows(200)
    prepare = replace(AS_THEY_ARE, exogenous=["a"])
    model = OneShotDBN(1, prepare=prepare, **QUICK).fit(rows)
    for network in (model, Result.from_estimator(model, keep_sums=True)):
        monitor, sites = Monitor(network), Sites(seed=910)
        for _ in range(4):
            monitor.look(sites.rows(50, A=of(A, (0, 0), 0.0), W=of(W, (0, 1), 0.0)))
        assert set(monitor.evidence["target"]) == {"b", "c", "d"}
        assert [(one.code, *one.about) for one in monitor.alarms] == [("edge-gone", "a", "b")]


def test_bad_input_is_refused(fitted):
    model = fitted
    for alpha in (0, 1, 2, "x"):
        with pytest.raises(ParameterError):
            Monitor(model, alpha)
    rescaled = Result.from_estimator(model)
    rescaled.diagnostics["treatment"] = {"gains": "site"}
    for network, code in ((rescaled, "no-sums"), (model.dbn_, "cannot-update")):
        with pytest.raises(ParameterError) as error:
            Monitor(network)
        assert error.value.code == code
    monitor, batch = Monitor(model), Sites(seed=907).rows(20)
    for data, error in (
        (
            {name: [table.rename(columns={"a": "e"}) for table in tables] for name, tables in batch.items()},
            DataError,
        ),
        ({name: [table.iloc[:1] for table in tables] for name, tables in batch.items()}, DataError),
        (None, ParameterError),
    ):
        with pytest.raises(error):
            monitor.look(data)
    with pytest.raises(ParameterError):
        monitor.look(batch, federation=feddbn.simulated(batch))
    other = OneShotDBN(1, prepare=AS_THEY_ARE, **QUICK).fit(
        {"s": [table[NAMES[:3]] for table in Sites().rows(100)["s0"]]}
    )
    with pytest.raises(ParameterError):
        monitor.look_at(other._tally)
    with pytest.raises(DataError) as error:
        Monitor(OneShotDBN(1, prepare=AS_THEY_ARE, **QUICK).fit(Sites(n_sites=1).rows(9)))
    assert error.value.code == "few-rows"
    assert not monitor.looks
