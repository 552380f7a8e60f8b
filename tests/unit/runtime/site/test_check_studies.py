"""A study that checks data, at sites with their owners' default policies: words, approval, masks, files."""

import json

import pytest

from feddbn.errors import NotEnoughSites
from feddbn.federation.protocol.study import StudyResult
from feddbn.runtime.server.results import export_result
from feddbn.runtime.settings import read_policy
from feddbn.runtime.site.check import why_refused
from feddbn.runtime.site.open_site import read_data
from feddbn.runtime.site.page import about_study
from support.consortium import NAMES, Consortium, make_study
from support.saying import only
from support.states import entries_of

CHECK = make_study(goal="check", parameters={"n_lags": 1})


@pytest.fixture
def sites(tmp_path):
    pytest.importorskip("cryptography")
    return Consortium(tmp_path)


def test_the_owner_reads_that_nothing_is_learned_and_how_much_leaves(sites):
    told = about_study(CHECK, sites.settings())
    assert only(told, "study-goal").values["goal"] == "check"
    assert [one.values["task"] for one in told if one.code == "study-asks"] == [
        "counts.variables",
        "survey.first",
    ]
    assert only(told, "study-size")
    settings = sites.settings()
    assert why_refused(settings, read_policy(settings.policy), read_data(settings), CHECK) == []


def test_a_check_runs_under_masks_and_leaves_findings(sites, tmp_path):
    sites.approve(CHECK)
    result, received = sites.run(CHECK)
    assert received == NAMES
    assert result.arrays == {}
    (rows,) = [one for one in result.summary["findings"] if one["code"] == "all-rows"]
    assert rows["values"].items() >= {"rows": 90, "recordings": 3, "sites": 3}.items()
    (tmp_path / "result.feddbn").write_bytes(result.to_bytes())
    stored = export_result(tmp_path)
    assert isinstance(stored, StudyResult)
    assert json.loads((tmp_path / "findings.json").read_text()) == list(result.summary["findings"])
    # What left each site was masked: which variables vary, and the first look.
    log = entries_of(sites.state(), "run-1")
    assert [entry.task for entry in log if entry.event == "sent"][:2] == ["counts.variables", "survey.first"]


def test_an_approval_of_the_network_is_none_of_its_check(sites):
    sites.approve(make_study())
    with pytest.raises(NotEnoughSites) as error:
        sites.run(CHECK)
    assert set(error.value.values["reasons"].values()) == {"not-approved"}
