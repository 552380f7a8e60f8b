from __future__ import annotations

import pytest

from feddbn.findings import Finding
from feddbn.words import card, say


@pytest.mark.parametrize(
    ("finding", "audience", "advice"),
    [
        (
            Finding("glued", "warning", {"site": "a", "how": "names", "n_starts": 1}, ("patient", "hour"),
                    {"series": "patient", "time": "hour"}),
            "cli",
            "Cure: --series patient --time hour.",
        ),
        (
            Finding("shuffled-time", "warning", {"site": "a"}, ("t",), {"time": "t", "sort": True}),
            "owner",
            'Cure: time = "t", sort = true.',
        ),
        (
            Finding("kinds", "note", {"kinds": {"n": "count"}}, ("n",), {"kinds": {"n": "count"}}),
            "python",
            "Cure: if so, use MixedDBN(kinds={'n': 'count'}); other methods treat numbers as lines and refuse text.",
        ),
    ],
)  # fmt: skip
def test_cures_are_written_as_their_reader_writes_them(finding, audience, advice):
    assert card(finding, audience).advice == advice


def test_where_something_was_found_stands_before_it_with_how_many_other_sites_have_it():
    values = {"site": "a", "value": -999.0, "n": 2, "n_sites": 3}
    text = say(Finding("sentinel", "warning", values, ("x",)))
    assert text.startswith("site 'a' and 2 more: column 'x': -999 stands there 2 times")


def test_a_refusal_is_parted_from_its_cure_and_names_options():
    text = "site 'a' lacks column 'b'; choose common ones with variables=."
    found = card(Finding("refused", "error", {"text": text, "why": ""}), "cli")
    assert (found.detail, found.advice) == (
        "site 'a' lacks column 'b'.",
        "Cure: choose common ones with --variables.",
    )
