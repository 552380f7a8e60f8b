"""Questions that are asked together: which they are, what a wrong guess leads to, and what a killed run comes to."""

import json

import numpy as np
import pytest

from feddbn import engine
from feddbn.analysis import studies  # noqa: F401 (registers the methods)
from feddbn.errors import FederationError, StateError
from feddbn.federation.protocol import batches
from feddbn.federation.protocol.messages import (
    FIRST,
    Entry,
    Header,
    Journal,
    batch_entries,
    digest_of,
    read_journal,
    read_reply,
    read_request,
)
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Sum, Task
from feddbn.federation.sums import survey
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.survey import AgreementQuestion
from feddbn.findings import Finding
from feddbn.runtime.server import ahead, conduct
from feddbn.runtime.server.ahead import Compared, next_questions
from feddbn.runtime.server.recorded import Recorded
from support.keeping import KEEPERS, Kept, additive
from support.light import light_fits
from support.rig import Rig, listing
from support.saying import refused
from support.states import entries_of

POLICY = listing("agree").replace("require_masking = true", "require_masking = false")
NAMES = tuple("abcdef")
NO_GAINS = {"prepare.gains": "none"}
COMPARE = {"prepare.on_disagreement": "exclude", **NO_GAINS}
AS_THEY_ARE = {
    "prepare.center": "none",
    "prepare.detrend": 0,
    "prepare.period": None,
    "prepare.gains": "none",
    "prepare.robust": "off",
    "prepare.missing": "drop",
}
LOOK, VIEW, AGREE, ROWS = "survey.first", "counts.variables", "agree", "gram.rows"
CHECKS, AGAIN, ALONE = "residuals.checks", "gram.resamples", "loss.alone"


def rows(seed, n=120, memory=0.3):
    rng, x = np.random.default_rng(seed), np.zeros((n, 3))
    mixing = np.linalg.inv(np.eye(3) - np.array([[0, 0.9, 0], [0, 0, -0.8], [0, 0, 0]]))
    for t in range(1, n):
        x[t] = memory * x[t - 1] + rng.normal(size=3)
        x[t] = x[t] if memory > 0.5 else x[t] * [1.0, 2.0, 3.0] @ mixing
    # Noise with a memory of its own, or variables that have one.
    return x @ mixing if memory > 0.5 else x


def clean(**how):
    return {name: [rows(900 + k, **how)] for k, name in enumerate(NAMES)}


def made(tmp_path, data, policy=POLICY):
    return Rig(tmp_path, data, policy=policy)


def study_of(rig, method="summary", parameters=None, **more):
    given = {"resamples": 2} if method == "oneshot" else {}
    plain = {"secure_aggregation": False}
    return rig.study(method, {**given, **(parameters or {})}, privacy=plain, **more)


class Asked:
    """An exchange with the sites of a rig that takes down what the first of them was asked, and dies if told to."""

    def __init__(self, rig, dies_at=None, loses_replies=False):
        self.rig, self.files, self.digests = rig, [], []
        self.dies_at, self.loses_replies, self.n = dies_at, loses_replies, 0

    def __call__(self, messages):
        dies = self.n == self.dies_at
        self.n += 1
        if dies and not self.loses_replies:
            raise KeyboardInterrupt
        request = read_request(messages[min(messages)])
        if request.kind in ("task", "batch"):
            asked = request.meta["tasks"] if request.kind == "batch" else [request.meta]
            self.files.append(tuple(one["name"] for one in asked))
            self.digests += [one["digest"] for one in asked]
        replies = {site: self.rig.endpoints[site].handle(message) for site, message in messages.items()}
        if dies:
            raise KeyboardInterrupt
        return replies


def run(rig, study, run_id, exchange=None):
    exchange = exchange or Asked(rig)
    progress, place = conduct.Progress(run_id, rig.names), rig.place / "lead"
    result = conduct.conduct(exchange, study, run_id, place / "runs", place, progress, lambda words: None)
    return result, exchange


@pytest.fixture
def one_by_one(monkeypatch):
    """Runs a study as if no question could be asked with another."""

    def run_alone(rig, study, run_id="alone"):
        with monkeypatch.context() as patch:
            for module in (ahead, conduct):
                patch.setattr(module, "asks_together", lambda study: False)
            return run(rig, study, run_id)

    return run_alone


def assert_same(found, expected):
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array, err_msg=name)
    assert json.dumps(found.summary, default=str) == json.dumps(expected.summary, default=str)


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    return Rig(tmp_path_factory.mktemp("sites"), clean(), policy=POLICY)


@pytest.mark.parametrize(
    ("method", "parameters", "files"),
    [
        ("summary", NO_GAINS, [(VIEW, LOOK), (ROWS,)]),
        ("summary", {"prepare.gains": "site"}, [(VIEW, LOOK), (ROWS, ROWS)]),
        ("summary", AS_THEY_ARE, [(VIEW, ROWS)]),
        ("summary", COMPARE, [(VIEW, LOOK), (AGREE, ROWS)]),
        ("oneshot", NO_GAINS, [(VIEW, LOOK), (ROWS,), (CHECKS, AGAIN, ALONE)]),
        ("oneshot", COMPARE, [(VIEW, LOOK), (AGREE, ROWS), (CHECKS, AGAIN, ALONE)]),
        ("oneshot", {"resamples": 0, "check_residuals": False, **AS_THEY_ARE}, [(VIEW, ROWS)]),
        ("fdbnl", {"lambda_w": 0.05, "lambda_a": 0.05, **NO_GAINS}, [(VIEW, LOOK), (ROWS,), (CHECKS, ALONE)]),
        ("latent", NO_GAINS, [(VIEW, LOOK), (ROWS,)]),
    ],
)
def test_of_clean_data_the_same_is_asked_in_fewer_messages(rig, one_by_one, method, parameters, files):
    study = study_of(rig, method, parameters)
    name = f"{method}-{len(parameters)}-{sum(map(len, files))}"
    expected, alone = one_by_one(rig, study, f"{name}-alone")
    found, together = run(rig, study, name)
    assert_same(found, expected)
    assert together.files == files
    assert [task for file in files for task in file] == [task for (task,) in alone.files]
    if (AGREE, ROWS) not in files:
        assert together.digests == alone.digests


@pytest.mark.parametrize(
    ("method", "file"), [("oneshot", (CHECKS, AGAIN, ALONE)), ("fdbnl", (CHECKS, ALONE))]
)
def test_whether_the_network_is_better_than_a_sites_own_takes_no_message_more(rig, method, file):
    found, together = run(rig, study_of(rig, method, NO_GAINS), f"{method}-better")
    assert sum(found.summary["result"]["diagnostics"]["alone"].values()) == len(NAMES)
    assert together.files == [(VIEW, LOOK), (ROWS,), file]


def rare_at_one(data):
    """A variable that varies in four rows of one site."""
    data["b"][0][:, 2] = 0.0
    data["b"][0][10:14, 2] = 1.0


def held_by_one(data):
    """A variable that varies at one site."""
    for name in NAMES[1:]:
        data[name][0][:, 2] = 7.0


def one_odd(data):
    """One site with its columns exchanged."""
    data["c"][0] = data["c"][0][:, [1, 2, 0]] * [1.0, 1.0, 5.0]


def three_odd(data):
    """Three sites of six with a first variable that varies more."""
    for name in "abc":
        data[name][0][:, 0] *= 10.0


@pytest.mark.parametrize(
    ("change", "parameters", "files"),
    [
        (rare_at_one, NO_GAINS, [(VIEW, LOOK), (LOOK,), (ROWS,)]),
        (held_by_one, NO_GAINS, [(VIEW, LOOK), (LOOK,), (ROWS,)]),
        (one_odd, COMPARE, [(VIEW, LOOK), (AGREE, ROWS)]),
        (three_odd, COMPARE, [(VIEW, LOOK), (AGREE, ROWS), (ROWS,)]),
    ],
)
def test_a_wrong_guess_costs_a_message_and_changes_no_bit(
    tmp_path, one_by_one, change, parameters, files, monkeypatch
):
    data = clean()
    if change is three_odd:
        # Sites that are compared with so many others like them find nothing.
        odd = Finding("other-relations", "warning", {"distance": 9.0})
        monkeypatch.setattr(survey, "compared", lambda own, *others: (odd,) if own[0] > 1.0 else ())
    change(data)
    rig = made(tmp_path, data)
    study = study_of(rig, "summary", parameters)
    expected, _ = one_by_one(rig, study)
    found, asked = run(rig, study, "together")
    assert_same(found, expected)
    assert asked.files == files


def test_residuals_that_remember_have_other_resamples_asked_for(tmp_path, one_by_one):
    rig = made(tmp_path, clean(n=300, memory=0.7))
    study = study_of(rig, "oneshot", {"noise_variance": "free", **NO_GAINS})
    expected, alone = one_by_one(rig, study)
    found, asked = run(rig, study, "together")
    assert_same(found, expected)
    assert (len(alone.files), len(asked.files)) == (7, 4)


@pytest.mark.parametrize(
    ("policy", "replicates", "files"),
    [
        # Nothing that is not listed is answered, nor what was asked along with it; it is then asked by itself.
        (POLICY.replace(', "gram.resamples"', ""), 2, [(CHECKS, AGAIN), (CHECKS,), (AGAIN,)]),
        # More than a site answers of its rows: what was asked before is answered.
        (POLICY, 60, [(CHECKS, AGAIN), (AGAIN,)]),
    ],
)
def test_where_sites_refuse_resamples_the_rest_is_as_ever(tmp_path, one_by_one, policy, replicates, files):
    rig = made(tmp_path, clean(n=60), policy)
    study = study_of(rig, "oneshot", {"resamples": replicates, **NO_GAINS})
    with light_fits():
        expected, _ = one_by_one(rig, study)
        found, asked = run(rig, study, "together")
    assert_same(found, expected)
    assert asked.files[2:] == files
    sent = [
        entry.task for entry in entries_of(rig.place / "a" / "state", "together") if entry.event == "sent"
    ]
    assert sent == [VIEW, LOOK, ROWS, CHECKS]


@pytest.mark.parametrize("loses_replies", [False, True])
def test_a_server_killed_at_any_message_resumes_to_the_same_bits(rig, loses_replies):
    study = study_of(rig, "summary", COMPARE)
    expected, _ = run(rig, study, f"whole-{loses_replies}".lower())
    run_id = f"killed-{loses_replies}".lower()
    # A greeting has three messages, and is repeated; two batches follow, and the result.
    for dies_at in (0, 1, 2, 3, 4, 3):
        with pytest.raises(KeyboardInterrupt):
            run(rig, study, run_id, Asked(rig, dies_at, loses_replies))
    found, _ = run(rig, study, run_id)
    assert_same(found, expected)
    sent = [entry.task for entry in entries_of(rig.place / "a" / "state", run_id) if entry.event == "sent"]
    assert sent == [VIEW, LOOK, AGREE, ROWS]


@pytest.mark.parametrize(("parameters", "files"), [(AS_THEY_ARE, []), (NO_GAINS, [(ROWS,)])])
def test_where_sites_are_reached_seldom_the_greeting_has_the_first_questions(rig, parameters, files):
    study = study_of(rig, "summary", parameters)
    expected, _ = run(rig, study, f"often-{len(files)}")
    seldom = study_of(rig, "summary", parameters, attendance={"when_missing": "collect"})
    exchange = Asked(rig)
    found, _ = run(rig, seldom, f"seldom-{len(files)}", exchange)
    assert_same(found, expected)
    assert exchange.files == files
    # The result is on record, and so is what it was made of: nobody is asked again but to take it.
    again = Asked(rig)
    assert_same(run(rig, seldom, f"seldom-{len(files)}", again)[0], expected)
    assert again.files == []


# What is on record, and how a program is fed from it.

A, B, C = (Task(GramQuestion(n_lags=n, variables=("u",))) for n in range(3))
MADE, NOT_MADE = Sum(np.ones(1), ("a", "b")), Sum(np.zeros(0), ())


def recorded(*sums):
    return Recorded("run", batch_entries(0, [digest_of(A), digest_of(B)], sums))


def test_a_batch_is_one_record_of_the_journal():
    journal = Journal(Header("run", "{}", "d", "v", ("a", "b")))
    written = [
        journal.header_bytes(),
        journal.add("x", MADE),
        journal.add_batch(["y", "z"], [MADE, NOT_MADE]),
    ]
    found = read_journal(written)
    assert [(one.seq, one.digest, one.first, one.is_ahead) for one in found.entries] == [
        (0, "x", 0, False),
        (1, "y", 1, False),
        (2, "z", 1, True),
    ]
    assert found.entries[2].answer.contributors == ()
    with refused(StateError, code="damaged-journal"):
        read_journal([written[0], written[2]])


def test_what_was_asked_ahead_counts_only_if_it_is_asked_for():
    sums = recorded(MADE, Sum(np.full(1, 2.0), ("a", "b")))
    assert sums.recall(digest_of(A)).value == 1.0
    assert (sums.seq, sums.counted) == (1, {"a": 0, "b": 0})
    assert sums.recall(digest_of(C)) is None
    # Sites have answered both.
    assert (sums.seq, sums.counted) == (2, {"a": 1, "b": 1})


def test_what_no_site_was_counted_for_is_passed_over_and_what_was_asked_first_is_not():
    sums = recorded(NOT_MADE, NOT_MADE)
    assert sums.recall(digest_of(A)) is None
    assert (sums.seq, sums.counted) == (2, {})
    with refused(StateError, code="other-task"):
        recorded(MADE, MADE).recall(digest_of(B))


def test_questions_come_up_to_the_first_that_nobody_can_guess():
    study = Study(
        name="s",
        method="summary",
        variables=("u", "v"),
        sites=NAMES,
        parameters={"n_lags": 1, **COMPARE},
    )
    first = next_questions(study)
    assert [task.name for task in first] == [VIEW, LOOK]
    entries: list[Entry] = batch_entries(
        0, list(map(digest_of, first)), [Sum(np.array([6.0, 6, 0, 0]), NAMES), NOT_MADE]
    )
    assert [digest_of(task) for task in next_questions(study, entries)] == [digest_of(first[1])]


class Counted:
    """A federation where so many sites do not fit."""

    answered_tasks = None
    variables, sites = ("u",), NAMES

    def __init__(self, n_odd):
        self.n_odd, self.asked = n_odd, []

    def state_of(self, site):
        return None

    def sum(self, task):
        self.asked.append(task)
        return Sum(np.array([float(self.n_odd), 0.0]), NAMES)


COMPARISON = Task(
    AgreementQuestion(n_lags=1, variables=("u",), n_sites=6.0, total=np.zeros(1), squares=np.zeros(1))
)


def compared(n_odd, keepers, on_disagreement="exclude"):
    parameters = {"n_lags": 1, "prepare.on_disagreement": on_disagreement}
    privacy = {"keepers": ["k", "l"]} if keepers else {}
    study = Study(
        name="s", method="summary", variables=("u",), sites=NAMES, parameters=parameters, privacy=privacy
    )
    within = Counted(n_odd)
    federation = Compared(within, study)
    federation.sum(COMPARISON)
    federation.sum(B)
    return within.asked[-1].question.abstain


@pytest.mark.parametrize("keepers", [False, True])
def test_who_does_not_fit_stays_out_before_anybody_has_counted_unless_only_told(keepers):
    assert compared(0, keepers)
    assert not compared(0, keepers, "warn")


def test_a_second_sum_with_sites_that_stayed_out_is_asked_for_only_in_the_clear():
    assert not compared(3, keepers=False)
    with refused(FederationError, 3, code="many-disagree"):
        compared(3, keepers=True)


def is_greeting(message):
    return read_request(message).kind == "hello" and bool(read_request(message).arrays)


def test_parts_for_keepers_travel_with_the_greeting_too(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "vdaf_of", additive)
    kept = Kept(tmp_path, n_sites=3, n_rows=60)
    exact = {"keepers": KEEPERS, "protection": "exact", "min_sites": 3}
    quick = {"method": "summary", "parameters": {"n_lags": 1, **AS_THEY_ARE}, "privacy": exact}
    seldom = kept.study(**quick, attendance={"when_missing": "collect"})
    found = engine.conduct(seldom, kept.exchange, tmp_path / "seldom", run="run-1")
    (greeted,) = [reply for name, message, reply in kept.sent if name == "s0" and is_greeting(message)]
    first = read_reply(read_reply(greeted).arrays[FIRST].tobytes())
    assert first.arrays.keys() == {f"part/{keeper}" for keeper in KEEPERS}
    expected = kept.run(kept.study(name="often", **quick), run="run-2")
    for name, array in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array, err_msg=name)
