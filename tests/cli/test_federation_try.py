"""``feddbn federation try``: what it refuses before anything is started; the rest is an integration test."""

from __future__ import annotations

import signal
import sys
import time

import pytest

from feddbn.cli import federation


def test_a_directory_with_files_is_not_written_into(refuses, tmp_path):
    (tmp_path / "thesis.txt").touch()
    assert f"--keep {str(tmp_path)!r}" in refuses("federation", "try", "--keep", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_page_that_will_be_deleted_is_not_opened_where_nobody_waits(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("webbrowser.open", lambda address: pytest.fail("opened"))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    federation._show(tmp_path / "report.html", is_kept=False)
    assert "--keep" in capsys.readouterr().err


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_requests_to_end_are_like_ctrl_c_and_a_second_one_disturbs_nothing(ending, capsys):
    before = signal.getsignal(ending)
    cleaned = []

    def work_and_clean_up():
        try:
            with federation._then_undisturbed():
                signal.raise_signal(ending)
                time.sleep(10)
        finally:
            signal.raise_signal(ending)
            cleaned.append(True)

    with pytest.raises(KeyboardInterrupt), federation._ends_in_order():
        work_and_clean_up()
    assert cleaned
    assert signal.getsignal(ending) is before
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_study_is_one_that_sites_accept_by_their_default_policy(tmp_path):
    from feddbn.cli.study import read_study
    from feddbn.federation.guards.study_plan import tasks_of
    from feddbn.privacy.policy import ALWAYS_ALLOWED, SitePolicy

    study = read_study(federation._write_study(tmp_path / "study.toml", ("a", "b")))
    assert study.privacy.secure_aggregation
    assert study.privacy.min_sites == len(study.sites) == 3
    assert set(tasks_of(study)) <= {*SitePolicy().tasks, *ALWAYS_ALLOWED}
