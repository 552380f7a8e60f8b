from contextlib import suppress

import numpy as np
import pytest

from feddbn.errors import AggregationError, NotEnoughSites, ProtocolError, SiteRefused, StateError
from feddbn.federation.protocol.encoding import encode
from feddbn.federation.protocol.site import Site, task_from_fields
from feddbn.federation.protocol.task import Task, array, names, number, task_digest, whole
from feddbn.privacy.keys import Identity
from feddbn.privacy.secagg_site import SecAggSite
from feddbn.runtime.masked import SecureFederation, SecureSite, read_secure_reply
from feddbn.runtime.simulated.secure import secure_federation
from support.questions import Values, give_values, make_question
from support.saying import refused

Unit = make_question("secure-unit", give_values, i=whole(default=0))
Other = make_question("secure-other", give_values, rho=number(), names=names(), C=array("r", "c"))
NAMES = [f"s{i}" for i in range(6)]


class Bytes:
    """Messages as bytes between objects of this process; a site that lost its state counts as a drop-out."""

    def __init__(self, handlers):
        self.handlers = handlers
        self.sites = tuple(sorted(handlers))

    def __call__(self, messages):
        replies = {}
        for name, message in messages.items():
            with suppress(StateError):
                replies[name] = read_secure_reply(self.handlers[name].handle(encode(*message)))
        return replies


def _sites():
    rng = np.random.default_rng(0)
    return {name: Site(name, Values(rng.normal(size=3))) for name in NAMES}


def test_new_epochs_begin_when_the_slots_are_spent_and_grow():
    sites = _sites()
    phases = []
    federation = secure_federation(sites, fault=lambda site, phase: phases.append(phase))
    for i in range(45):
        federation.sum(Task(Unit(i=i)))
    # 8 sums, then 32, then 128: three set-ups for 45 sums.
    assert phases.count("advertise") == 3 * len(NAMES)
    assert phases.count("masked") == 45 * len(NAMES)


def test_dead_site_is_left_out_of_the_first_epoch_and_of_all_later_ones():
    dead = {"s3"}
    federation = secure_federation(
        _sites(), fault=lambda site, phase: "request lost" if site in dead else None
    )
    federation.agree_on_keys(1)
    answer = federation.sum(Task(Unit(i=0)))
    assert "s3" not in answer.contributors
    assert federation.last_dropped == ()
    dead.clear()
    with refused(AggregationError, code="shows-few-sites"):
        federation.sum(Task(Unit(i=1)))


@pytest.mark.parametrize("phase", ["share", "deliver"])
def test_drop_out_during_the_key_agreement_is_left_out_and_the_set_up_repeated(phase):
    federation = secure_federation(
        _sites(), fault=lambda site, p: "request lost" if (site, p) == ("s2", phase) else None
    )
    assert federation.sum(Task(Unit())).contributors == tuple(n for n in NAMES if n != "s2")


def test_key_agreement_that_never_settles_gives_up():
    unlucky = iter(["s0", "s1", "s2"])
    state = {"now": None}

    def one_more_each_time(site, phase):
        if phase == "advertise" and site == max(NAMES):
            state["now"] = next(unlucky)
        return "request lost" if phase == "share" and site == state["now"] else None

    federation = secure_federation(_sites(), fault=one_more_each_time)
    with refused(AggregationError, "3", code="dropped-out"):
        federation.sum(Task(Unit()))


def test_restarted_site_counts_as_a_drop_out_until_the_next_epoch():
    sites = _sites()
    rng = np.random.default_rng(1)
    identities = {name: Identity.from_seed(rng.bytes(32)) for name in NAMES}
    pinned = {name: identity.public for name, identity in identities.items()}

    def endpoint(name):
        return SecureSite(sites[name], SecAggSite(name, identities[name], pinned, "run", rng.bytes))

    handlers = {name: endpoint(name) for name in NAMES}
    federation = SecureFederation(Bytes(handlers))
    federation.sum(Task(Unit(i=0)))
    handlers["s1"] = endpoint("s1")
    with refused(AggregationError, code="shows-few-sites"):
        federation.sum(Task(Unit(i=1)))
    federation.agree_on_keys()
    assert "s1" in federation.sum(Task(Unit(i=2))).contributors


def test_too_small_a_federation_is_refused_at_once():
    sites = {name: site for name, site in _sites().items() if name in ("s0", "s1")}
    with refused(NotEnoughSites, "min_sites=3", "2", code="few-sites"):
        secure_federation(sites)


def test_nobody_answering_fails_closed():
    federation = secure_federation(
        _sites(), fault=lambda site, phase: "request lost" if phase == "masked" else None
    )
    with refused(AggregationError, "0 sites", code="few-inputs"):
        federation.sum(Task(Unit()))


def test_site_refuses_a_task_whose_digest_does_not_fit():
    federation = secure_federation(_sites())
    courier = federation._courier

    class Tamper:
        sites = courier.sites

        def __call__(self, messages):
            changed = {"name": "secure-unit", "params": {"i": 9}}
            return courier(
                {
                    name: (
                        {**meta, "task": changed} if meta["phase"] == "masked" and name == "s0" else meta,
                        arrays,
                    )
                    for name, (meta, arrays) in messages.items()
                }
            )

    federation._courier = Tamper()
    with refused(ProtocolError, code="wrong-digest"):
        federation.sum(Task(Unit()))


def test_restarted_site_in_this_process_counts_as_a_drop_out():
    federation = secure_federation(_sites())
    federation.sum(Task(Unit(i=0)))
    federation._courier._sites["s1"].secagg._epoch = None
    with refused(AggregationError, code="shows-few-sites"):
        federation.sum(Task(Unit(i=1)))


def test_task_survives_the_way_and_a_malformed_one_is_refused():
    task = Task(Other(C=np.eye(2), names=("a", "b"), rho=1.5), ("s0", "s1"))
    back = task_from_fields(task.fields(), task.arrays, ["s0", "s1"])
    assert (back.name, back.params, back.participants) == (task.name, task.params, task.participants)
    assert task_digest(task.fields(), task.arrays) != task_digest(task.fields(), {"C": np.ones((2, 2))})
    with refused(ProtocolError, code="bad-task"):
        task_from_fields({"name": "x"}, {}, None)


def test_refusals_name_only_errors_of_this_package():
    with pytest.raises(SiteRefused, match="site 's0' refused: no"):
        read_secure_reply(encode({"kind": "refusal", "site": "s0", "error": "SiteRefused", "sentence": "no"}))
    for error in ("MissingExtra", "annotations", "KeyError"):
        with pytest.raises(ProtocolError, match="refused: no"):
            read_secure_reply(encode({"kind": "refusal", "site": "s0", "error": error, "sentence": "no"}))


def test_garbage_is_answered_with_a_refusal_not_an_exception():
    identity = Identity.from_seed(bytes(32))
    site = SecureSite(Site("a", None), SecAggSite("a", identity, {"a": identity.public}, "run", bytes))
    with refused(ProtocolError, "'a'", code="no-message"):
        read_secure_reply(site.handle(b"garbage"))
