"""What every `Federation` promises, run on plain and on secure sums."""

from dataclasses import dataclass

import numpy as np
import pytest

from feddbn.errors import NotEnoughSites, ProtocolError, SiteRefused
from feddbn.federation.protocol.site import Guard, Site, SiteTask, one_by_one, register_site_task
from feddbn.federation.protocol.task import Question, Task, array, number, run_program
from feddbn.runtime.masked import SecureFederation
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.simulated.secure import secure_federation
from support.saying import refused


@dataclass(frozen=True, kw_only=True)
class AffineQuestion(Question):
    name = "contract-affine"

    b: float = number()
    a: np.ndarray = array("n")


class RaggedQuestion(Question):
    name = "contract-ragged"


def _affine(here, question):
    count = here.state.get("count", np.zeros(1)) + 1
    return {"count": count}, question.a * here.data.values + question.b + count


def _ragged(here, question):
    return here.state, np.zeros(int(here.data.values[0]))


register_site_task(SiteTask(AffineQuestion, one_by_one(_affine)))
register_site_task(SiteTask(RaggedQuestion, one_by_one(_ragged)))


class Numbers:
    """Data that are one vector."""

    variables = ("x",)

    def __init__(self, values):
        self.values = values


DATA = {name: np.arange(4.0) * (i + 1) - 2.5 for i, name in enumerate(["ann", "bob", "cat", "dan", "eve"])}
FEDERATIONS = {"plain": InProcessFederation, "secure": secure_federation}


@pytest.fixture(params=sorted(FEDERATIONS))
def make(request):
    return lambda data=DATA, guards=(): FEDERATIONS[request.param](
        {n: Site(n, Numbers(x), guards) for n, x in data.items()}
    )


def _task(b=0.5, participants=None):
    return Task(AffineQuestion(a=np.array([1.0, -2.0, 3.0, 1e-3]), b=b), participants)


def test_sum_is_the_sum_of_every_site(make):
    answer = make().sum(_task())
    expected = sum(np.array([1.0, -2.0, 3.0, 1e-3]) * x + 0.5 + 1 for x in DATA.values())
    np.testing.assert_allclose(answer.value, expected, rtol=1e-9)
    assert answer.contributors == tuple(DATA)


def test_sites_are_sorted_whatever_order_they_came_in(make):
    federation = make(dict(reversed(DATA.items())))
    assert federation.sites == tuple(sorted(DATA))
    np.testing.assert_allclose(federation.sum(_task()).value, make().sum(_task()).value, rtol=1e-12)


def test_only_participants_contribute_and_only_they_move_on(make):
    federation = make()
    some = ("cat", "ann", "eve")
    if isinstance(federation, SecureFederation):
        with refused(ProtocolError, "bob", code="some-sites-only"):
            federation.sum(_task(participants=some))
        return
    answer = federation.sum(_task(participants=some))
    assert answer.contributors == ("ann", "cat", "eve")
    a = np.array([1.0, -2.0, 3.0, 1e-3])
    np.testing.assert_allclose(answer.value, sum(a * DATA[n] + 1.5 for n in some), rtol=1e-9)
    # ann, cat and eve have now answered once before, bob and dan never.
    second = federation.sum(_task(b=0.25))
    expected = sum(a * x + 0.25 + (2 if n in some else 1) for n, x in DATA.items())
    np.testing.assert_allclose(second.value, expected, rtol=1e-9)


def test_unknown_participant_is_named(make):
    with refused(ProtocolError, "zoe"):
        make().sum(_task(participants=("ann", "bob", "cat", "zoe")))


def test_vectors_of_different_length_are_refused(make):
    data = {name: np.array([2.0 + (name == "dan")]) for name in DATA}
    with refused(ProtocolError, code="different-lengths"):
        make(data).sum(Task(RaggedQuestion()))


def test_unknown_task_is_refused_by_the_site(make):
    class Nothing(Question):
        name = "contract-nothing"

    with refused(ProtocolError, "contract-nothing", code="unknown-task"):
        make().sum(Task(Nothing()))


def test_refusal_of_one_site_reaches_the_server_as_its_sentence(make):
    class Never(Guard):
        def before(self, task, state, channel):
            raise SiteRefused("not on Sundays.")

    with pytest.raises(SiteRefused, match=r"not on Sundays\."):
        make(guards=(Never(),)).sum(_task())


def test_no_sites_is_refused(make):
    with pytest.raises(NotEnoughSites):
        make({})


def test_sum_cannot_be_changed_by_its_reader(make):
    answer = make().sum(_task())
    with pytest.raises(ValueError):
        answer.value[0] = 1.0


def test_a_program_gets_the_same_answers(make):
    def program():
        first = yield _task()
        second = yield _task(b=float(first.value[0]) / 10)
        return second.value

    np.testing.assert_allclose(run_program(program(), make()), run_program(program(), make()), rtol=1e-12)
    plain = InProcessFederation({n: Site(n, Numbers(x)) for n, x in DATA.items()})
    np.testing.assert_allclose(run_program(program(), make()), run_program(program(), plain), rtol=1e-9)
