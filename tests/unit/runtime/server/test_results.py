"""What a result says beside its network."""

from feddbn.federation.protocol.study import StudyResult
from feddbn.findings import Finding
from feddbn.runtime.server.results import with_findings


def test_what_a_run_has_found_stands_with_what_its_method_has():
    found = [Finding("weight-not-shown", "warning", {"most": 1.5, "n_sites": 3}, ("north",))]
    network = StudyResult({}, {"result": {"findings": [{"code": "a"}], "warnings": []}})
    table = StudyResult({}, {"edges": [], "findings": [{"code": "a"}]})
    for stored in (with_findings(network, found).summary["result"], with_findings(table, found).summary):
        assert [one["code"] for one in stored["findings"]] == ["a", "weight-not-shown"]
        assert len(stored["warnings"]) == 1
    assert with_findings(table, []) is table
