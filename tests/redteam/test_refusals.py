"""Refusals are no oracle: what depends on data is one sentence and the last that a run hears, what depends on the question
needs no data; and what the owner is told, and how often a site answers, does not depend on what a server sends.
"""

import stat

import numpy as np
import pytest

from feddbn.core.statistics.moments import Moments
from feddbn.federation.protocol.messages import WITHHELD, Request, encode_request
from feddbn.federation.sums.gram import GramQuestion
from feddbn.runtime.store import STORE
from support.consortium import Consortium, Liar, Refused, by_rule, raw, spread

pytestmark = pytest.mark.promise

VICTIM = "s2"


def consortium(place, k=4, policy=""):
    return Consortium(place, spread(k, 3), policy or by_rule())


def moments(sites, origin=0.0, n_lags=1, **more):
    about = {"n_lags": n_lags, "variables": sites.variables}
    return GramQuestion(**about, origin=np.full(3 * (n_lags + 1), origin), **more)


class OneVictim(Liar):
    """A server that asks a single site, and opens nothing."""

    def __init__(self, sites):
        super().__init__(sites, sites.study())
        self.keys(40)

    def is_answered(self, question):
        self.seq += 1
        done = bool(self.ask({VICTIM: self.request(question)}))
        self.after = self.seq if done else self.after
        return done


def codes(sites, name=VICTIM):
    return [entry.code for entry in sites.refusals(name, "run")]


# One bit about one site ---------------------------------------------------------------------------------------------------
def test_a_refusal_that_depends_on_data_is_the_last(tmp_path):
    sites = consortium(tmp_path)
    liar = OneVictim(sites)
    assert liar.is_answered(moments(sites))
    assert not liar.is_answered(moments(sites, 1e30))
    assert codes(sites) == ["too-large"]
    # What would have been answered before is not any more, and a restart or a greeting forgets nothing.
    assert not liar.is_answered(moments(sites))
    sites.restart(VICTIM)
    again = OneVictim(sites)
    again.seq, again.after = liar.seq, liar.after
    assert not again.is_answered(moments(sites))
    assert codes(sites) == ["too-large", "refused-after-reading", "refused-after-reading"]


def test_a_refusal_of_the_question_itself_ends_nothing_and_few_origins_are_tried(tmp_path):
    sites = consortium(tmp_path)
    liar = OneVictim(sites)
    assert not liar.is_answered(moments(sites, n_lags=40))
    assert [liar.is_answered(moments(sites, float(k))) for k in range(9)] == [True] * 8 + [False]
    assert codes(sites) == ["other-lags", "changed-in-run"]


def test_an_unexpected_exception_becomes_a_refusal(tmp_path, monkeypatch):
    sites = consortium(tmp_path)
    liar = OneVictim(sites)
    assert liar.is_answered(moments(sites))

    def fails(*given):
        raise np.linalg.LinAlgError("Singular matrix")

    with monkeypatch.context() as patched:
        patched.setattr(Moments, "to_sums", fails)
        assert not liar.is_answered(moments(sites, 1.0))
    assert not liar.is_answered(moments(sites, 1.0))
    assert codes(sites) == ["unexpected", "refused-after-reading"]


def test_refusals_end(tmp_path):
    """What is refused tells something, too: after ten different questions that were, a site answers none."""
    sites = consortium(tmp_path)
    liar = Liar(sites, sites.study())
    for n_lags in range(10, 20):
        liar.refused(moments(sites, n_lags=n_lags), "other-lags", n_lags)
        liar.refused(moments(sites, n_lags=n_lags), "other-lags" if n_lags < 19 else "too-many-refusals")
    sites.restart()
    liar.again()
    liar.refused(moments(sites), "too-many-refusals", 10)


def test_rounds_are_counted_by_the_log_that_is_never_cut(tmp_path):
    sites = consortium(tmp_path, 3, by_rule().replace("max_rounds = 300", "max_rounds = 1"))
    liar = Liar(sites, sites.study())
    liar.sum(moments(sites))
    (sites.state() / "run" / "events.jsonl").write_text("")
    sites.restart("s0")
    liar.again()
    liar.refused(moments(sites, 1.0), "too-many-rounds")


# One sentence -------------------------------------------------------------------------------------------------------------
@pytest.fixture
def noisy(tmp_path):
    rng = np.random.default_rng(0)
    lengths = {"s0": (30, 25, 41), "s1": (31, 25, 48), "s2": (32, 25, 55)}
    data = {name: [rng.normal(size=(n, 3)) for n in each] for name, each in lengths.items()}
    sites = Consortium(tmp_path, data, by_rule(more="max_epsilon = 1.0\n"))
    return sites, Liar(sites, sites.study(privacy={"epsilon": 1.0}))


def sentences(liar, **params):
    with pytest.raises(Refused) as caught:
        liar.sum(raw("gram.rows", {"variables": liar.sites.variables, **params}))
    return set(caught.value.told.values())


def test_the_longest_recording_cannot_be_told_from_refusals(noisy):
    sites, liar = noisy
    below, above = sentences(liar, n_lags=47, clip_bound=-1), sentences(liar, n_lags=48, clip_bound=-1)
    assert below == above
    assert "48" not in " ".join(above)
    # With a bound that could be, lags are refused before anything is read, whatever the data.
    for n_lags in (2, 10, 40, 47, 48, 400):
        told = sentences(liar, n_lags=n_lags, clip_bound=1.0)
        assert {sentence.partition("refused: ")[2] for sentence in told} == {WITHHELD}
        last = sites.refusals("s1", "run")[-1]
        assert (last.code, str(n_lags) in last.note) == ("other-lags", True)
    assert {entry.event for entry in sites.log("s1", "run")} == {"refused"}


def test_a_refusal_lists_no_columns(noisy):
    _, liar = noisy
    told = sentences(liar, variables=("a",), n_lags=1, clip_bound=1.0)
    assert {sentence.partition("refused: ")[2] for sentence in told} == {WITHHELD}


def test_numbers_that_masks_cannot_hide_are_one_sentence_too(tmp_path):
    rng = np.random.default_rng(1)
    data = {f"s{i}": [10.0 ** (5 * i) * rng.normal(size=(50, 2))] for i in range(3)}
    sites = Consortium(tmp_path, data, by_rule())
    question = raw("gram.rows", {"variables": sites.variables, "n_lags": 1}, {"origin": np.full(4, 1e9)})
    Liar(sites, sites.study()).refused(question, "too-large", site="s2")


# What the owner is told ---------------------------------------------------------------------------------------------------
def test_a_server_does_not_fill_the_log_and_the_owner_hears_of_refusals_of_secure_aggregation(tmp_path):
    sites = consortium(tmp_path, 3)
    liar = Liar(sites, sites.study())
    sites.endpoints[VICTIM].handle(encode_request(Request("x" * 2**20, "run")))
    last = sites.events(VICTIM, "run")[-1]
    assert last["what"] == "refused"
    assert len(last["kind"]) == len(last["sentence"]) == 500
    assert not liar.ask({VICTIM: ({"kind": "nonsense"}, {})})
    last = sites.events(VICTIM, "run")[-1]
    assert (last["what"], last["kind"], bool(last["sentence"])) == ("refused", "secagg", True)


def test_what_a_site_keeps_is_its_owners(tmp_path):
    sites = consortium(tmp_path, 3)
    Liar(sites, sites.study())
    state = sites.state(VICTIM)
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert stat.S_IMODE((state / STORE).stat().st_mode) == 0o600
