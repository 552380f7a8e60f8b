"""What Prio3 takes: Field128 as limbs against object arrays of Python integers, and one report of many numbers.

``python benchmarks/prio3.py [NUMBERS]`` prints milliseconds of CPU time, the least of five: products, sums, bytes and
transforms in both representations; then shares, proof and check of NUMBERS (60,000) elements, a fifth of them bits.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from feddbn.privacy.prio3.field import FIELD128, Elements
from feddbn.privacy.prio3.flp import Mul, ParallelSum, Valid
from feddbn.privacy.prio3.prio3 import NONCE_SIZE, VERIFY_KEY_SIZE, Prio3

P = FIELD128.modulus
CHUNK = 100


def least(action: Callable[[], Any]) -> tuple[Any, float]:
    """Return what an action gives, and milliseconds of CPU time."""
    result, best = None, np.inf
    for _ in range(5):
        before = time.process_time()
        result = action()
        best = min(best, 1e3 * (time.process_time() - before))
    return result, best


def transformed(values: Any, roots: Any) -> Any:
    """Return the number theoretic transform of object arrays, along the last axis."""
    n = values.shape[-1]
    values = values.reshape(-1, n, 1)
    while (half := values.shape[-2] // 2) >= 1:
        even, odd = values[:, :half], values[:, half:] * roots[: half * values.shape[-1] : half] % P
        values = np.concatenate([(even + odd) % P, (even - odd) % P], axis=-1)
    return values.reshape(-1, n)


class SomeBits(Valid):
    """Numbers, of which the first are bits."""

    field = FIELD128
    eval_output_len = 1

    def __init__(self, n_numbers: int) -> None:
        self.meas_len, self.n_bits = n_numbers, n_numbers // 5
        self.output_len = n_numbers - self.n_bits
        calls = -(-self.n_bits // CHUNK)
        self.joint_rand_len, self.gadget_calls, self.gadgets = calls, [calls], [ParallelSum(Mul(), CHUNK)]

    def wires(self, meas: Elements, joint_rand: Elements, num_shares: int) -> list[Elements]:
        calls = self.gadget_calls[0]
        bits = self.field.zeros(calls * CHUNK)
        bits[: self.n_bits] = meas[: self.n_bits]
        bits = bits.reshape(calls, CHUNK)
        scaled = self.field.mul(bits, self.field.powers(joint_rand, CHUNK))
        less = self.field.sub(bits, pow(num_shares, -1, P))
        return [np.stack([scaled, less], axis=2).reshape(calls, -1)]

    def outputs(
        self, meas: Elements, joint_rand: Elements, num_shares: int, gadget_outputs: list[Elements]
    ) -> Elements:
        return self.field.sum(gadget_outputs[0])[None]

    def truncate(self, meas: Elements) -> Elements:
        return meas[self.n_bits :]


def main() -> None:
    n_numbers = int(sys.argv[1]) if len(sys.argv) > 1 else 60_000
    rng, field = np.random.default_rng(0), FIELD128
    n = 5 * n_numbers // 6
    a, b = (field.array([int.from_bytes(rng.bytes(16), "little") for _ in range(n)]) for _ in range(2))
    x, y = field.ints(a), field.ints(b)
    rows = 256 if n >= 10_000 else 2
    table, roots = np.resize(a, (rows, 256)), field.ints(field.roots(256))
    whole = field.ints(table)
    print(f"{'milliseconds':32}   limbs objects")
    for name, of_limbs, of_objects in (
        (f"product of {n} elements", lambda: field.mul(a, b), lambda: x * y % P),
        ("sum", lambda: field.add(a, b), lambda: (x + y) % P),
        ("bytes", lambda: field.encode(a), lambda: b"".join(k.to_bytes(16, "little") for k in x)),
        (f"{rows} transforms of length 256", lambda: field.ntt(table), lambda: transformed(whole, roots)),
    ):
        print(f"{name:32} {least(of_limbs)[1]:7.2f} {least(of_objects)[1]:7.2f}")

    vdaf = Prio3(SomeBits(n_numbers), 0xFFFF0000)
    numbers = rng.integers(-(2**40), 2**40, n_numbers)
    numbers[: vdaf.valid.n_bits] &= 1
    meas, nonce, key = field.array(numbers), rng.bytes(NONCE_SIZE), rng.bytes(VERIFY_KEY_SIZE)
    (public, inputs), took = least(lambda: vdaf.shard(b"", meas, nonce, rng.bytes(vdaf.rand_size)))
    sizes = [len(public), *map(len, inputs)]
    print(f"{f'report of {n_numbers} numbers':32} {took:7.2f}   bytes: {sizes}")
    begun = []
    for j, share in enumerate(inputs):
        one, took = least(lambda j=j, share=share: vdaf.verify_init(key, b"", j, nonce, public, share))
        begun.append(one)
        print(f"{f'check by aggregator {j}':32} {took:7.2f}   bytes: {len(one[1])}")
    message, took = least(lambda: vdaf.verifier_shares_to_message(b"", [share for _, share in begun]))
    opened = vdaf.aggregate([vdaf.verify_next(state, message) for state, _ in begun])
    assert field.ints(opened, signed=True).tolist() == numbers[vdaf.valid.n_bits :].tolist()
    print(f"{'decision':32} {took:7.2f}")


if __name__ == "__main__":
    main()
