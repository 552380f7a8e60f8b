"""Prio3 against the test vectors of the VDAF draft (`tests/support/vdaf/prio3.json` says where they are from)."""

import io
import json
from pathlib import Path

import pytest

from feddbn.errors import AggregationError
from feddbn.privacy.prio3.field import FIELD64, FIELD128
from feddbn.privacy.prio3.xof import Xof, derive_seed, expand
from support.vdaf_circuits import prio3_of

VECTORS = json.loads(
    (Path(__file__).parents[2] / "support" / "vdaf" / "prio3.json").read_text(encoding="utf-8")
)
CONTEXT = b"some application"
KEY, NONCE = bytes(range(32)), bytes(range(16))


def agrees(found: bytes, published: str) -> bool:
    head, _, tail = published.partition("..")
    return (
        found.hex() == published if not tail else found.hex().startswith(head) and found.hex().endswith(tail)
    )


def verified(vdaf, public_share, input_shares):
    return [
        vdaf.verify_init(KEY, CONTEXT, j, NONCE, public_share, share) for j, share in enumerate(input_shares)
    ]


@pytest.mark.parametrize("name", VECTORS["valid"])
def test_valid_reports_have_the_published_bytes(name):
    vector = VECTORS["valid"][name]
    vdaf = prio3_of(name, vector)
    outputs = []
    for report in vector["reports"]:
        encoded = vdaf.valid.encode(report["measurement"])
        public_share, inputs = vdaf.shard(CONTEXT, encoded, NONCE, bytes(range(vdaf.rand_size)))
        begun = verified(vdaf, public_share, inputs)
        message = vdaf.verifier_shares_to_message(CONTEXT, [share for _, share in begun])
        outputs.append([vdaf.verify_next(state, message) for state, _ in begun])
        if "leader" in report:
            assert agrees(inputs[0], report["leader"])
            assert public_share.hex() == report["public_share"]
            assert message.hex() == report["message"]
            assert all(
                agrees(share, known)
                for (_, share), known in zip(begun, report["verifier_shares"], strict=True)
            )
    sums = [vdaf.aggregate(shares) for shares in zip(*outputs, strict=True)]
    assert all(
        agrees(vdaf.field.encode(found), known)
        for found, known in zip(sums, vector["agg_shares"], strict=True)
    )
    assert vdaf.valid.decode(vdaf.aggregate(sums)) == vector["agg_result"]


@pytest.mark.parametrize("name", VECTORS["invalid"])
def test_invalid_reports_are_refused_where_the_draft_refuses_them(name):
    vector = VECTORS["invalid"][name]
    if "like" in vector:
        base = VECTORS["invalid"][vector["like"]]
        leader, helper = (share[:-64] for share in base["input_shares"])
        inputs = [leader + vector["leader_blind"], helper + vector["helper_blind"]]
        vector = {**base, "input_shares": inputs, **vector}
    vdaf = prio3_of(name, vector)
    begun = verified(vdaf, bytes.fromhex(vector["public_share"]), map(bytes.fromhex, vector["input_shares"]))
    for (_, share), known in zip(begun, vector["verifier_shares"], strict=False):
        assert share.hex() == known

    def decide():
        if "message" in vector:
            return vdaf.verify_next(begun[0][0], bytes.fromhex(vector["message"]))
        return vdaf.verifier_shares_to_message(CONTEXT, [share for _, share in begun])

    with pytest.raises(AggregationError) as refused:
        decide()
    assert refused.value.code == "bad-proof"


def test_seeds_and_elements_are_those_of_the_xofs_vector():
    vector = VECTORS["xof"]
    seed, tag, binder = (bytes.fromhex(vector[key]) for key in ("seed", "dst", "binder"))
    assert derive_seed(seed, tag, binder).hex() == vector["derived_seed"]
    drawn = expand(FIELD128, seed, tag, binder, vector["length"])
    assert agrees(FIELD128.encode(drawn), vector["expanded_vec_field128"])


def test_chunks_of_the_stream_that_are_not_below_the_modulus_are_left_out(monkeypatch):
    p = FIELD64.modulus
    words = [5, p, 7, p - 1, 2**64 - 1, p + 1, 0, 11, 13]
    stream = io.BytesIO(b"".join(word.to_bytes(8, "little") for word in words))
    xof = Xof(bytes(32), b"", b"")
    monkeypatch.setattr(xof, "next", stream.read)
    assert [int(x) for x in FIELD64.ints(xof.next_vec(FIELD64, 5))] == [5, 7, p - 1, 0, 11]
    # Nothing is read ahead.
    assert [int(x) for x in FIELD64.ints(xof.next_vec(FIELD64, 1))] == [13]
