"""Proofs that a secret-shared vector is valid: the fully linear proofs of Boneh et al. (CRYPTO 2019, section 4.2).

Validity is a circuit of affine maps and a few kinds of non-linear `Gadget`. Our circuits are not adaptive: no
gadget's input depends on another's output. So a circuit is two affine maps, `Valid.wires` (the inputs of all
gadget calls) and `Valid.outputs` (what has to be zero), and proving and checking are operations on whole arrays.

The proof. A gadget of degree d is called c times; P is the smallest power of two above c, w a root of unity of
order P. For each of its wires, let f_j be the polynomial of degree < P with f_j(1) = a random seed and f_j(w**k) =
the wire's value in call k. Then g = G(f_1, ..., f_a) has degree <= d (P - 1), and g(w**k) is the gadget's output
in call k. The proof is the seeds and the values of g at the first d (P - 1) + 1 roots of unity of the next power
of two (draft-irtf-cfrg-vdaf-18 keeps values instead of coefficients).

The check. Verifiers hold shares of measurement and proof. Everything until the last step is linear in them: the
wires, hence f_j(t) at a random point t; g(t); the outputs, of which one random combination is taken. Opened are
these: (v, f_1(t), ..., f_a(t), g(t)) for each gadget. Accepted if v = 0 and g(t) = G(f_1(t), ..., f_a(t)).

Soundness: a wrong g passes at random t with probability at most d (P - 1) / (p - P) for each gadget, a circuit
output that is not zero in the combination of outputs with 1 / p, and what the circuit itself leaves to its joint
randomness comes on top. In Field128 with P = 2**10 the first is 2**-117.

What is opened says nothing about the measurement: v is zero, the f_j(t) are masked by the seeds (t is no root of
unity of order P; such a t is refused), and g(t) follows from them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from feddbn.errors import AggregationError
from feddbn.privacy.prio3.field import Elements, Field

__all__ = ["Gadget", "Mul", "ParallelSum", "PolyEval", "Proofs", "Valid"]


class Gadget(ABC):
    """A polynomial in `arity` variables, of total degree `degree`."""

    arity: int
    degree: int

    @abstractmethod
    def eval(self, field: Field, inputs: Elements) -> Elements:
        """Return its values: inputs (..., arity), values (...)."""


class Mul(Gadget):
    """x * y."""

    arity = 2
    degree = 2

    def eval(self, field: Field, inputs: Elements) -> Elements:
        """Return the products."""
        return field.mul(inputs[..., 0], inputs[..., 1])


class PolyEval(Gadget):
    """A polynomial in one variable, by its whole coefficients from the constant one up."""

    arity = 1

    def __init__(self, coefficients: Sequence[int]) -> None:
        self.coefficients = list(coefficients)
        while self.coefficients and self.coefficients[-1] == 0:
            self.coefficients.pop()
        self.degree = len(self.coefficients) - 1
        if self.degree < 1:
            raise ValueError("a gadget's polynomial needs a degree of at least 1.")

    def eval(self, field: Field, inputs: Elements) -> Elements:
        """Return the values (Horner)."""
        x = inputs[..., 0]
        value = field.add(field.zeros(x.shape), self.coefficients[-1])
        for coefficient in self.coefficients[-2::-1]:
            value = field.add(field.mul(value, x), coefficient)
        return value


class ParallelSum(Gadget):
    """The sum of one gadget's values at `count` inputs that lie one after another."""

    def __init__(self, inner: Gadget, count: int) -> None:
        self.inner, self.count = inner, count
        self.arity, self.degree = inner.arity * count, inner.degree

    def eval(self, field: Field, inputs: Elements) -> Elements:
        """Return the sums."""
        apart = np.ascontiguousarray(inputs).reshape(*inputs.shape[:-1], self.count, self.inner.arity)
        return field.sum(self.inner.eval(field, apart))


class Valid(ABC):
    """A circuit that is zero for valid measurements, as two affine maps around gadgets.

    Constants that are added in `wires` and `outputs` are divided by `num_shares` (in the field), so that the
    results on shares add up to the result on the measurement; 1 where the measurement is whole.
    """

    field: Field
    meas_len: int
    """Elements of a measurement."""
    joint_rand_len: int
    """Random elements that the circuit takes, known only after the shares are fixed."""
    output_len: int
    """Elements of what is added up over all measurements."""
    eval_output_len: int
    """Elements that `outputs` returns."""
    gadgets: Sequence[Gadget]
    gadget_calls: Sequence[int]
    early_len: int | None = None
    """The measurement's first elements from which a first seed is made, if the others depend on it (`bound`)."""

    @abstractmethod
    def wires(self, meas: Elements, joint_rand: Elements, num_shares: int) -> list[Elements]:
        """Return the inputs of all calls: one array (calls, arity) for each gadget; affine in `meas`."""

    @abstractmethod
    def outputs(
        self, meas: Elements, joint_rand: Elements, num_shares: int, gadget_outputs: list[Elements]
    ) -> Elements:
        """Return the vector that is zero when valid; affine in `meas` and the gadgets' outputs, (calls,) each."""

    @abstractmethod
    def truncate(self, meas: Elements) -> Elements:
        """Return what is added up; linear in `meas`."""

    def bound(self, early_seed: bytes) -> Valid:
        """Return the circuit for a first seed, made from the first `early_len` elements of all shares."""
        del early_seed
        return self


class Proofs:
    """Proving and checking for one circuit."""

    def __init__(self, valid: Valid) -> None:
        self.valid, self.field = valid, valid.field
        self._sizes = [_sizes(g, calls) for g, calls in zip(valid.gadgets, valid.gadget_calls, strict=True)]
        self.prove_rand_len = sum(g.arity for g in valid.gadgets)
        self.query_rand_len = len(valid.gadgets) + (valid.eval_output_len if valid.eval_output_len > 1 else 0)
        self.proof_len = sum(
            g.arity + length for g, (_, _, length) in zip(valid.gadgets, self._sizes, strict=True)
        )
        self.verifier_len = 1 + sum(g.arity + 1 for g in valid.gadgets)

    def prove(self, meas: Elements, prove_rand: Elements, joint_rand: Elements) -> Elements:
        """Return the proof for a whole measurement."""
        wires = self.valid.wires(meas, joint_rand, 1)
        proof, used = [], 0
        for gadget, (p, n, length), inputs in zip(self.valid.gadgets, self._sizes, wires, strict=True):
            seeds = prove_rand[used : used + gadget.arity]
            used += gadget.arity
            values = gadget.eval(self.field, _at_more_roots(self.field, _table(seeds, inputs, p), n))
            proof += [seeds, values[:length]]
        return np.concatenate(proof)

    def query(
        self, meas: Elements, proof: Elements, query_rand: Elements, joint_rand: Elements, num_shares: int
    ) -> Elements:
        """Return what is opened, or a share of it for shares of measurement and proof."""
        field, valid = self.field, self.valid
        seeds, polynomials, used = [], [], 0
        for gadget, (_, n, length) in zip(valid.gadgets, self._sizes, strict=True):
            seeds.append(proof[used : used + gadget.arity])
            used += gadget.arity
            polynomials.append(_completed(field, proof[used : used + length], n))
            used += length
        answers = [
            values[n // p : (calls * n) // p + 1 : n // p]
            for values, (p, n, _), calls in zip(polynomials, self._sizes, valid.gadget_calls, strict=True)
        ]
        out = valid.outputs(meas, joint_rand, num_shares, answers)
        n_combined = self.query_rand_len - len(valid.gadgets)
        verifier = [field.sum(field.mul(out, query_rand[:n_combined]) if n_combined else out)[None]]
        wires = valid.wires(meas, joint_rand, num_shares)
        for k, (p, n, _) in enumerate(self._sizes):
            t = int(field.ints(query_rand[n_combined + k]))
            table = _table(seeds[k], wires[k], p)
            verifier += [
                field.sum(field.mul(table, _lagrange(field, p, t)[:, None]), axis=0),
                field.sum(field.mul(polynomials[k], _lagrange(field, n, t)))[None],
            ]
        return np.concatenate(verifier)

    def decide(self, verifier: Elements) -> bool:
        """Return whether what was opened shows a valid measurement."""
        field, used = self.field, 1
        accepted = not field.ints(verifier[0])
        for gadget in self.valid.gadgets:
            wires, value = verifier[used : used + gadget.arity], verifier[used + gadget.arity]
            used += gadget.arity + 1
            accepted &= field.encode(gadget.eval(field, wires)) == field.encode(value)
        return accepted


def _sizes(gadget: Gadget, calls: int) -> tuple[int, int, int]:
    """Return the order of a wire's roots, the order of the gadget polynomial's, and how many of its values are sent."""
    p = 1 << calls.bit_length()  # the next power of two of calls + 1
    length = gadget.degree * (p - 1) + 1
    return p, 1 << (length - 1).bit_length(), length


def _table(seeds: Elements, inputs: Elements, p: int) -> Elements:
    """Return the wires' values at the p-th roots of unity: (p, arity)."""
    table = np.zeros((p, len(seeds)), dtype=seeds.dtype)
    table[0] = seeds
    table[1 : 1 + len(inputs)] = inputs
    return table


def _at_more_roots(field: Field, table: Elements, n: int) -> Elements:
    """Return the values at the n-th roots of unity of the polynomials with these values at the p-th: (n, arity)."""
    p, arity = table.shape
    result = np.zeros((p, n // p, arity), dtype=table.dtype)
    result[:, 0] = table
    if n > p:
        coefficients = field.inverse_ntt(np.ascontiguousarray(table.T))
        places, roots = np.arange(p), field.roots(n)
        for shift in range(1, n // p):
            result[:, shift] = field.ntt(field.mul(coefficients, roots[shift * places % n])).T
    return result.reshape(n, arity)


def _lagrange(field: Field, n: int, t: int) -> Elements:
    """Return the weights with which values at the n-th roots of unity give a polynomial's value at t."""
    p = field.modulus
    scale = (pow(t, n, p) - 1) * pow(n, -1, p) % p
    if not scale:
        raise AggregationError(
            "the random point of the check is a root of unity; ask again.", code="bad-point"
        )
    roots = field.roots(n)
    return field.mul(field.mul(roots, scale), field.inverse(field.sub(t, roots)))


def _completed(field: Field, values: Elements, n: int) -> Elements:
    """Return all n values at roots of unity of the polynomial of lowest degree that has these first ones."""
    if len(values) == n:
        return values
    missing = field.sum(field.mul(_completion(field, len(values), n), values))
    return np.concatenate([values, missing])


@lru_cache(maxsize=16)
def _completion(field: Field, length: int, n: int) -> Elements:
    """Return the matrix that gives the values at the last n - length roots of unity from those at the first.

    With E the missing places and z(x) = prod over e in E of (x - w**e), Lagrange's formula for the others reads

        y_e = w**-e / z'(w**e)  *  sum_i  y_i z(w**i) / (w**(e - i) - 1)
    """
    roots, known, missing = field.roots(n), np.arange(length), np.arange(length, n)
    z, slope = field.array([1] * length), field.array([1] * (n - length))
    for e in missing:
        z = field.mul(z, field.sub(roots[:length], roots[e]))
        apart = field.sub(roots[length:], roots[e])
        apart[e - length] = field.array([1])[0]
        slope = field.mul(slope, apart)
    steps = field.inverse(field.sub(roots[1:], 1))  # 1 / (w**k - 1), k = 1 ... n - 1
    matrix = field.mul(steps[(missing[:, None] - known) % n - 1], z)
    return field.mul(matrix, field.inverse(field.mul(slope, roots[length:]))[:, None])
