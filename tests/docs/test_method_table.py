"""Whatever lists methods says what the method table says."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from itertools import groupby
from pathlib import Path

import pytest

import feddbn
from feddbn.federation.protocol.site import site_tasks
from feddbn.method_table import METHODS, STUDY_METHODS, find_method
from feddbn.privacy.policy import SitePolicy

ROOT = Path(__file__).parents[2]


def name_of(method):
    return f"`{method.cls}`" + (f" ({method.label})" if method.label != method.cls else "")


def markdown(heads, parts):
    lines = [heads, "|---" * heads.count(" | ") + "|---|"]
    for method in METHODS.values():
        lines.append("| " + " | ".join([name_of(method), *(getattr(method, part) for part in parts)]) + " |")
    return "\n".join(lines)


def found_by():
    ordered = sorted(METHODS.values(), key=lambda method: method.citation)
    for citation, methods in groupby(ordered, key=lambda method: method.citation):
        yield f"- {', '.join(f'`{method.cls}`' for method in methods)}: {citation}."


def test_the_table_of_the_page_is_the_method_table():
    heads = "| method | assumes | what leaves a site | rounds | result |"
    text = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    expected = markdown(heads, ("assumes", "reveals", "rounds", "gives"))
    assert expected in text, f"put this table into docs/choosing.md:\n{expected}"


def test_the_page_of_settings_is_what_the_settings_say():
    sys.path.insert(0, str(ROOT / "tools"))
    from settings_page import PAGE, page

    assert PAGE.read_text(encoding="utf-8") == page(), "python tools/settings_page.py writes it"


def test_the_page_about_choosing_says_who_found_each_method():
    text, expected = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8"), "\n".join(found_by())
    assert expected in text, f"put these lines into docs/choosing.md:\n{expected}"


def test_the_package_offers_the_classes_of_the_table_to_people_and_to_type_checkers():
    assert {method.cls for method in METHODS.values()} <= set(feddbn.__all__)
    source = (ROOT / "src" / "feddbn" / "__init__.py").read_text(encoding="utf-8")
    assert set(re.findall(r"import (\w+) as \1\n", source)) == set(feddbn._WHERE)


@pytest.mark.parametrize("name", METHODS)
def test_every_row_leads_to_a_class_that_can_do_what_the_row_says(name):
    method = METHODS[name]
    cls = method.load()
    assert cls.__name__ == method.cls
    names = {one.name for one in fields(cls.settings)}
    assert set(cls().get_params(deep=False)) == names
    assert cls.is_selectable == bool(method.selects)
    assert set(method.selects) <= set(method.parameters())
    assert hasattr(cls, "fit_moments") == method.resamples
    for known in (method.name, method.cls, method.cls.upper(), method.label):
        assert find_method(known) is method


def test_the_default_policy_allows_the_methods_of_studies_and_their_tasks():
    policy = SitePolicy()
    names = [method.name for method in STUDY_METHODS]
    assert names == ["oneshot", "changing", "mixed", "fdbnl", "pfdbnl", "latent", "summary"]
    assert policy.methods == tuple(method.cls for method in STUDY_METHODS)
    assert set(policy.tasks) <= set(site_tasks())
    for method in STUDY_METHODS:
        policy.check_study(method.name, 3, True, None)
