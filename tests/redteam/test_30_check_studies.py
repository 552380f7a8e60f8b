"""A study that only checks data: whatever its server asks beyond the first look is refused, and nothing is learned."""

import json

import numpy as np
import pytest

from feddbn.core.statistics.survey import profile_length
from feddbn.errors import SiteRefused
from feddbn.federation.guards.study_plan import scope_of, tasks_of
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.survey import AgreementQuestion, SurveyQuestion, survey_length
from support.hostile import Server, Sites

pytestmark = pytest.mark.usefixtures("light")

D = 3


@pytest.fixture
def sites(tmp_path):
    """Owners that allow more than checks ask for: it is the study that says what is asked."""
    made = Sites(tmp_path, k=4, rows=200)
    for name, place in made.places.items():
        path = place / "policy.toml"
        more = '"residuals.checks", "agree", "gram.resamples"'
        path.write_text(path.read_text().replace('"residuals.checks"', more))
        made.restart(name)
    return made


def begin(sites, parameters="", names=None):
    study = sites.study("oneshot", sites=names, parameters=parameters).model_copy(update={"goal": "check"})
    sites.greet(study, "run")
    return Server(sites, "run", names).keys()


def asked(kind, sites, **more):
    return kind(n_lags=1, variables=sites.variables, **more)


def test_the_survey_is_all_that_a_check_tells(sites):
    question = asked(SurveyQuestion, sites)
    found = begin(sites).sum(question, 0).value
    assert len(found) == survey_length(question)
    assert found[:3].tolist() == [4 * 200, 4, 0]


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (GramQuestion, {}),
        (GramQuestion, {"pairs": True}),
        (
            GramQuestion,
            {
                "origin": np.zeros(2 * D),
                "resampling": "bootstrap",
                "block_rule": "auto",
                "resampled": "recordings",
                "seed": 0,
                "first": -1,
                "stop": 1,
            },
        ),
    ],
)
def test_a_check_is_no_way_to_sums_that_networks_are_learned_from(sites, kind, more):
    with pytest.raises(SiteRefused):
        begin(sites).sum(asked(kind, sites, **more), 0)
    assert told(sites)[0] == "task-not-in-study"


def test_sites_do_not_compare_themselves_unless_the_study_says_so(sites):
    length = profile_length(D, 1)
    question = asked(AgreementQuestion, sites, n_sites=4.0, total=np.zeros(length), squares=np.ones(length))
    with pytest.raises(SiteRefused):
        begin(sites).sum(question, 0)
    assert told(sites)[0] == "task-not-in-study"


def test_profiles_of_few_sites_are_not_told(tmp_path):
    sites = Sites(tmp_path, k=3, rows=200)
    with pytest.raises(SiteRefused):
        begin(sites).sum(asked(SurveyQuestion, sites, profiles="whole"), 0)
    assert told(sites)[0] == "few-sites"


def test_a_check_does_nothing_to_rows(sites):
    server = begin(sites)
    with pytest.raises(SiteRefused):
        server.sum(asked(SurveyQuestion, sites, center="recording"), 0)
    code, sentence = told(sites)
    assert (code, "'means'" in sentence) == ("not-in-study", True)


def test_what_a_check_may_ask_follows_from_what_it_says(sites):
    plain = sites.study("oneshot").model_copy(update={"goal": "check"})
    assert tasks_of(plain) == ("counts.variables", "survey.first")
    assert scope_of(plain, 5).transformations == ("scales",)
    compares = plain.model_copy(
        update={"parameters": {"prepare.on_disagreement": "warn", "prepare.gains": "none"}}
    )
    assert tasks_of(compares) == ("counts.variables", "survey.first", "agree")
    assert scope_of(compares, 5).transformations == ()


def told(sites):
    """What the owner of the first site reads about the one refusal: code and sentence."""
    lines = (sites.places["s0"] / "state" / "run" / "events.jsonl").read_text().splitlines()
    (refusal,) = [event for event in map(json.loads, lines) if event["what"] == "refused"]
    return refusal["code"], refusal["sentence"]
