"""Findings in their order, single and summed up."""

from __future__ import annotations

import json

from feddbn.findings import Finding, Findings, together

MEANS = Finding("own-courses", "note", {"evidence": 12.0}, ("x",), {"prepare.center": "none"})
SCALES = Finding("own-scales", "warning", {"evidence": 3.0}, ("x", "y"))


def test_one_finding_alone_stays_as_it_is_and_several_are_one():
    assert together("rows-treated", []) == []
    assert together("rows-treated", [MEANS]) == [MEANS]
    (found,) = together("rows-treated", [MEANS, SCALES])
    assert (found.code, found.level, found.about) == ("rows-treated", "warning", ("x", "y"))
    assert found.parts == (SCALES, MEANS)


def test_what_is_summed_up_is_found_by_its_code_and_comes_back_from_a_file():
    findings = Findings([Finding("a", "note"), *together("rows-treated", [MEANS, SCALES])])
    assert sorted(findings.codes) == ["a", "own-courses", "own-scales"]
    assert findings.of("own-courses") == [MEANS]
    assert [one.code for one in findings] == ["rows-treated", "a"]
    assert len(findings.of("rows-treated")) == 1
    stored = json.loads(json.dumps([one.to_dict() for one in findings]))
    assert Findings.stored_in({"findings": stored}) == findings
