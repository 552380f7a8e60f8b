"""A month later: new rows at real endpoints, their sums added to those of an earlier run, and what sites refuse."""

import json

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("cryptography")
from feddbn import Monitor, OneShotDBN
from feddbn.data.read import read_sites
from feddbn.errors import FederationError, ParameterError, SiteRefused, StateError
from feddbn.federation.guards.study_plan import scope_of, tasks_of
from feddbn.federation.protocol.study import StudyResult, check_goal
from feddbn.runtime.server.conduct import Progress, conduct
from feddbn.runtime.site.page import about_study
from feddbn.runtime.site.registers import RecordingBook
from feddbn.runtime.store import STORE, Store
from support.consortium import NAMES, ONE_SUM, Consortium, make_study
from support.faults import LocalExchange
from support.saying import only, refused

RNG = np.random.default_rng(4)
BEGUN = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def _drawn_anew():
    """No test goes on with what another has drawn."""
    RNG.bit_generator.state = BEGUN


def rows(n=60):
    x = RNG.normal(size=(n, 2))
    for t in range(1, n):
        x[t, 1] += 0.8 * x[t - 1, 0]
    return pd.DataFrame(x, columns=["u", "v"])


class Federation:
    """Three sites whose data can be replaced, and a server with its runs on disk."""

    def __init__(self, place):
        self.place = place
        self.sites = Consortium(place / "sites", policy="approve_by_rule = true\nmin_sites = 3\n")
        self.logged = []

    def offer(self, tables):
        """Put files in the data directories: name -> site's tables."""
        for name in NAMES:
            folder = self.place / "sites" / name / "data"
            for path in folder.iterdir():
                path.unlink()
            for k, table in enumerate(tables[name]):
                table.to_csv(folder / f"{k}.csv", index=False, float_format="%.17g")

    def run(self, study, run_id, names=NAMES):
        out = self.place / "out" / run_id
        out.mkdir(parents=True, exist_ok=True)

        exchange = LocalExchange(names, self.sites.open)
        conduct(
            exchange, study, run_id, self.place / "runs", out, Progress(run_id, NAMES), self.logged.append
        )
        return StudyResult.from_bytes((out / "result.feddbn").read_bytes())


@pytest.fixture
def federation(tmp_path):
    return Federation(tmp_path)


@pytest.fixture
def months():
    return [{name: [rows()] for name in NAMES} for _ in range(3)]


def test_two_months_more_are_the_network_of_all(federation, months):
    federation.offer(months[0])
    first = federation.run(make_study(), "run-1")
    federation.offer(months[1])
    second = federation.run(make_study(update_of="run-1"), "run-2")
    federation.offer(months[2])
    third = federation.run(make_study(update_of="run-2"), "run-3")
    whole = {name: [table for month in months for table in month[name]] for name in NAMES}
    expected = OneShotDBN(**ONE_SUM, features="linear").fit(whole)
    np.testing.assert_allclose(third.arrays["A"], expected.A_, atol=1e-8)
    np.testing.assert_allclose(third.arrays["noise_variances"], expected.dbn_.noise_variances, atol=1e-8)
    assert np.abs(first.arrays["A"] - second.arrays["A"]).max() > 1e-4
    assert third.summary["result"]["diagnostics"]["n_samples"] == 3 * 3 * 59
    # Each update is a look of one monitor, as at the rows themselves.
    monitor = Monitor(OneShotDBN(**ONE_SUM, features="linear").fit(months[0]))
    for month in months[1:]:
        monitor.look(month)
    looked = third.summary["monitor"]
    assert [look["n_rows"] for look in looked["looks"]] == [3 * 59] * 2
    assert looked["bar"] == monitor.bar
    for found, one in zip(looked["evidence"], monitor.told()["evidence"], strict=True):
        assert found["e_value"] == pytest.approx(one["e_value"], rel=1e-6)
    # One sum for each, and what was summed is at the server only.
    assert third.summary["n_rounds"] == 3
    for run in ("run-1", "run-2", "run-3"):
        assert json.loads(Store(federation.place / "runs").get(run, "sums"))["sums"]["n_lags"] == 1
        assert "scatter" not in (federation.place / "out" / run / "outcome.json").read_text()
        assert {path.name for path in (federation.place / "out" / run).iterdir()} == {
            "outcome.json",
            "result.feddbn",
            "events.jsonl",
        }
    assert "scatter" not in json.dumps(third.summary)
    for name in NAMES:
        assert "sums" not in Store(federation.place / "sites" / name / "state").names("run-3")


def test_old_rows_are_not_counted_twice(federation, months, caplog):
    caplog.set_level("WARNING", "consortium")
    federation.offer(months[0])
    federation.run(make_study(), "run-1")
    update = make_study(update_of="run-1")
    with pytest.raises(FederationError, match="refused"):
        federation.run(update, "again")
    assert "'run-1'" in caplog.text
    # One recording has grown, and one of the others is new.
    grown = {name: [pd.concat([months[0][name][0], months[1][name][0]])] for name in NAMES}
    federation.offer({**months[1], "south": grown["south"]})
    with pytest.raises(FederationError, match="refused"):
        federation.run(update, "grown")
    # The last row again, as the past of the new ones, is not an old recording.
    federation.offer({name: [grown[name][0].iloc[59:]] for name in NAMES})
    found = federation.run(update, "seam")
    expected = OneShotDBN(**ONE_SUM, features="linear").fit(grown)
    np.testing.assert_allclose(found.arrays["A"], expected.A_, atol=1e-8)
    assert found.summary["result"]["diagnostics"]["n_samples"] == 3 * 119
    # And the first month cannot come back two updates later.
    federation.offer(months[0])
    with pytest.raises(FederationError, match="refused"):
        federation.run(make_study(update_of="seam"), "back")


def test_a_run_nobody_knows_and_another_question_are_refused(federation, months):
    federation.offer(months[0])
    federation.run(make_study(), "run-1")
    federation.offer(months[1])
    with refused(StateError, "'run-9'", code="no-sums"):
        federation.run(make_study(update_of="run-9"), "run-2")
    other = {**ONE_SUM, "n_lags": 2}
    with refused(StateError, "parameters", code="other-question"):
        federation.run(make_study(update_of="run-1", parameters=other), "run-3")


def test_a_site_that_was_not_in_the_run_takes_no_part_in_its_update(federation, months):
    federation.offer(months[0])
    federation.run(make_study(), "run-1")
    federation.offer(months[1])
    state = federation.place / "sites" / "west" / "state"
    for name in (STORE, "_ledger.head", "_audit.head"):
        (state / name).unlink()
    with pytest.raises(FederationError, match="refused"):
        federation.run(make_study(update_of="run-1"), "run-2")


def test_an_update_is_for_the_sites_of_the_run_before(tmp_path):
    first, new = (read_sites({"a": rows(), "b": rows()})["a"] for _ in range(2))
    RecordingBook(tmp_path, first).begin("run-1", make_study())
    more = make_study(update_of="run-1", sites=(*NAMES, "east"))
    with refused(SiteRefused, code="other-sites"):
        RecordingBook(tmp_path, new).begin("run-2", more)
    RecordingBook(tmp_path, new).begin("run-2", make_study(update_of="run-1"))


def test_few_new_rows_are_refused_as_in_any_study(federation, months):
    federation.offer(months[0])
    federation.run(make_study(), "run-1")
    federation.offer({**months[1], "south": [rows(6)]})
    with pytest.raises(FederationError, match="refused"):
        federation.run(make_study(update_of="run-1"), "run-2")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"method": "pfdbnl", "parameters": {"n_lags": 1}}, "'oneshot'"),
        (
            {"privacy": {"secure_aggregation": True, "epsilon": 1.0}},
            "noise",
        ),
        ({"attendance": {"when_missing": "continue", "min_sites": 3}}, "sites"),
    ],
)
def test_updates_that_cannot_be_are_refused_before_anything_is_sent(changes, said):
    with pytest.raises(ParameterError, match=said):
        check_goal(make_study(update_of="run-1", **changes))


def test_an_update_asks_for_one_sum_and_is_a_study_of_its_own(federation):
    study = make_study(update_of="run-1", parameters={"n_lags": 1})
    assert tasks_of(study) == ("gram.rows",)
    assert list(scope_of(study, 10).lags) == [1]
    assert study.digest != make_study(parameters={"n_lags": 1}).digest
    told = about_study(study, federation.sites.settings("north"))
    assert only(told, "study-update").values == {"run": "run-1"}
    assert "update_of" not in make_study().to_json()


def test_what_was_done_to_the_first_rows_is_done_to_the_new_ones(federation):
    """Every recording has a level of its own, which the first run finds out."""
    parameters = {"n_lags": 1, "check_residuals": False}
    months = [
        {name: [rows() + 30.0 * (k + m) for m in (0, 1)] for k, name in enumerate(NAMES)} for _ in range(2)
    ]
    federation.offer(months[0])
    federation.run(make_study(parameters=parameters), "run-1")
    federation.offer(months[1])
    found = federation.run(make_study(parameters=parameters, update_of="run-1"), "run-2")
    assert found.summary["result"]["diagnostics"]["center"] == "recording"
    whole = {name: [table for month in months for table in month[name]] for name in NAMES}
    alone = {"use_nongaussian": False, "features": "linear", "prepare.on_disagreement": "ignore"}
    expected = OneShotDBN(**parameters, **alone).fit(whole)
    assert expected.center_ == "recording"
    np.testing.assert_allclose(found.arrays["A"], expected.A_, atol=1e-7)
    np.testing.assert_allclose(found.arrays["intercept"], expected.dbn_.intercept, atol=1e-5)


def test_a_run_that_learned_by_more_than_second_moments_keeps_no_sums(federation, months):
    federation.offer(months[0])
    parameters = {**ONE_SUM, "prepare": {**ONE_SUM["prepare"], "missing": "fill"}}
    gaps = {
        name: [tables[0].mask(np.arange(60)[:, None] % 11 == [3, 20])] for name, tables in months[0].items()
    }
    federation.offer(gaps)
    federation.run(make_study(parameters=parameters), "run-1")
    federation.offer(months[1])
    with refused(StateError, code="no-sums"):
        federation.run(make_study(parameters=parameters, update_of="run-1"), "run-2")
