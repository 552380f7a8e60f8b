import hashlib

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from feddbn.errors import AggregationError, ParameterError
from feddbn.privacy.keys import (
    AgreementKey,
    Identity,
    commitment,
    keystream,
    open_sealed,
    pair_tags,
    seal,
    slot_keys,
    verify_signature,
)
from support.entropy import seeded
from support.saying import refused

pytestmark = pytest.mark.promise

DRAW = seeded()


def test_two_sites_agree_and_directions_are_swapped():
    a, b = AgreementKey.fresh(DRAW), AgreementKey.fresh(DRAW)
    at_a = a.agree("a", "b", b.public, b"roster")
    at_b = b.agree("b", "a", a.public, b"roster")
    assert (at_a.seal_to_peer, at_a.seal_from_peer, at_a.seeds) == (
        at_b.seal_from_peer,
        at_b.seal_to_peer,
        at_b.seeds,
    )
    assert len({at_a.seal_to_peer, at_a.seal_from_peer, at_a.seeds, at_a.tags}) == 4
    assert at_a.tags == at_b.tags


def test_sites_that_saw_different_rosters_share_no_key():
    a, b = AgreementKey.fresh(DRAW), AgreementKey.fresh(DRAW)
    assert a.agree("a", "b", b.public, b"one").seeds != b.agree("b", "a", a.public, b"two").seeds


def test_key_of_small_order_is_refused():
    with refused(AggregationError, "b", code="bad-key"):
        AgreementKey.fresh(DRAW).agree("a", "b", bytes(32), b"")


def test_pair_keys_are_hkdf_of_the_agreed_secret():
    a, b = AgreementKey.fresh(DRAW), AgreementKey.fresh(DRAW)
    pair = a.agree("a", "b", b.public, b"roster")
    names = hashlib.sha256(b"a").digest() + hashlib.sha256(b"b").digest()
    info = b"feddbn secure aggregation 1 roster" + names
    secret = a.private.exchange(b.private.public_key())
    expected = HKDF(hashes.SHA256(), 128, None, info).derive(secret)
    assert pair.seal_to_peer + pair.seal_from_peer + pair.seeds + pair.tags == expected


def test_tags_differ_by_key_context_and_direction():
    digests = [tag for c in (b"x", b"y") for tag in pair_tags([b"1" * 32, b"2" * 32], c)]
    assert len({half for tag in digests for half in (tag[:16], tag[16:])}) == 8


def test_complement_of_a_keystream_is_its_negative_less_one():
    plain, flipped = keystream(b"k" * 32, 48), keystream(b"k" * 32, 48, complement=True)
    assert bytes(x ^ 0xFF for x in plain) == flipped


def test_keystream_is_chacha20_of_rfc_7539():
    # RFC 7539 appendix A.1, test vector 1: key, nonce and counter all zero.
    assert keystream(bytes(32), 16).hex() == "76b8e0ada0f13d90405d6ae55386bd28"


def test_slot_keys_are_different():
    seeds = slot_keys(DRAW(32), 50)
    assert len({seeds[i : i + 32] for i in range(0, len(seeds), 32)}) == 50


def test_sealed_message_opens_only_unchanged_and_in_its_context():
    key = DRAW(32)
    sealed = seal(key, b"shares", b"roster")
    assert open_sealed(key, sealed, b"roster") == b"shares"
    flipped = bytes([sealed[0] ^ 1]) + sealed[1:]
    for other in ((key, flipped, b"roster"), (key, sealed, b"other"), (DRAW(32), sealed, b"roster")):
        with refused(AggregationError, code="altered-seal"):
            open_sealed(*other)


def test_signature_holds_for_its_key_and_statement_only():
    one, two = Identity.from_seed(DRAW(32)), Identity.from_seed(DRAW(32))
    signature = one.sign(b"statement")
    assert verify_signature(one.public, signature, b"statement")
    assert not verify_signature(one.public, signature, b"another")
    assert not verify_signature(two.public, signature, b"statement")


def test_identity_seed_of_wrong_length_is_refused():
    with refused(ParameterError, 32, 31):
        Identity.from_seed(bytes(31))


def test_commitment_differs_from_plain_hash_and_between_secrets():
    assert commitment(b"a" * 32) != commitment(b"b" * 32)
