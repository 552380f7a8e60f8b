"""What every runtime must do, run on each that lives in one process; the engines run the same studies in
tests/integration.
"""

import numpy as np
import pytest

from feddbn import FDBNL, Rounds, simulate
from feddbn.data import read_sites
from feddbn.errors import FederationError, NotEnoughSites, ProtocolError, SiteRefused
from feddbn.federation.protocol.endpoint import SiteEndpoint
from feddbn.federation.protocol.site import Guard, Site
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Question, Task, run_program
from feddbn.privacy.keys import Identity, pinned_keys
from feddbn.runtime.server.coordinator import Coordinator
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.simulated.secure import secure_federation
from feddbn.runtime.site.masking import SiteMasking
from support.entropy import Entropy, seeded
from support.faults import LocalExchange, MemoryJournal, MemoryStore
from support.questions import make_question
from support.saying import refused
from support.study_programs import WalkQuestion

pytestmark = pytest.mark.promise

pytest.importorskip("cryptography")
MADE = simulate(d=4, n_lags=1, n_sites=4, n_samples=200, mean_degree=2, random_state=1)
NAMES = tuple(MADE.sites)
VARIABLES = ("x0", "x1", "x2", "x3")
MASKED_ERROR = 1e-9
DATA = dict(reversed(read_sites(MADE.sites).items()))


def sites(guards=(), names=NAMES):
    return {name: Site(name, data, guards) for name, data in DATA.items() if name in names}


def in_process(guards=()):
    return InProcessFederation(sites(guards))


def masked_in_process(guards=()):
    return secure_federation(sites(guards), random_bytes=seeded())


def messages(guards=(), masked=False):
    identities = {name: Identity.from_seed(bytes([k + 1]) * 32) for k, name in enumerate(NAMES)}
    entropy = Entropy()

    def make(name):
        keys = SiteMasking(name, identities[name], pinned_keys(identities), 3, None, entropy=entropy(name))
        return SiteEndpoint(sites(guards)[name], MemoryStore(name), masked=keys)

    study = Study(
        name="s", method="m", variables=VARIABLES, sites=NAMES, privacy={"secure_aggregation": masked}
    )
    coordinator = Coordinator(LocalExchange(NAMES, make), study, "run-1", MemoryJournal(), pause_s=0.0)
    coordinator.hello()
    return coordinator


def masked_messages(guards=()):
    return messages(guards, masked=True)


RUNTIMES = pytest.mark.parametrize(
    "make", [in_process, masked_in_process, messages, masked_messages], ids=lambda make: make.__name__
)


@pytest.fixture(
    params=[in_process, masked_in_process, messages, masked_messages], ids=lambda make: make.__name__
)
def federation(request):
    return request.param()


Ragged = make_question("ragged", lambda here, question: (here.state, np.zeros(1 + NAMES.index(here.name))))


def walk(participants=None, centre=0.0):
    return Task(WalkQuestion(centre=np.full(4, centre), step=0.1, pause_s=0.0), participants)


def test_the_sites_are_named_in_order(federation):
    assert federation.sites == tuple(sorted(NAMES))


def test_a_federation_says_what_its_sites_measure_and_answer(federation):
    assert federation.variables == VARIABLES
    assert federation.answered_tasks is None


def test_the_state_of_a_site_is_shown_only_by_a_plain_simulation(federation):
    federation.sum(walk())
    shown = federation.state_of(NAMES[0])
    assert (shown is not None) is isinstance(federation, InProcessFederation)


def test_a_sum_is_over_all_sites_and_says_so(federation):
    answer = federation.sum(walk())
    assert answer.contributors == tuple(sorted(NAMES))
    assert answer.value[-1] == pytest.approx(len(NAMES), abs=MASKED_ERROR)
    np.testing.assert_allclose(answer.value, in_process().sum(walk()).value, rtol=0, atol=MASKED_ERROR)


def test_a_sum_over_some_leaves_the_state_of_the_others_alone(federation, request):
    some = NAMES[:3]
    reference = in_process()
    if "masked" in request.node.name:
        with refused(ProtocolError, code="some-sites-only"):
            federation.sum(walk(some))
        return
    for k, participants in enumerate((some, None, some)):
        task = walk(participants, 0.1 * k)
        found, expected = federation.sum(task), reference.sum(task)
        assert found.contributors == expected.contributors
        np.testing.assert_allclose(found.value, expected.value, rtol=0, atol=MASKED_ERROR)


def test_the_result_cannot_be_changed(federation):
    with pytest.raises(ValueError, match="read-only"):
        federation.sum(walk()).value[0] = 1.0


def test_a_stranger_among_the_participants_is_refused(federation):
    with refused(ProtocolError, "nobody"):
        federation.sum(walk((*NAMES, "nobody")))


def test_an_unknown_task_is_refused_with_a_sentence(federation):
    class Unheard(Question):
        name = "unheard-of"

    with refused(FederationError, "unheard-of"):
        federation.sum(Task(Unheard()))


def test_vectors_of_different_lengths_are_not_added_up(federation):
    with pytest.raises(FederationError):
        federation.sum(Task(Ragged()))


@RUNTIMES
def test_a_site_that_refuses_tells_the_server_one_sentence(make):
    class Never(Guard):
        def before(self, task, state, channel):
            raise SiteRefused("not on Sundays.", code="sunday")

    with pytest.raises((SiteRefused, NotEnoughSites)) as caught:
        make((Never(),)).sum(walk())
    # Only in this process is there nobody to keep the reason from.
    assert ("Sundays" in str(caught.value)) == (make in (in_process, masked_in_process))


@pytest.mark.parametrize("make", [InProcessFederation, secure_federation])
def test_a_federation_needs_sites(make):
    with pytest.raises(NotEnoughSites):
        make({})


def test_a_program_gets_the_same_answers(federation):
    def program():
        first = yield walk()
        return (yield walk(centre=float(first.value[0]) / 10)).value

    expected = run_program(program(), in_process())
    np.testing.assert_allclose(run_program(program(), federation), expected, rtol=0, atol=MASKED_ERROR)


def test_fdbnl_learns_the_same_network(federation):
    found = FDBNL(schedule="paper", federation=federation, rounds=Rounds(max_rounds=25)).fit(None)
    expected = FDBNL(schedule="paper", rounds=Rounds(max_rounds=25)).fit(MADE.sites)
    np.testing.assert_allclose(found.W_raw_, expected.W_raw_, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(found.W_ != 0, expected.W_ != 0)
