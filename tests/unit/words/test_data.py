from __future__ import annotations

import pytest

from feddbn.findings import LEVELS, Finding
from feddbn.words import card, say
from feddbn.words.data import _SENTENCES


@pytest.mark.parametrize(
    ("finding", "audience", "advice"),
    [
        (
            Finding(
                "glued",
                "warning",
                {"site": "a", "how": "names", "n_starts": 1},
                ("patient", "hour"),
                {"series": "patient", "time": "hour"},
            ),
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
)
def test_cures_are_written_as_their_reader_writes_them(finding, audience, advice):
    assert card(finding, audience).advice == advice


ANY = {
    "site": "a",
    "n_values": 3,
    "n_starts": 2,
    "n": 2,
    "n_text": 1,
    "n_numbers": 0,
    "value": -9.0,
    "n_rows": 5,
    "period": 24.0,
    "factor": 3.0,
    "same_recording": "r",
    "same_site": "b",
    "usable": 5,
    "rows": 9,
    "n_lags": 1,
    "share": 0.01,
    "most": 0.2,
    "step": "1 unit",
    "recordings": 2,
    "sites": 3,
    "columns": 4,
    "fewest": 4.0,
    "periods": [24.0],
    "of": 5,
}


@pytest.mark.parametrize("name", _SENTENCES)
@pytest.mark.parametrize("audience", ["python", "cli", "owner", "lead"])
def test_every_template_can_be_filled(name, audience):
    code, _, variant = name.partition("/")
    level = variant if variant in LEVELS else "warning"
    words = card(Finding(code, level, {**ANY, "how": variant}, ("x", "y"), {"time": "x"}), audience)
    assert words.detail.endswith(".")
    assert "{" not in f"{words.detail}{words.advice}".replace("{ ", "")


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
