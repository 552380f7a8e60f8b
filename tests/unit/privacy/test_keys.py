import os

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from feddbn.errors import AggregationError, ParameterError
from feddbn.privacy.keys import (
    AgreementKey,
    Identity,
    commitment,
    keystream,
    mask_key,
    open_sealed,
    seal,
    slot_seeds,
    verify_signature,
)


def test_two_sites_agree_and_directions_are_swapped():
    a, b = AgreementKey.fresh(os.urandom), AgreementKey.fresh(os.urandom)
    at_a = a.agree("a", "b", b.public, b"roster")
    at_b = b.agree("b", "a", a.public, b"roster")
    assert (at_a.seal_to_peer, at_a.seal_from_peer, at_a.seeds) == (
        at_b.seal_from_peer,
        at_b.seal_to_peer,
        at_b.seeds,
    )
    assert len({at_a.seal_to_peer, at_a.seal_from_peer, at_a.seeds}) == 3


def test_sites_that_saw_different_rosters_share_no_key():
    a, b = AgreementKey.fresh(os.urandom), AgreementKey.fresh(os.urandom)
    assert a.agree("a", "b", b.public, b"one").seeds != b.agree("b", "a", a.public, b"two").seeds


def test_key_of_small_order_is_refused():
    with pytest.raises(AggregationError, match="advertised for site 'b' is not a valid X25519 key"):
        AgreementKey.fresh(os.urandom).agree("a", "b", bytes(32), b"")


def test_mask_key_is_hkdf_expand():
    seed, context = os.urandom(32), os.urandom(32)
    assert mask_key(seed, context) == HKDFExpand(hashes.SHA256(), 32, context).derive(seed)


def test_keystream_is_chacha20_of_rfc_7539():
    # RFC 7539 appendix A.1, test vector 1: key, nonce and counter all zero.
    assert keystream(bytes(32), 16).hex() == "76b8e0ada0f13d90405d6ae55386bd28"


def test_slot_seeds_are_different():
    seeds = slot_seeds(os.urandom(32), 50)
    assert len({seeds[i : i + 32] for i in range(0, len(seeds), 32)}) == 50


def test_sealed_message_opens_only_unchanged_and_in_its_context():
    key = os.urandom(32)
    sealed = seal(key, b"shares", b"roster")
    assert open_sealed(key, sealed, b"roster") == b"shares"
    flipped = bytes([sealed[0] ^ 1]) + sealed[1:]
    for other in ((key, flipped, b"roster"), (key, sealed, b"other"), (os.urandom(32), sealed, b"roster")):
        with pytest.raises(AggregationError, match="altered, or sealed for another site, run or roster"):
            open_sealed(*other)


def test_signature_holds_for_its_key_and_statement_only():
    one, two = Identity.from_seed(os.urandom(32)), Identity.from_seed(os.urandom(32))
    signature = one.sign(b"statement")
    assert verify_signature(one.public, signature, b"statement")
    assert not verify_signature(one.public, signature, b"another")
    assert not verify_signature(two.public, signature, b"statement")


def test_identity_seed_of_wrong_length_is_refused():
    with pytest.raises(ParameterError, match="an identity seed has 32 bytes, got 31"):
        Identity.from_seed(bytes(31))


def test_commitment_differs_from_plain_hash_and_between_secrets():
    assert commitment(b"a" * 32) != commitment(b"b" * 32)
