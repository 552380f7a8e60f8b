"""A site answers what its study asks: no other method's tasks, no other lags, variables, folds, weights, sizes or sites."""

import numpy as np
import pytest

from feddbn.core.statistics.survey import profile_length
from feddbn.errors import ProtocolError
from feddbn.federation.guards.study_plan import scope_of, tasks_of
from feddbn.federation.sums.survey import AgreementQuestion, SurveyQuestion, survey_length
from feddbn.runtime.store import STORE
from support.consortium import Consortium, Liar, Refused, by_rule, raw, spread
from support.saying import refused

pytestmark = pytest.mark.promise


@pytest.fixture
def sites(tmp_path):
    return Consortium(tmp_path, spread(3, 3), by_rule())


@pytest.fixture
def liar(sites):
    return Liar(sites, sites.study())


def asked(sites, name, arrays=None, n_lags=1, **more):
    return raw(name, {"n_lags": n_lags, "variables": sites.variables, **more}, arrays)


def moments(sites, n_lags=1, **more):
    return asked(sites, "gram.rows", n_lags=n_lags, **more)


def test_a_study_of_one_method_does_not_answer_another(tmp_path):
    sites = Consortium(tmp_path, spread(3, 3), by_rule("gram.blocks", "residuals.blocks"))
    question = asked(sites, "gram.blocks", block_rows=32, n_blocks=4)
    Liar(sites, sites.study()).refused(question, "task-not-in-study", "gram.blocks")
    assert Liar(sites, sites.study("changing"), "other").sum(question).contributors == sites.names


@pytest.mark.parametrize("n_lags", [0, 3, 10, 40])
def test_lags_are_the_studys(sites, liar, n_lags):
    liar.refused(moments(sites, n_lags), "other-lags", n_lags)
    # Residuals that remember ask for one lag more.
    assert liar.sum(moments(sites, 2)).value.size == 1 + 9 + 45


@pytest.mark.parametrize(
    ("more", "code", "name"),
    [
        ({"clip_bound": 0.5}, "not-in-study", "'clip_bound'"),
        ({"robust": "recording"}, "not-in-study", "'robust'"),
        ({"inputs": [1]}, "not-in-study", "'inputs'"),
        ({"fold": [0, 5, 300]}, "other-fold", "(0, 5, 300)"),
        ({"fold": [0, 2, 300]}, "other-fold", "(0, 2, 300)"),
        ({"center": "recording", "degree": 2}, "not-in-study", "'degree' is 2"),
        ({"center": "recording", "periods": [3.0, 4.0, 5.0, 6.0, 7.0]}, "not-in-study", "5 cycles"),
        ({"try_degrees": [0, 2], "try_cycles": [0, 0]}, "not-in-study", "'try_degrees'"),
        ({"try_degrees": [0] * 16, "try_cycles": [0] * 16}, "not-in-study", "16"),
        ({"abstain": True}, "not-in-study", "'abstain'"),
        ({"variables": ["x1", "x0", "x2"]}, "other-variables", ""),
    ],
)
def test_other_parameters_are_the_studys_too(sites, liar, more, code, name):
    liar.refused(moments(sites, **more), code, name)


@pytest.mark.parametrize(
    ("name", "params", "names"),
    [
        # What nobody knows makes no second question.
        ("gram.rows", {"nonce": 1}, ("gram", "nonce")),
        # Numbers have bounds: a small message takes no large memory.
        ("gram.rows", {"n_lags": 10**6}, ("0",)),
        ("gram.rows", {"periods": [1e300]}, ("2",)),
        (
            "gram.parts",
            {"n_parts": 10**9},
            ("0",),
        ),
    ],
)
def test_a_question_that_cannot_be_is_none(sites, liar, name, params, names):
    with refused(Refused, *names):
        liar.sum(asked(sites, name, {"origin": np.zeros(6)}, **params))


def test_profiles_of_three_sites_stay_at_home(tmp_path, sites, liar):
    liar.refused(asked(sites, "survey.first", profiles="scales"), "few-sites", 3)
    four = Consortium(tmp_path / "four", spread(4, 3), by_rule())
    survey = asked(four, "survey.first", profiles="scales")
    assert Liar(four, four.study()).sum(survey).contributors == four.names
    plainly = Liar(four, four.study(parameters={"prepare.gains": "none"}), "plain")
    plainly.refused(survey, "sites-not-compared")


def test_parts_are_as_many_as_the_study_says(tmp_path):
    sites = Consortium(tmp_path, spread(3, 2), by_rule("gram.parts"))
    liar = Liar(sites, sites.study())
    origin = {"origin": np.zeros(4)}
    for n in (1, 2, 3):
        liar.refused(asked(sites, "gram.parts", origin, n_parts=n), "not-in-study", f"'n_parts' is {n}")
    assert liar.sum(asked(sites, "gram.parts", origin, n_parts=4)).contributors == sites.names


def test_norms_of_units_are_told_with_noise_only(sites, liar):
    def norms(unit="row", **more):
        return asked(sites, "counts.norms", **{"of": "gram.rows", "unit": unit, **more})

    liar.refused(norms(), "task-not-in-study", "counts.norms")
    noisy = Liar(sites, sites.study(privacy={"epsilon": 1.0}), "noise")
    noisy.refused(norms(), "other-unit")
    noisy.malformed(norms("recording", per_octave=20_000), "per_octave")
    noisy.refused(norms("recording", of="gram.diagonal", diagonal=True), "other-norm")


def test_a_run_cannot_be_called_like_a_file_of_the_site(sites):
    Liar(sites, sites.study(), "site.sock")
    assert (sites.state() / "site.sock").is_dir()
    for run in (STORE, "_audit", "_audit.head", "_approvals", "..", "a/b", ".hidden"):
        with refused(ProtocolError, 1, 64, code="bad-run-id"):
            Liar(sites, sites.study(), run)


# A study that only checks data --------------------------------------------------------------------------------------------
@pytest.fixture
def check(tmp_path):
    """Owners that allow more than checks ask for: it is the study that says what is asked."""
    sites = Consortium(tmp_path / "check", spread(4, 3), by_rule("agree", "gram.parts"))
    return sites, Liar(sites, sites.study(goal="check"))


def test_the_survey_is_all_that_a_check_tells(check):
    sites, liar = check
    survey = SurveyQuestion(n_lags=1, variables=sites.variables)
    found = liar.sum(survey).value
    assert len(found) == survey_length(survey)
    assert found[:3].tolist() == [4 * 200, 4, 0]
    for question in (
        moments(sites),
        asked(sites, "gram.pairs", pairs=True),
        asked(sites, "gram.parts", {"origin": np.zeros(6)}, n_parts=4),
        # Sites do not compare themselves unless the study says so.
        AgreementQuestion(
            n_lags=1,
            variables=sites.variables,
            n_sites=4.0,
            total=np.zeros(profile_length(3, 1)),
            squares=np.ones(profile_length(3, 1)),
        ),
    ):
        liar.refused(question, "task-not-in-study")


def test_a_check_does_nothing_to_rows(check):
    sites, liar = check
    liar.refused(asked(sites, "survey.first", center="recording"), "not-in-study", "'means'")


def test_what_a_check_may_ask_follows_from_what_it_says(check):
    sites, _ = check
    plain = sites.study(goal="check")
    assert tasks_of(plain) == ("counts.variables", "survey.first")
    assert scope_of(plain, 5).transformations == ("scales",)
    warned = {"prepare.on_disagreement": "warn", "prepare.gains": "none"}
    compares = sites.study(parameters=warned, goal="check")
    assert tasks_of(compares) == ("counts.variables", "survey.first", "agree")
    assert scope_of(compares, 5).transformations == ()
