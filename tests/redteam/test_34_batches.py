"""A server that asks several questions at once gets no more than by asking them one by one, and sometimes nothing."""

import numpy as np
import pytest

from feddbn.errors import SiteRefused
from feddbn.federation.guards.study_plan import Asked, ScopeGuard, scope_of
from feddbn.federation.protocol.messages import Request, batch_request, encode_request, read_reply
from feddbn.federation.protocol.site import PLAIN, Channel, Site
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.in_view import LEAST, CountsQuestion
from feddbn.federation.sums.survey import SurveyQuestion
from feddbn.privacy.policy import SitePolicy
from support.rig import Rig, Server, listing
from support.saying import refused
from support.states import entries_of, ledger_lines

pytestmark = pytest.mark.usefixtures("light")

NAMES = ("s0", "s1", "s2")
RUN = "run"


@pytest.fixture
def rig(tmp_path):
    rng = np.random.default_rng(0)
    data = {name: [rng.normal(size=(80, 3))] for name in NAMES}
    # A rare drug: four rows of one site.
    data["s0"][0][:, 2] = 0.0
    data["s0"][0][20:24, 2] = 1.0
    return Rig(tmp_path, data, listing().replace("require_masking = true", "require_masking = false"))


def ask(rig, study, *tasks, seq=0, after=-1, name="s1"):
    message = encode_request(batch_request(tasks, RUN, seq, after))
    return read_reply(rig.endpoints[name].handle(message))


def about(rig, names=None):
    return {"n_lags": 1, "variables": names or rig.variables}


def sent(rig, name="s1"):
    return [entry.task for entry in entries_of(rig.place / name / "state", RUN) if entry.event == "sent"]


def greeted(rig, method="summary", **parameters):
    study = rig.study(method, parameters, privacy={"secure_aggregation": False, "protection": "noise"})
    Server(rig, study, RUN)
    return study


def test_a_question_beyond_the_plan_has_all_of_them_refused_without_a_trace_of_answers(rig):
    study = greeted(rig)
    survey, moments = Task(SurveyQuestion(**about(rig))), Task(GramQuestion(**about(rig)))
    beyond = Task(GramQuestion(**about(rig), diagonal=True))
    for tasks in ((survey, moments, beyond), (beyond, survey)):
        with refused(SiteRefused, code="withheld"):
            ask(rig, study, *tasks)
    assert sent(rig) == []
    assert {entry.code for entry in rig.refusals("s1", RUN)} == {"task-not-in-study"}
    # No rows were looked at, so none are written down as used; and the run can go on.
    assert ledger_lines(rig.place / "s1" / "state", "rows") == []
    assert len(ask(rig, study, survey, moments).arrays) == 2
    assert sent(rig) == ["survey.first", "gram.rows"]


def test_questions_of_one_batch_are_counted_like_any_others(rig):
    study = greeted(rig)
    names = rig.variables
    surveys = [Task(SurveyQuestion(**about(rig, some))) for some in (names, names[:2], names[:1])]
    with refused(SiteRefused, code="withheld"):
        ask(rig, study, *surveys)
    assert rig.refusals("s1", RUN)[-1].code == "changed-in-run"
    assert sent(rig) == []


def test_what_is_seen_in_few_rows_is_not_told_along_with_the_count_that_says_so(rig):
    study = greeted(rig)
    tasks = (Task(CountsQuestion(**about(rig), least=LEAST)), Task(SurveyQuestion(**about(rig))))
    assert len(ask(rig, study, *tasks, name="s0").arrays) == 1
    assert len(ask(rig, study, *tasks, name="s1").arrays) == 2
    assert sent(rig, "s0") == ["counts.variables"]
    fewer = Task(SurveyQuestion(**about(rig, rig.variables[:2])))
    for name in NAMES[:2]:
        assert len(ask(rig, study, fewer, seq=2, after=1, name=name).arrays) == 1
        # The survey is settled, and so is what comes after it.
        with refused(SiteRefused, code="withheld"):
            ask(rig, study, Task(SurveyQuestion(**about(rig, rig.variables[:1]))), seq=3, after=2, name=name)


def test_a_refusal_by_data_within_a_batch_is_the_last_that_a_run_hears(rig):
    study = greeted(rig)
    moments = Task(GramQuestion(**about(rig)))
    # Who sees a variable in few rows answers no moments of it, and then nothing else.
    counts = Task(CountsQuestion(**about(rig), least=LEAST))
    with refused(SiteRefused, code="withheld"):
        ask(rig, study, moments, counts, name="s0")
    with refused(SiteRefused, code="withheld"):
        ask(rig, study, counts, name="s0")
    assert rig.refusals("s0", RUN)[-1].code == "refused-after-reading"
    assert sent(rig, "s0") == []


def test_a_batch_of_a_masked_study_is_refused(rig):
    study = rig.study("summary")
    Server(rig, study, RUN)
    with refused(SiteRefused, code="masking-required"):
        ask(rig, study, Task(SurveyQuestion(**about(rig))))


MASKED = Channel(masked=True, n_guaranteed=3)


@pytest.mark.parametrize("order", [(True, False), (False, True)])
@pytest.mark.parametrize("channel", [MASKED, PLAIN])
def test_moments_with_and_without_those_who_abstain_are_told_only_where_no_sum_hides_them(
    rig, order, channel
):
    study = Study(
        name="s",
        method="summary",
        variables=rig.variables,
        sites=("s0", "s1", "s2", "s3", "s4", "s5"),
        parameters={"n_lags": 1, "prepare.on_disagreement": "exclude"},
    )
    site = Site("s1", rig.endpoints["s1"].whole)
    site.guards = (ScopeGuard(scope_of(study, 3), SitePolicy(require_masking=False), Asked()),)
    site.state = {"agreement.abstains": np.ones(1)}
    tasks = [Task(GramQuestion(**about(rig), abstain=one)) for one in order]
    if channel is MASKED:
        with refused(SiteRefused, code="changed-in-run"):
            site.answer_all(tasks, [channel] * 2)
        # Asked one by one, the second is refused.
        site.answer(tasks[0], channel)
        with refused(SiteRefused, code="changed-in-run"):
            site.answer(tasks[1], channel)
    else:
        found = dict(zip(order, site.answer_all(tasks, [channel] * 2), strict=True))
        assert not found[True].any()
        assert found[False][0] == 79


def test_a_batch_is_for_the_server_of_a_greeted_run_alone(rig):
    request = batch_request([Task(SurveyQuestion(**about(rig)))], "other", 0, -1)
    with refused(Exception, code="unknown-run"):
        read_reply(rig.endpoints["s1"].handle(encode_request(request)))
    with refused(SiteRefused, code="not-the-server"):
        read_reply(rig.endpoints["s1"].handle(encode_request(Request("batch", RUN)), caller="s2"))
