from __future__ import annotations

import pytest

from feddbn.findings import Finding
from feddbn.report.record import read_record
from feddbn.report.verdicts import verdicts
from feddbn.words import card
from support.report_results import example_result


@pytest.mark.parametrize("audience", ["python", "cli", "lead"])
def test_every_verdict_on_a_result_is_a_question_with_an_answer(audience):
    status = {"name": "STALLED", "message": "stopped early", "converged": False}
    facts = {"residuals": {"violations": ["memory", "tails"], "memory_p": 1e-9}, "varsortability": 0.95}
    stored = example_result() | {"status": status, "diagnostics": facts, "privacy": None}
    for one in verdicts(read_record(stored)):
        words = card(one, audience)
        assert words.question.endswith("?")
        assert words.answer.endswith(".")
        if audience != "python":
            assert "OneShotDBN(" not in str(words)


def test_numbers_that_a_result_does_not_have_are_left_out():
    values = {"answer": "no", "violations": ["memory", "tails"], "memory_p": 1e-9}
    detail = card(Finding("verdict-residuals", "error", values)).detail
    assert detail == "Residuals go along with earlier ones (p 1e-09); the noise has heavy tails."


def test_how_to_ask_for_another_method_is_said_as_the_reader_asks():
    found = Finding(
        "verdict-order", "warning", {"answer": "scales", "method": "FDBNL", "varsortability": 0.9}
    )
    assert "OneShotDBN(noise_variance='free')" in card(found).advice
    assert "--method oneshot -p noise_variance=free" in card(found, "cli").advice
    assert 'method = "oneshot" and noise_variance = "free"' in card(found, "lead").advice
