import pytest

pytest.importorskip("cryptography")
from feddbn.federation.protocol.messages import Reply, encode_reply, read_request
from feddbn.privacy.audit import AuditChain, read_head, signed_head, signed_receipt
from feddbn.privacy.keys import Identity
from feddbn.runtime.server.asking import Line
from feddbn.runtime.server.coordinator import share_heads

IDENTITIES = {name: Identity.from_seed(bytes([k + 1]) * 32) for k, name in enumerate("abc")}


def head(name, n=3):
    return signed_head(IDENTITIES[name], name, AuditChain(n, "a" * 64), "2026-01-01T00:00:00Z")


def reply(name, meta):
    return Reply(name, "hello", "run-1", -1, meta)


class Sites:
    """Sites that take heads as they should, but for those that `say` something else."""

    def __init__(self, say=None, away=()):
        self.heard, self.say, self.away = [], say or {}, away

    def __call__(self, messages):
        answers = {}
        for name, message in messages.items():
            meta = read_request(message).meta
            self.heard.append((name, dict(meta)))
            words = [read_head(one) for one in meta.get("heads", ())]
            receipts = [signed_receipt(IDENTITIES[name], name, one).fields() for one in words]
            said = self.say.get(name, {"receipts": receipts})
            if name not in self.away:
                answers[name] = encode_reply(Reply(name, "heads", "run-1", -1, said))
        return answers


def share(sites, heads):
    line = Line(sites, "run-1", lambda event: None, 0.0)
    share_heads(line, {name: reply(name, meta) for name, meta in heads.items()})
    return sites.heard, line


def test_every_site_hears_the_heads_of_the_others_and_gets_their_receipts():
    heard, _ = share(Sites(), {name: {"head": head(name).fields()} for name in "abc"})
    first, second = heard[:3], heard[3:]
    for name, meta in first:
        assert sorted(one["site"] for one in meta["heads"]) == sorted({*"abc"} - {name})
    for name, meta in second:
        assert sorted(one["holder"] for one in meta["receipts"]) == sorted({*"abc"} - {name})
        assert {one["head"]["site"] for one in meta["receipts"]} == {name}


def test_sites_without_heads_are_not_asked():
    assert share(Sites(), {"a": {}, "b": {}, "c": {"head": head("c").fields()}})[0] == []


@pytest.mark.parametrize("odd", [5, "x", [], {"site": "b"}, {"n_entries": []}, None])
def test_a_site_that_says_nonsense_goes_without(odd):
    metas = {"a": {"head": head("a").fields()}, "b": {"head": odd}, "c": {"head": head("c").fields()}}
    heard, _ = share(Sites(), metas)
    assert {name for name, _ in heard} == {"a", "c"}


def test_a_site_cannot_speak_for_another():
    metas = {
        "a": {"head": head("a").fields()},
        "b": {"head": head("c").fields()},
        "c": {"head": head("c").fields()},
    }
    heard, _ = share(Sites(), metas)
    assert {name for name, _ in heard} == {"a", "c"}
    foreign = signed_receipt(IDENTITIES["b"], "b", head("a")).fields()
    heard, _ = share(Sites({"c": {"receipts": [foreign]}}), {n: {"head": head(n).fields()} for n in "ac"})
    assert [name for name, meta in heard if "receipts" in meta] == ["c"]


@pytest.mark.parametrize("odd", [5, [5], [{"head": 5}], [{"head": {"site": []}}], {"a": 1}, None])
def test_receipts_that_are_nonsense_are_dropped(odd):
    heard, _ = share(Sites({"b": {"receipts": odd}}), {n: {"head": head(n).fields()} for n in "ab"})
    assert [name for name, meta in heard if "receipts" in meta] == ["b"]


def test_a_silent_site_does_not_stop_the_others():
    heard, line = share(Sites(away=("b",)), {name: {"head": head(name).fields()} for name in "abc"})
    assert sorted(name for name, meta in heard if "receipts" in meta) == ["a", "c"]
    assert line.refused == {}
