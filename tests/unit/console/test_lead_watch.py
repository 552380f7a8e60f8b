import threading

import pytest

from feddbn.console.lead_watch import MOST_POINTS, _longer
from feddbn.errors import FederationError
from support.console_kits import FakeSession, wait_until, watching

pytestmark = pytest.mark.usefixtures("light")


@pytest.fixture
def session(tmp_path):
    return FakeSession(tmp_path / "lead")


def test_sites_jobs_and_the_course_of_a_run_are_seen(session):
    session.add("run-1")
    with watching(session) as watch:
        for sums in (1, 2, 5):
            session.said["job-run-1"] = {"sums": sums, "note": {"h": 1.0 / sums}}
            wait_until(
                lambda sums=sums: (
                    watch.look().points.get("run-1", [None])[-1]
                    and watch.look().points["run-1"][-1].sums == sums
                )
            )
        sight = watch.look()
        assert [point.sums for point in sight.points["run-1"]] == [1, 2, 5]
        assert sight.connected == ("north", "south", "west")
        session.connected = ["north"]
        wait_until(lambda: watch.look().connected == ("north",))
        gone = watch.look()
        assert gone.seen["south"] < gone.seen["north"] == gone.taken


def test_a_server_that_goes_away_is_said_and_found_again(session):
    with watching(session) as watch:
        wait_until(lambda: watch.look().taken)
        session.down = "nobody."
        wait_until(lambda: watch.look().trouble)
        since = watch.look().trouble_since
        assert watch.look().connected == ()
        with pytest.raises(FederationError, match=session.down):
            watch.do(lambda session: session.sites(), 5.0)
        assert watch.look().trouble_since == since
        session.down = ""
        wait_until(lambda: not watch.look().trouble)
        assert watch.look().connected


def test_everything_is_asked_by_one_thread(session):
    with watching(session) as watch:
        assert watch.do(lambda session: session.sites()) == ["north", "south", "west"]
        wait_until(lambda: watch.look().taken)
    assert len(session.threads) == 1
    assert threading.get_ident() not in session.threads


def test_an_error_of_what_is_asked_is_the_askers_and_not_the_watchs(session):
    def odd(session):
        raise ValueError("odd")

    with watching(session) as watch:
        with pytest.raises(ValueError, match="odd"):
            watch.do(odd)
        assert watch.do(lambda session: 7) == 7
        assert not watch.look().trouble


def test_a_long_course_stays_bounded():
    course = ()
    for sums in range(1, MOST_POINTS + 500):
        course = _longer(course, {"sums": sums, "note": {}}, float(sums))
    assert len(course) <= MOST_POINTS
    assert course[0].sums == 1
    assert course[-1].sums == MOST_POINTS + 499
    assert _longer(course, {"sums": course[-1].sums}, 0.0) is course
