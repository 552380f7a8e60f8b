import json

import pytest

from feddbn.errors import ParameterError, SiteRefused
from feddbn.federation.protocol.study import (
    About,
    Study,
    StudyMethod,
    StudyResult,
    check_about,
    check_name,
    parse_study,
    register_study_method,
    study_from_json,
    study_method,
)
from support.saying import refused
from support.study_files import ABOUT, ABOUT_LINE, as_toml

TEXT = f"""
name = "sepsis"
method = "fdbnl"
variables = ["hr", "bp"]
sites = ["north", "south"]
{ABOUT_LINE}
[parameters]
n_lags = 1
lambda_w = 0.05

[privacy]
min_sites = 2

[attendance]
timeout_s = 30
when_missing = "continue"
min_sites = 2
"""


def test_a_study_file_is_read_and_its_text_is_canonical():
    study = parse_study(TEXT)
    assert (study.n_lags, study.attendance.timeout_s, study.privacy.min_sites) == (1, 30.0, 2)
    assert study_from_json(study.to_json()) == study
    assert study_from_json(study.to_json()).digest == study.digest
    assert Study(name="x", method="m", variables=("a",), sites=("b",)).n_lags is None


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("min_sites = 2\n\n[att", "min_site = 2\n\n[att", "privacy.min_site:"),
        ('"continue"', '"sometimes"', "attendance.when_missing:"),
        ('["north", "south"]', '["north", "north"]', "sites:"),
        ('"sepsis"', '"../x"', "name:"),
        ("timeout_s = 30", "timeout_s = 0", "attendance.timeout_s:"),
        ('method = "fdbnl"', "", "method:"),
        ("[privacy]", "[privacy", "TOML"),
    ],
)
def test_a_wrong_study_file_gives_one_sentence(old, new, name):
    with refused(ParameterError, name):
        parse_study(TEXT.replace(old, new))


def test_a_study_that_is_not_json_is_refused():
    with pytest.raises(ParameterError, match="not valid JSON"):
        study_from_json("{")


@pytest.mark.usefixtures("registries")
def test_an_unknown_method_names_the_known_ones():
    register_study_method(StudyMethod("known-method", lambda *_: iter(())))
    with refused(ParameterError, "nothing"):
        study_method("nothing")
    study_method("known-method").check({})


@pytest.mark.parametrize(
    ("name", "meant"),
    [("OneShotDBN", "oneshot"), ("one_shot", "oneshot"), ("FDBNL", "fdbnl"), ("latnet", "latent")],
)
def test_a_class_or_a_slip_is_refused_with_the_name_of_studies(name, meant):
    """Two spellings would give one study two texts, and two approvals."""
    with refused(ParameterError, f"'{name}'", f"'{meant}'"):
        check_name(name)
    check_name(meant)


def test_a_method_of_one_process_is_none_of_studies():
    with refused(ParameterError, "dynotears"):
        check_name("dynotears")


def test_a_result_survives_encoding():
    import numpy as np

    result = StudyResult({"W": np.eye(2)}, {"rounds": 3})
    again = StudyResult.from_bytes(result.to_bytes())
    np.testing.assert_array_equal(again.arrays["W"], np.eye(2))
    assert again.summary == {"rounds": 3}


def test_a_largest_norm_is_part_of_what_sites_agree_on_and_does_not_go_with_noise():
    text = f'name = "s"\nmethod = "fdbnl"\nvariables = ["u"]\nsites = ["a"]\n{ABOUT_LINE}[privacy]\n'
    plain, bounded = parse_study(text), parse_study(text + "max_norm = 100.0\n")
    assert "max_norm" not in plain.to_json()
    assert bounded.digest != plain.digest
    assert study_from_json(bounded.to_json()).privacy.max_norm == 100.0
    for wrong in ("0.0", "-1.0", "nan", "inf", '"much"'):
        with pytest.raises(ParameterError, match=r"privacy\.max_norm"):
            parse_study(text + f"max_norm = {wrong}\n")
    with refused(ParameterError, "max_norm"):
        parse_study(text + "max_norm = 1.0\nepsilon = 1.0\n")


def make(**changes):
    return Study(
        **{"name": "x", "method": "oneshot", "variables": ("a", "b"), "sites": ("p", "q", "r"), **changes}
    )


@pytest.mark.parametrize("name", ["purpose", "contact", "retention"])
def test_a_study_file_says_what_it_is_for_and_a_site_refuses_one_that_does_not(name):
    text = as_toml(make(about={key: text for key, text in ABOUT.items() if key != name}))
    with refused(ParameterError, name, code="no-purpose"):
        parse_study(text)
    with refused(SiteRefused, name, code="no-purpose"):
        check_about(study_from_json(make(about={**ABOUT, name: " \n "}).to_json()), "the study", SiteRefused)


def test_what_a_study_is_for_is_part_of_its_digest_and_one_line_of_plain_text():
    study = make(about=ABOUT)
    for name in About.model_fields:
        assert make(about={**ABOUT, name: "something else"}).digest != study.digest
        assert getattr(make(about={**ABOUT, name: " two \n\t lines "}).about, name) == "two lines"
        for wrong in ("\x1b[2J", "\u202eback", "x" * 601):
            with pytest.raises(ValueError, match=name):
                make(about={**ABOUT, name: wrong})
    # A study without any has the text that it had, so that earlier approvals and records hold.
    assert "about" not in json.loads(make().to_json())
    assert json.loads(study.to_json())["about"] == ABOUT
