import pytest

pytest.importorskip("cryptography")
from feddbn.errors import ParameterError, SiteRefused
from feddbn.federation.protocol.messages import SiteRecord
from feddbn.federation.protocol.study import StudyResult, study_from_json
from feddbn.privacy.keys import Identity
from feddbn.runtime.server.coordinator import Coordinator
from feddbn.runtime.site import owner as module
from feddbn.runtime.site.owner import APPROVALS, Approvals
from feddbn.runtime.store import FileStore, Store, prune_runs
from support.consortium import NAMES, Consortium, make_study
from support.crash import crash_points, killed_at
from support.faults import MemoryJournal, looked_before
from support.saying import kept_out, refused

OWNER, STRANGER = Identity.from_seed(bytes([1]) * 32), Identity.from_seed(bytes([2]) * 32)
DAY = 86400.0


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self):
        self.now = 1_800_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def approvals(tmp_path, clock):
    return Approvals(tmp_path, "north", OWNER, clock)


def stored(tmp_path):
    """The one approval as it is kept: its name and its text."""
    (digest,) = Store(tmp_path).names(APPROVALS)
    return digest, Store(tmp_path).get(APPROVALS, digest)


def test_a_study_that_was_not_approved_is_refused_with_the_command_to_type(approvals):
    with refused(SiteRefused, "`feddbn site approve", code="not-approved"):
        approvals.check("run-1", make_study())


def test_one_run_is_allowed_and_going_on_with_it_too(approvals, tmp_path, clock):
    study = make_study()
    approvals.give(study)
    approvals.check("run-1", study)
    approvals.check("run-1", study)
    again = Approvals(tmp_path, "north", OWNER, clock)
    again.check("run-1", study)
    with refused(SiteRefused, "run-1", code="approval-used-up"):
        again.check("run-2", study)


@pytest.mark.parametrize(
    "change",
    [
        {"sites": ("north", "south", "west", "east")},
        {"parameters": {"n_lags": 2}},
        {"variables": ("v", "u")},
        {"lead": "somebody@example.org"},
        {"privacy": {"secure_aggregation": True, "min_sites": 2}},
        {"attendance": {"when_missing": "continue"}},
        {"units": {"u": "mm"}},
        {"goal": "confidence"},
        {"goal": "select"},
        {"goal": "compare", "compare": {"against": ("fdbnl",)}},
        {"goal": "compare", "compare": {"share": 0.1}},
        {"name": "t"},
        {"method": "fdbnl"},
    ],
)
def test_any_change_makes_another_study(approvals, change):
    approvals.give(make_study(parameters={"n_lags": 1}))
    other = make_study(**{"parameters": {"n_lags": 1}, **change})
    # The text that the digest is of says all of it.
    assert study_from_json(other.to_json()) == other
    with refused(SiteRefused, code="not-approved"):
        approvals.check("run-1", other)


def test_an_approval_ends(approvals, clock):
    study = make_study()
    approvals.give(study, days=2, runs=2)
    approvals.check("run-1", study)
    clock.now += 2 * DAY
    for run in ("run-1", "run-2"):
        with refused(SiteRefused, code="approval-expired"):
            approvals.check(run, study)
    assert approvals.find(study)[1] == "expired"


def test_an_approval_can_be_taken_back_and_given_again(approvals):
    study = make_study()
    given = approvals.give(study)
    approvals.check("run-1", study)
    approvals.revoke(given.digest[:8])
    with refused(SiteRefused, code="approval-revoked"):
        approvals.check("run-1", study)
    with refused(ParameterError, "'s'", code="which-approval"):
        approvals.revoke("s")
    approvals.give(study)
    approvals.check("run-1", study)


def test_a_name_that_two_studies_have_is_not_enough_to_revoke(approvals):
    for lag in (1, 2):
        approvals.give(make_study(parameters={"n_lags": lag}))
    with refused(ParameterError, "'s'", code="which-approval"):
        approvals.revoke("s")
    with refused(ParameterError, code="which-approval"):
        approvals.revoke("")


def test_after_an_update_the_owner_is_asked_again(approvals, monkeypatch):
    study = make_study()
    approvals.give(study)
    monkeypatch.setattr(module, "__version__", "99.0")
    with refused(SiteRefused, "99.0", code="approval-other-version"):
        approvals.check("run-1", study)


def test_all_runs_together_may_cost_what_was_approved(approvals):
    study = make_study(privacy={"secure_aggregation": True, "epsilon": 2.0})
    assert approvals.give(study, runs=3).epsilon == 6.0
    approvals.give(study, runs=3, epsilon=5.0)
    approvals.check("run-1", study)
    approvals.check("run-2", study)
    with refused(SiteRefused, "epsilon 5", "6", code="approval-over-epsilon"):
        approvals.check("run-3", study)


@pytest.mark.parametrize(
    ("values", "privacy"),
    [
        ({"days": 0}, {}),
        ({"days": float("nan")}, {}),
        ({"runs": 0}, {}),
        ({"epsilon": 1.0}, {}),
        ({"epsilon": 1.0}, {"epsilon": 2.0}),
        ({"epsilon": float("inf")}, {"epsilon": 2.0}),
    ],
)
def test_impossible_approvals_are_refused(approvals, values, privacy):
    (name,) = values
    with refused(ParameterError, f"--{name}"):
        approvals.give(make_study(privacy=privacy), **values)


def test_an_approval_of_another_key_site_or_study_approves_nothing(approvals, tmp_path, clock):
    study = make_study()
    Approvals(tmp_path, "north", STRANGER, clock).give(study)
    with refused(SiteRefused, code="bad-approval"):
        approvals.check("run-1", study)
    Approvals(tmp_path, "south", OWNER, clock).give(study)
    with refused(SiteRefused, code="bad-approval"):
        approvals.check("run-1", study)
    approvals.give(study)
    other = make_study(name="t")
    Store(tmp_path).put(APPROVALS, other.digest, stored(tmp_path)[1])
    Store(tmp_path).drop(APPROVALS, study.digest)
    with refused(SiteRefused, code="bad-approval"):
        approvals.check("run-1", other)
    assert len(approvals.damaged()) == 1
    assert approvals.all() == []


def test_an_approval_that_ends_anywhere_approves_nothing_and_can_be_replaced(approvals, tmp_path, clock):
    study = make_study()
    approvals.give(study)
    approvals.check("run-1", study)
    digest, whole = stored(tmp_path)
    for length in range(len(whole) - 1):
        Store(tmp_path).put(APPROVALS, digest, whole[:length])
        with refused(SiteRefused, code="bad-approval"):
            Approvals(tmp_path, "north", OWNER, clock).check("run-1", study)
    approvals.give(study)
    approvals.check("run-1", study)


def begin_runs(say, place, attempt):
    approvals = Approvals(place, "north", OWNER, Clock())
    for number in range(4):
        approvals.check(f"run-{attempt}-{number}", make_study())
        say(f"run-{attempt}-{number}")


def test_a_run_that_was_counted_stays_counted_through_a_kill_at_each_commit(approvals, tmp_path, clock):
    approvals.give(make_study(), runs=100_000)
    n_used = 4
    for attempt, point in enumerate(crash_points(begin_runs, tmp_path, "calm")):
        counted = killed_at(point, begin_runs, tmp_path, attempt)
        ((approval, state),) = Approvals(tmp_path, "north", OWNER, clock).all()
        assert set(counted) <= set(approval.used)
        # At most the run that was being counted when the process died is more.
        assert len(approval.used) - n_used - len(counted) in (0, 1)
        assert state == "valid"
        n_used = len(approval.used)
    assert n_used > 4


def test_approvals_are_not_pruned(approvals, tmp_path):
    approvals.give(make_study())
    FileStore(tmp_path, "a").save(SiteRecord("old-run", "a", "{}", "1"))
    FileStore(tmp_path, "a").keep("old-run", StudyResult({}, {}), {})
    looked_before(tmp_path, 4e9)
    assert prune_runs(tmp_path, 1.0, now=4e9) == ["old-run"]
    assert stored(tmp_path)


def test_deployed_sites_answer_approved_studies_only(tmp_path):
    sites, study = Consortium(tmp_path), make_study()
    with kept_out("not-approved", "north", "south", "west"):
        sites.run(study, "run-0")
    sites.approve(study, ("north", "south"))
    with kept_out("not-approved", "west"):
        sites.run(study, "run-1")
    sites.approve(study)
    _, received = sites.run(study, "run-1")
    assert received == ("north", "south", "west")
    with kept_out("approval-used-up"):
        sites.run(study, "run-2")


def test_a_run_that_stopped_before_any_number_left_uses_no_approval_up(tmp_path):
    sites, study = Consortium(tmp_path), make_study()
    sites.approve(study, ("north", "south"))
    with kept_out("not-approved", "west"):
        sites.run(study, "run-1")
    assert [sites.owner(name).approvals.find(study)[0].used for name in ("north", "south")] == [(), ()]
    sites.approve(study, ("west",))
    earlier = stored(sites.state())
    assert sites.run(study, "run-2")[1] == NAMES
    assert sites.owner().approvals.find(study)[0].used == ("run-2",)
    with kept_out("approval-used-up", *NAMES):
        sites.run(study, "run-3")
    # Nor does the approval as it was before win a run back.
    Store(sites.state()).put(APPROVALS, *earlier)
    with kept_out("approval-used-up", "north"):
        sites.run(study, "run-4")


def test_of_two_runs_that_were_greeted_one_uses_the_approval(tmp_path):
    sites, study = Consortium(tmp_path), make_study()
    sites.approve(study)
    ends = {run: sites.restart() for run in ("run-1", "run-2")}
    for run, exchange in ends.items():
        Coordinator(exchange, study, run, MemoryJournal(), opening_s=0.0).hello()
    assert sites.run(study, "run-2", ends["run-2"])[1] == NAMES
    with kept_out("approval-used-up", *NAMES):
        sites.run(study, "run-1", ends["run-1"])
    assert sites.owner().approvals.find(study)[0].used == ("run-2",)


def test_a_restarted_site_asks_its_approvals_again_and_a_resumed_run_is_the_same(tmp_path):
    sites, study, journal = Consortium(tmp_path), make_study(), MemoryJournal()
    sites.approve(study)
    sites.run(study, "run-1", journal=journal)
    sites.run(study, "run-1", journal=journal)
    sites.owner("north").revoke("s")
    with kept_out("approval-revoked", "north"):
        sites.run(study, "run-1", journal=journal)


def test_a_run_under_way_ends_when_its_approval_is_taken_back(tmp_path):
    sites = Consortium(tmp_path)
    study = make_study(method="pfdbnl", parameters={"n_lags": 1})
    sites.approve(study)
    exchange, asked = sites.restart(), []

    def until_revoked(messages):
        asked.append(len(messages))
        if len(asked) == 12:
            sites.owner("south").revoke("s")
        return exchange(messages)

    with kept_out("approval-revoked", "south"):
        sites.run(study, exchange=until_revoked)


def test_the_policy_alone_may_decide(tmp_path):
    sites = Consortium(tmp_path, policy="approve_by_rule = true\n")
    assert sites.run(make_study())[1] == ("north", "south", "west")


def test_a_site_without_a_key_says_what_it_needs(tmp_path):
    sites = Consortium(tmp_path)
    path = tmp_path / "north" / "feddbn_site.toml"
    path.write_text(path.read_text().replace('identity = "identity.key"\n', ""))
    study = make_study(privacy={})
    for name in ("north", "south", "west"):
        (tmp_path / name / "policy.toml").write_text("require_masking = false\n")
    sites.approve(study, ("south", "west"))
    with kept_out("no-key", "north"):
        sites.run(study)


def test_somebody_else_than_the_lead_is_refused(tmp_path):
    sites, study = Consortium(tmp_path), make_study()
    sites.approve(study)
    with kept_out("other-lead"):
        sites.run(study, exchange=sites.restart(submitter="other@example.org"))
    assert sites.run(study, exchange=sites.restart(submitter="lead@example.org"))[1]
