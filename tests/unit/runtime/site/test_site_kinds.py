"""Several modules: kinds in a site's settings and in a study, read by the one and compared at the greeting."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import feddbn.analysis.studies  # noqa: F401
from feddbn.data import read_sites
from feddbn.errors import FileError, ParameterError, SiteRefused
from feddbn.federation.protocol.study import Study, parse_study, study_from_json
from feddbn.privacy.policy import SitePolicy
from feddbn.runtime.server.conduct import run_study
from feddbn.runtime.server.coordinator import Coordinator
from feddbn.runtime.settings import SiteSettings, read_site_settings
from feddbn.runtime.site.check import check_settings
from feddbn.runtime.site.open_site import open_site, read_data, study_checks
from support.faults import LocalExchange, MemoryJournal
from support.saying import kept_out, only
from support.saying import refused as refusing
from support.study_files import ABOUT, ABOUT_LINE

KINDS = '[kinds]\nward = ["north", "south"]\nvisits = "count"\n'
WARDS = {"ward": ["north", "south"], "visits": "count"}


def settings_of(tmp_path: Path, more: str = KINDS, name: str = "north") -> SiteSettings:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(120, 2)), columns=["pulse", "breath"])
    frame["ward"] = rng.choice(["north", "south"], 120)
    frame["visits"] = rng.poisson(1.5, 120)
    (tmp_path / "data").mkdir()
    frame.to_csv(tmp_path / "data" / "one.csv", index=False)
    path = tmp_path / "site.toml"
    path.write_text(f'name = "{name}"\ndata = "data"\nstate = "state"\n{more}', encoding="utf-8")
    return read_site_settings(path)


def study(kinds: Any = None, **more: Any) -> Study:
    parameters = {"n_lags": 1} if kinds is None else {"n_lags": 1, "kinds": kinds}
    values = {"name": "s", "method": "fdbnl", "sites": ["north", "south"], "parameters": parameters}
    return Study(**{**values, "about": ABOUT, "variables": ["pulse", "breath", "ward", "visits"], **more})


def refused(settings: SiteSettings, plan: Study) -> str:
    """What the site says at the greeting about kinds; empty if it would take part."""
    # Whether kinds are declared is asked of settings alone.
    data = read_sites({"a": np.zeros((9, 2))})["a"]
    for check in study_checks(settings, SitePolicy(require_masking=False, min_sites=2), data):
        try:
            check(plan)
        except SiteRefused as error:
            if error.code == "other-kinds":
                return str(error)
    return ""


def test_levels_of_the_settings_are_read_as_positions_also_for_fewer_variables(tmp_path):
    settings = settings_of(tmp_path)
    raw = pd.read_csv(tmp_path / "data" / "one.csv")
    expected = (raw["ward"] == "south").to_numpy(dtype=float)
    for names in (None, ("ward", "pulse"), ("pulse",)):
        data = read_data(settings, names)
        (block,) = next(iter(data.recordings())).blocks()
        if "ward" in data.variables:
            assert np.array_equal(block.values[:, list(data.variables).index("ward")], expected)


def test_a_kind_that_is_not_known_is_refused_with_the_settings_file(tmp_path):
    with refusing(FileError, "site.toml", "kinds", "'cuont'"):
        settings_of(tmp_path, '[kinds]\nvisits = "cuont"\n')


def test_the_same_kinds_agree(tmp_path):
    settings = settings_of(tmp_path)
    assert refused(settings, study(WARDS)) == ""
    # What numbers are may stay open on either side.
    assert refused(settings, study({"ward": ["north", "south"]})) == ""
    assert refused(settings, study({**WARDS, "pulse": "positive"})) == ""
    assert refused(settings, study({"visits": "count"}, variables=["pulse", "visits"])) == ""


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ({**WARDS, "ward": ["south", "north"]}, ("ward", "(south, north)", "(north, south)")),
        ({**WARDS, "ward": {"ordinal": ["north", "south"]}}, ("ward", "ordinal", "categorical")),
        ({**WARDS, "visits": "positive"}, ("visits", "positive", "count")),
        (None, ("ward", "categorical")),
    ],
)
def test_other_levels_kinds_or_orders_are_refused_in_one_sentence(tmp_path, kinds, words):
    sentence = refused(settings_of(tmp_path), study(kinds))
    assert all(word in sentence for word in words)
    assert sentence.count(".") == 1


def test_names_of_levels_must_be_declared_by_the_site_too(tmp_path):
    settings = settings_of(tmp_path, "")
    named = study({"ward": {"binary": ["1", "2"]}}, variables=["pulse", "ward"])
    assert "binary (1, 2)" in refused(settings, named)
    assert refused(settings, study({"ward": {"ordinal": 3}}, variables=["ward", "pulse"])) == ""


def test_site_check_tells_values_that_a_study_cannot_mean(tmp_path):
    settings_of(tmp_path, 'variables = ["pulse", "visits"]')
    found = check_settings(
        tmp_path / "site.toml", study({"pulse": "positive"}, variables=["pulse", "visits"])
    )
    assert any("'pulse'" in one.values["sentence"] for one in found if one.code == "study-refused")


def test_site_check_says_it_before_a_study_is_sent(tmp_path):
    settings_of(tmp_path)
    found = check_settings(tmp_path / "site.toml", study({**WARDS, "ward": ["south", "north"]}))
    assert "other-kinds" in [one.values["why"] for one in found if one.code == "study-refused"]
    assert only(found, "data-read").level == "good"


def test_a_study_with_kinds_travels_and_wrong_ones_are_refused_where_it_is_read():
    plan = study(WARDS)
    assert study_from_json(plan.to_json()) == plan
    assert plan.kinds["ward"].levels == ("north", "south")
    text = f'name = "s"\nmethod = "fdbnl"\nvariables = ["a", "b"]\nsites = ["x", "y"]\n{ABOUT_LINE}[parameters.kinds]\n'
    assert parse_study(f'{text}a = "count"\n').kinds["a"].name == "count"
    for line, words in (('c = "count"', "kinds names 'c'"), ('a = "cuont"', "'cuont'")):
        with pytest.raises(ParameterError, match=words):
            parse_study(f"{text}{line}\n")


def run_over_messages(place: Path, plan: Study, lines: str) -> Any:
    """Run a study at three sites with these lines in their settings."""
    for name in plan.sites:
        (place / name).mkdir(parents=True)
        settings_of(place / name, f'policy = "policy.toml"\n{lines}', name)
        rules = "require_masking = false\nmin_sites = 2\napprove_by_rule = true\n"
        (place / name / "policy.toml").write_text(rules, encoding="utf-8")

    def make(name: str) -> Any:
        return open_site(read_site_settings(place / name / "site.toml"), name, logging.getLogger("test"))

    exchange = LocalExchange(plan.sites, make)
    coordinator = Coordinator(exchange, plan, "run-1", MemoryJournal(), pause_s=0.0, opening_s=0.0)
    return run_study(coordinator, plan)[0]


def test_a_study_runs_where_kinds_agree_and_ends_at_the_greeting_where_they_do_not(tmp_path):
    names = {
        "variables": ["pulse", "breath", "ward", "visits"],
        "sites": ["a", "b", "c"],
        "method": "oneshot",
    }
    plain = study(
        privacy={"secure_aggregation": False}, **{**names, "variables": ["pulse", "breath", "visits"]}
    )
    found = run_over_messages(tmp_path / "same", plain, KINDS)
    assert "visits" in str(found.summary["result"]["warnings"])
    other = study(privacy={"secure_aggregation": False}, **names)
    with kept_out("other-kinds"):
        run_over_messages(tmp_path / "other", other, KINDS)
