"""A refusal that depends on data is one bit about one site, and by many of them a server would find a number. So it is the
last that a run hears; and what the owner is told, and how often a site answers, does not depend on what a server sends.
"""

import json
import stat

import numpy as np
import pytest

from feddbn.errors import FeddbnError, SiteRefused
from feddbn.federation.programs.fdbnl import StepQuestion
from feddbn.federation.protocol.messages import Request, encode_request
from feddbn.federation.protocol.task import Task, task_digest
from feddbn.federation.sums.gram import GramQuestion
from feddbn.runtime.store import STORE
from support.hostile import Server, Sites
from support.states import entries_of

pytestmark = pytest.mark.usefixtures("light")

Q, D = 6, 3
VICTIM = "s2"


def step(sites, round_, size=0.0, **changed):
    C = np.zeros((Q, D))
    C[1, 0] = size
    given = {"weighting": "samples", "n_total": 796.0, "ask": "gradient", "rho2_before": 1.0, "rho2": 1.0}
    given |= {"relaxation": 1.0, "origin": np.zeros(Q), "scale": np.ones(Q), "metric": np.ones(Q)}
    return StepQuestion(n_lags=1, variables=sites.variables, round=round_, C=C, **(given | changed))


class OneVictim:
    """A server that asks a single site, and opens nothing."""

    def __init__(self, sites, method="fdbnl"):
        sites.greet(sites.study(method, parameters='schedule = "rounds"' if method == "fdbnl" else ""), "run")
        self.server = Server(sites, "run", n_slots=40).keys()
        self.seq = self.after = -1

    def is_answered(self, question):
        self.seq += 1
        task = Task(question)
        order = self.server.masks.open_slot(task_digest(task.fields(), task.arrays))
        message = ({**self.server.masks.masked_request(order), "task": task.fields()}, dict(task.arrays))
        try:
            self.server.ask({VICTIM: message}, self.seq, self.after)
        except FeddbnError:
            return False
        self.after = self.seq
        return True


def codes(sites, name=VICTIM):
    found = entries_of(sites.places[name] / "state", "run")
    return [entry.code for entry in found if entry.event == "refused"]


def events(sites, name=VICTIM):
    log = sites.places[name] / "state" / "run" / "events.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_a_refusal_that_depends_on_data_is_the_last(tmp_path):
    sites = Sites(tmp_path, k=4, rows=200)
    server = OneVictim(sites)
    assert server.is_answered(step(sites, 0))
    assert not server.is_answered(step(sites, 1, 1e30))
    assert codes(sites) == ["too-large"]
    # What would have been answered before is not any more, and a restart or a greeting forgets nothing.
    assert not server.is_answered(step(sites, 1))
    sites.restart(VICTIM)
    again = OneVictim(sites)
    again.seq, again.after = server.seq, server.after
    assert not again.is_answered(step(sites, 1))
    assert codes(sites) == ["too-large", "refused-after-reading", "refused-after-reading"]


def test_a_refusal_of_the_question_itself_ends_nothing(tmp_path):
    sites = Sites(tmp_path, k=4, rows=200)
    server = OneVictim(sites)
    assert server.is_answered(step(sites, 0))
    assert not server.is_answered(step(sites, 1, ask="zero"))
    assert server.is_answered(step(sites, 1))


def test_few_origins_are_tried(tmp_path):
    sites = Sites(tmp_path, k=4, rows=200)
    server = OneVictim(sites, "oneshot")

    def moments(k):
        return GramQuestion(n_lags=1, variables=sites.variables, origin=np.full(Q, float(k)))

    assert [server.is_answered(moments(k)) for k in range(9)] == [True] * 8 + [False]
    assert codes(sites) == ["changed-in-run"]


def test_what_nobody_foresaw_is_a_refusal_too(tmp_path, monkeypatch):
    from feddbn.federation.programs import fdbnl

    sites = Sites(tmp_path, k=4, rows=200)
    server = OneVictim(sites)
    assert server.is_answered(step(sites, 0))

    def fails(*given):
        raise np.linalg.LinAlgError("Singular matrix")

    with monkeypatch.context() as patched:
        patched.setattr(fdbnl, "gradient_answers", fails)
        assert not server.is_answered(step(sites, 1))
    assert not server.is_answered(step(sites, 1))
    assert codes(sites) == ["unexpected", "refused-after-reading"]


def test_rounds_are_counted_by_the_log_that_is_never_cut(tmp_path):
    sites = Sites(tmp_path, k=3, rows=60)
    for name, place in sites.places.items():
        policy = place / "policy.toml"
        policy.write_text(policy.read_text().replace("max_rounds = 300", "max_rounds = 1"))
        sites.restart(name)
    study = sites.study("oneshot")
    sites.greet(study, "run")

    def asked(seq):
        origin = np.full(Q, float(seq))
        question = GramQuestion(n_lags=1, variables=sites.variables, origin=origin)
        return Server(sites, "run").keys().sum(question, seq, seq - 1)

    asked(0)
    (sites.places["s0"] / "state" / "run" / "events.jsonl").write_text("")
    sites.restart("s0")
    sites.greet(study, "run")
    with pytest.raises(SiteRefused):
        asked(1)
    assert codes(sites, "s0") == ["too-many-rounds"]


def test_a_server_does_not_fill_the_log(tmp_path):
    sites = Sites(tmp_path, k=3, rows=60)
    sites.greet(sites.study("oneshot"), "run")
    sites.ends[VICTIM].handle(encode_request(Request("x" * 2**20, "run")))
    last = events(sites)[-1]
    assert last["what"] == "refused"
    assert len(last["kind"]) == len(last["sentence"]) == 500


def test_the_owner_hears_of_refusals_of_secure_aggregation(tmp_path):
    sites = Sites(tmp_path, k=4, rows=60)
    sites.greet(sites.study("oneshot"), "run")
    server = Server(sites, "run")
    with pytest.raises(FeddbnError):
        server.ask({VICTIM: ({"kind": "nonsense"}, {})})
    last = events(sites)[-1]
    assert (last["what"], last["kind"]) == ("refused", "secagg")
    assert last["sentence"]


def test_what_a_site_keeps_is_its_owners(tmp_path):
    sites = Sites(tmp_path, k=3, rows=60)
    sites.greet(sites.study("oneshot"), "run")
    state = sites.places[VICTIM] / "state"
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert stat.S_IMODE((state / STORE).stat().st_mode) == 0o600
