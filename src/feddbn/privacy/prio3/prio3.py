"""Prio3 of draft-irtf-cfrg-vdaf-18: a vector in shares, with a proof that it is valid, added up over many clients.

A client splits its measurement (a vector over a field) into random shares that add up to it, one for each
aggregator, and does the same with a proof (`feddbn.privacy.prio3.flp`). The first share is written out, the
others are seeds of 32 bytes. Each aggregator answers the proof's random question on its share; the answers together
tell whether the measurement is valid and nothing else. Shares of valid measurements are added up by each
aggregator, and the sums of all aggregators add up to the sum of the measurements.

What one aggregator sees: a share, which is uniformly random by itself; the other aggregators' answers, which
follow from its own and the fact that the measurement is valid (`flp`). As long as one aggregator is honest, the
others learn the sum only. All of them can, if they want to, spoil the sum: Prio3 guards against clients.

Joint randomness. Most circuits need randomness that the client cannot choose after its measurement. It is hashed
from commitments to all shares ("parts": hashes of share, nonce and a random blind). The client sends the parts,
so that there is one round only; each aggregator replaces its own by the one it computed, and at the end all
compare the seed they used with the one that follows from everybody's own part. A client can try again with other
blinds, so the soundness error counts for each hash it computes: choose circuits and fields with an error far below
2**-100 (Davis, Patton, Rosulek and Schoppmann 2023).

The verification key is known to the aggregators and to no client; a nonce is used for one report only.

One extension of the draft. A circuit with `Valid.early_len` has a measurement whose later elements depend on
random numbers that must not be known before the first `early_len` elements are fixed. A first seed is hashed
from commitments to the shares of these elements, in the same way (with usages of its own), and `extend` makes the
rest of the measurement from it. Its parts go after the others in public shares, verifier shares and
messages. Without it, every byte is the draft's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from feddbn.errors import AggregationError
from feddbn.privacy.prio3.field import Elements
from feddbn.privacy.prio3.flp import Proofs, Valid
from feddbn.privacy.prio3.xof import SEED_SIZE, derive_seed, domain_tag, expand

__all__ = ["NONCE_SIZE", "VERIFY_KEY_SIZE", "Prio3", "VerifyState"]

NONCE_SIZE = 16
"""Bytes of a report's nonce."""
VERIFY_KEY_SIZE = SEED_SIZE
"""Bytes of the key that the aggregators share."""


class _Usage(IntEnum):
    MEAS_SHARE = 1
    PROOF_SHARE = 2
    JOINT_RANDOMNESS = 3
    PROVE_RANDOMNESS = 4
    QUERY_RANDOMNESS = 5
    JOINT_RAND_SEED = 6
    JOINT_RAND_PART = 7
    # Of the extension; the draft's usages are below 256.
    EARLY_SEED = 0x8006
    EARLY_PART = 0x8007


@dataclass(frozen=True)
class VerifyState:
    """What an aggregator keeps between its own answer and the decision: its share of the sum, and the seeds it used."""

    out_share: Elements
    seeds: bytes


class Prio3:
    """Prio3 for one circuit.

    Parameters
    ----------
    valid
        The circuit.
    algorithm
        The number that keeps this VDAF's hashes apart from those of others: of the draft's registry, or 0xFFFF0000
        and above for private use.
    num_shares
        Aggregators.
    num_proofs
        Proofs for one measurement; more than one where the field is small.
    """

    def __init__(self, valid: Valid, algorithm: int, *, num_shares: int = 2, num_proofs: int = 1) -> None:
        if not (2 <= num_shares < 256 and 1 <= num_proofs < 256):
            raise ValueError("there are from 2 to 255 aggregators and from 1 to 255 proofs.")
        if valid.early_len is not None and (valid.joint_rand_len < 1 or num_proofs != 1):
            raise ValueError("a circuit with an early seed needs joint randomness and has one proof.")
        self.valid, self.field = valid, valid.field
        self.algorithm, self.num_shares, self.num_proofs = algorithm, num_shares, num_proofs
        self.proofs = Proofs(valid)
        self._joint = valid.joint_rand_len > 0
        self.rand_size = SEED_SIZE * num_shares * (2 if self._joint else 1)
        """Bytes of randomness for `shard`."""
        self._n_seeds = int(self._joint) + (valid.early_len is not None)

    # -- a client -----------------------------------------------------------------------------------------------

    def shard(
        self,
        context: bytes,
        measurement: Elements,
        nonce: bytes,
        rand: bytes,
        extend: Callable[[bytes], Elements] | None = None,
    ) -> tuple[bytes, list[bytes]]:
        """Return the public share and one input share for each aggregator.

        `rand` are `rand_size` secret random bytes, `nonce` are `NONCE_SIZE` bytes that no other report has. With an
        early seed, `measurement` are its first elements, and `extend` returns the others for that seed.
        """
        field, meas = self.field, measurement
        _check_size("nonce", nonce, NONCE_SIZE)
        _check_size("rand", rand, self.rand_size)
        seeds = [rand[k : k + SEED_SIZE] for k in range(0, len(rand), SEED_SIZE)]
        helpers, blinds = seeds[: self.num_shares - 1], [b""] * self.num_shares
        if self._joint:
            helpers = seeds[0 : 2 * self.num_shares - 2 : 2]
            blinds = [seeds[-2], *seeds[1 : 2 * self.num_shares - 2 : 2]]
        shares = [self._helper_meas(context, j, seed) for j, seed in enumerate(helpers, 1)]

        def with_leader(whole: Elements) -> list[Elements]:
            leader = whole
            for share in shares:
                leader = field.sub(leader, share[: len(whole)])
            return [leader, *(share[: len(whole)] for share in shares)]

        proofs, early_parts = self.proofs, []
        if self.valid.early_len is not None:
            if extend is None:
                raise ValueError("this circuit needs `extend`, which makes the rest of the measurement.")
            early_parts = [
                self.part(context, j, blinds[j], share, nonce, early=True)
                for j, share in enumerate(with_leader(meas))
            ]
            early_seed = self.seed(context, early_parts, early=True)
            meas = np.concatenate([meas, extend(early_seed)])
            proofs = Proofs(self.valid.bound(early_seed))
        if len(meas) != self.valid.meas_len:
            raise ValueError(f"a measurement has {self.valid.meas_len} elements, not {len(meas)}.")
        meas_shares = with_leader(meas)
        parts, joint_rands = [], field.zeros((self.num_proofs, 0))
        if self._joint:
            parts = [self.part(context, j, blinds[j], share, nonce) for j, share in enumerate(meas_shares)]
            joint_rands = self._joint_rands(context, self.seed(context, parts))
        prove_rands = expand(
            field,
            seeds[-1],
            self._tag(_Usage.PROVE_RANDOMNESS, context),
            bytes([self.num_proofs]),
            proofs.prove_rand_len * self.num_proofs,
        ).reshape(self.num_proofs, -1)
        proof = np.concatenate(
            [proofs.prove(meas, *rands) for rands in zip(prove_rands, joint_rands, strict=True)]
        )
        for j, seed in enumerate(helpers, 1):
            proof = field.sub(proof, self._helper_proofs(context, j, seed))
        inputs = [field.encode(meas_shares[0]) + field.encode(proof), *helpers]
        return (
            b"".join(parts + early_parts),
            [share + blind for share, blind in zip(inputs, blinds, strict=True)],
        )

    # -- an aggregator ------------------------------------------------------------------------------------------

    def verify_init(
        self,
        verify_key: bytes,
        context: bytes,
        aggregator: int,
        nonce: bytes,
        public_share: bytes,
        input_share: bytes,
    ) -> tuple[VerifyState, bytes]:
        """Return an aggregator's state and its verifier share, from what a client sent it."""
        field, valid, proofs = self.field, self.valid, self.proofs
        if not 0 <= aggregator < self.num_shares:
            raise ValueError(f"there is no aggregator {aggregator} of {self.num_shares}.")
        _check_size("verify_key", verify_key, VERIFY_KEY_SIZE)
        _check_size("nonce", nonce, NONCE_SIZE)
        _check_size("public_share", public_share, self._n_seeds * self.num_shares * SEED_SIZE)
        n_proof = proofs.proof_len * self.num_proofs
        n_blind = SEED_SIZE if self._joint else 0
        n_inner = SEED_SIZE if aggregator else (valid.meas_len + n_proof) * field.encoded_size
        _check_size("input_share", input_share, n_inner + n_blind)
        inner, blind = input_share[:n_inner], input_share[n_inner:]
        if aggregator:
            meas = self._helper_meas(context, aggregator, inner)
            proof = self._helper_proofs(context, aggregator, inner)
        else:
            both = field.decode(inner, valid.meas_len + n_proof)
            meas, proof = both[: valid.meas_len], both[valid.meas_len :]

        claimed = [public_share[k : k + SEED_SIZE] for k in range(0, len(public_share), SEED_SIZE)]
        used, own, joint_rands = [], [], field.zeros((self.num_proofs, 0))
        for early in (False, True)[: self._n_seeds]:
            committed = meas[: valid.early_len] if early else meas
            own.append(self.part(context, aggregator, blind, committed, nonce, early=early))
            parts = claimed[self.num_shares :] if early else claimed[: self.num_shares]
            parts[aggregator] = own[-1]
            used.append(self.seed(context, parts, early=early))
        if self._joint:
            joint_rands = self._joint_rands(context, used[0])
        if valid.early_len is not None:
            proofs = Proofs(valid.bound(used[1]))

        query_rands = expand(
            field,
            verify_key,
            self._tag(_Usage.QUERY_RANDOMNESS, context),
            bytes([self.num_proofs]) + nonce,
            proofs.query_rand_len * self.num_proofs,
        ).reshape(self.num_proofs, -1)
        verifiers = [
            proofs.query(meas, one, query_rand, joint_rand, self.num_shares)
            for one, query_rand, joint_rand in zip(
                proof.reshape(self.num_proofs, -1), query_rands, joint_rands, strict=True
            )
        ]
        state = VerifyState(out_share=valid.truncate(meas), seeds=b"".join(used))
        return state, field.encode(np.concatenate(verifiers)) + b"".join(own)

    def verifier_shares_to_message(self, context: bytes, verifier_shares: Sequence[bytes]) -> bytes:
        """Return the message that all aggregators compare with their state; AggregationError "bad-proof" if invalid."""
        field, length = self.field, self.proofs.verifier_len * self.num_proofs
        if len(verifier_shares) != self.num_shares:
            raise AggregationError(
                f"{len(verifier_shares)} verifier shares are not those of {self.num_shares} aggregators.",
                code="bad-encoding",
            )
        n_vector = length * field.encoded_size
        verifiers, parts = field.zeros(length), []
        for share in verifier_shares:
            _check_size("verifier_share", share, n_vector + self._n_seeds * SEED_SIZE)
            verifiers = field.add(verifiers, field.decode(share[:n_vector], length))
            parts.append([share[k : k + SEED_SIZE] for k in range(n_vector, len(share), SEED_SIZE)])
        if not all(self.proofs.decide(one) for one in verifiers.reshape(self.num_proofs, -1)):
            raise AggregationError("the proof does not hold; the measurement is not valid.", code="bad-proof")
        return b"".join(
            self.seed(context, [own[k] for own in parts], early=k == 1) for k in range(self._n_seeds)
        )

    def verify_next(self, state: VerifyState, message: bytes) -> Elements:
        """Return the aggregator's share of the output; AggregationError "bad-proof" if seeds were made up."""
        if message != state.seeds:
            raise AggregationError(
                "the randomness of the proof was not made from the shares; the measurement is not valid.",
                code="bad-proof",
            )
        return state.out_share

    def aggregate(self, out_shares: Sequence[Elements]) -> Elements:
        """Return the sum of shares: of many reports for one aggregator, or of one sum over all aggregators (to open it)."""
        return self.field.total([self.field.zeros(self.valid.output_len), *out_shares])

    # -- hashes -------------------------------------------------------------------------------------------------

    def part(
        self,
        context: bytes,
        aggregator: int,
        blind: bytes,
        share: Elements,
        nonce: bytes,
        *,
        early: bool = False,
    ) -> bytes:
        """Return the commitment to one aggregator's share."""
        usage = _Usage.EARLY_PART if early else _Usage.JOINT_RAND_PART
        binder = bytes([aggregator]) + nonce + self.field.encode(share)
        return derive_seed(blind, self._tag(usage, context), binder)

    def seed(self, context: bytes, parts: Sequence[bytes], *, early: bool = False) -> bytes:
        """Return the seed that follows from the commitments to all shares."""
        usage = _Usage.EARLY_SEED if early else _Usage.JOINT_RAND_SEED
        return derive_seed(bytes(SEED_SIZE), self._tag(usage, context), b"".join(parts))

    def _tag(self, usage: _Usage, context: bytes) -> bytes:
        return domain_tag(self.algorithm, usage, context)

    def _helper_meas(self, context: bytes, aggregator: int, seed: bytes) -> Elements:
        tag = self._tag(_Usage.MEAS_SHARE, context)
        return expand(self.field, seed, tag, bytes([aggregator]), self.valid.meas_len)

    def _helper_proofs(self, context: bytes, aggregator: int, seed: bytes) -> Elements:
        tag, binder = self._tag(_Usage.PROOF_SHARE, context), bytes([self.num_proofs, aggregator])
        return expand(self.field, seed, tag, binder, self.proofs.proof_len * self.num_proofs)

    def _joint_rands(self, context: bytes, seed: bytes) -> Elements:
        tag, binder = self._tag(_Usage.JOINT_RANDOMNESS, context), bytes([self.num_proofs])
        drawn = expand(self.field, seed, tag, binder, self.valid.joint_rand_len * self.num_proofs)
        return drawn.reshape(self.num_proofs, -1)


def _check_size(what: str, value: bytes, size: int) -> None:
    if len(value) != size:
        raise AggregationError(f"{what} has {len(value)} bytes; it must have {size}.", code="bad-encoding")
