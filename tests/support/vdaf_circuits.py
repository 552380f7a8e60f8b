"""The circuits of draft-irtf-cfrg-vdaf-18, for its test vectors only: Count, Sum, SumVec, Histogram, MultihotCountVec."""

import numpy as np

from feddbn.privacy.prio3.field import FIELD64, FIELD128, Field
from feddbn.privacy.prio3.flp import Gadget, Mul, ParallelSum, PolyEval, Valid
from feddbn.privacy.prio3.prio3 import Prio3


class Count(Valid):
    field = FIELD64
    meas_len = output_len = eval_output_len = 1
    joint_rand_len = 0
    gadgets = (Mul(),)
    gadget_calls = (1,)

    def encode(self, value):
        return self.field.array([value])

    def wires(self, meas, joint_rand, num_shares):
        return [np.stack([meas, meas], axis=1)]

    def outputs(self, meas, joint_rand, num_shares, gadget_outputs):
        return self.field.sub(gadget_outputs[0], meas)

    def truncate(self, meas):
        return meas

    def decode(self, total):
        return int(self.field.ints(total)[0])


class HigherDegree(Count):
    """0, 1 or 2: the roots of x (x - 1) (x - 2); not in the draft's text, but among its vectors."""

    gadgets = (PolyEval([0, 2, -3, 1]),)

    def wires(self, meas, joint_rand, num_shares):
        return [meas[:, None]]

    def outputs(self, meas, joint_rand, num_shares, gadget_outputs):
        return gadget_outputs[0]


def weighted_bits(value, most):
    """The draft's bits of a number up to `most`: powers of two, and a last weight so that all weights add up to `most`."""
    n = most.bit_length()
    last = most - (2 ** (n - 1) - 1)
    high = value > 2 ** (n - 1) - 1
    low = value - last if high else value
    return [*((low >> k) & 1 for k in range(n - 1)), int(high)]


def bit_weights(most):
    n = most.bit_length()
    return [*(2**k for k in range(n - 1)), most - (2 ** (n - 1) - 1)]


class Sum(Valid):
    field = FIELD64
    joint_rand_len = 0
    output_len = 1

    def __init__(self, max_measurement):
        self.most = max_measurement
        bits = max_measurement.bit_length()
        self.meas_len = self.eval_output_len = bits
        self.gadgets, self.gadget_calls = (PolyEval([0, -1, 1]),), (bits,)

    def encode(self, value):
        return self.field.array(weighted_bits(value, self.most))

    def wires(self, meas, joint_rand, num_shares):
        return [meas[:, None]]

    def outputs(self, meas, joint_rand, num_shares, gadget_outputs):
        return gadget_outputs[0]

    def truncate(self, meas):
        return self.field.sum(self.field.mul(meas, bit_weights(self.most)))[None]

    def decode(self, total):
        return int(self.field.ints(total)[0])


class Bits(Valid):
    """Zeros and ones, checked in chunks: sum_j r_i**j x_ij (x_ij - 1) for chunk i of joint randomness r_i."""

    field: Field = FIELD128
    eval_output_len = 1

    def __init__(self, n_bits, chunk_length):
        self.chunk = chunk_length
        calls = -(-n_bits // chunk_length)
        self.meas_len, self.joint_rand_len = n_bits, calls
        self.gadgets: tuple[Gadget, ...] = (ParallelSum(Mul(), chunk_length),)
        self.gadget_calls = (calls,)

    def wires(self, meas, joint_rand, num_shares):
        field, calls = self.field, self.gadget_calls[0]
        padded = np.concatenate([meas, field.zeros(calls * self.chunk - len(meas))]).reshape(calls, -1)
        scaled = field.mul(padded, field.powers(joint_rand, self.chunk))
        less = field.sub(padded, pow(num_shares, -1, field.modulus))
        return [np.stack([scaled, less], axis=2).reshape(calls, -1)]

    def outputs(self, meas, joint_rand, num_shares, gadget_outputs):
        return self.field.sum(gadget_outputs[0])[None]

    def truncate(self, meas):
        return meas

    def decode(self, total):
        return [int(x) for x in self.field.ints(total)]


class SumVec(Bits):
    def __init__(self, length, max_measurement, chunk_length, field=FIELD128):
        super().__init__(length * max_measurement.bit_length(), chunk_length)
        self.field, self.output_len, self.most = field, length, max_measurement

    def encode(self, values):
        return self.field.array([bit for value in values for bit in weighted_bits(value, self.most)])

    def truncate(self, meas):
        weighted = self.field.mul(meas.reshape(self.output_len, -1), bit_weights(self.most))
        return self.field.sum(weighted)


class Histogram(Bits):
    eval_output_len = 2

    def __init__(self, length, chunk_length):
        super().__init__(length, chunk_length)
        self.output_len = length

    def encode(self, bucket):
        return self.field.array([int(k == bucket) for k in range(self.meas_len)])

    def outputs(self, meas, joint_rand, num_shares, gadget_outputs):
        field = self.field
        one = field.sub(field.sum(meas), pow(num_shares, -1, field.modulus))
        return np.stack([field.sum(gadget_outputs[0]), one])


class MultihotCountVec(Bits):
    eval_output_len = 2

    def __init__(self, length, max_weight, chunk_length):
        super().__init__(length + max_weight.bit_length(), chunk_length)
        self.output_len, self.most = length, max_weight

    def encode(self, values):
        return self.field.array([*map(int, values), *weighted_bits(sum(values), self.most)])

    def outputs(self, meas, joint_rand, num_shares, gadget_outputs):
        field, n = self.field, self.output_len
        reported = field.sum(field.mul(meas[n:], bit_weights(self.most)))
        return np.stack([field.sum(gadget_outputs[0]), field.sub(field.sum(meas[:n]), reported)])

    def truncate(self, meas):
        return meas[: self.output_len]


def prio3_of(name: str, vector: dict) -> Prio3:
    """The VDAF of a vector, by its file's name."""
    kind, shares = name.split("_")[0].removeprefix("Prio3"), vector["shares"]
    if kind == "Count":
        return Prio3(Count(), 1, num_shares=shares)
    if kind == "Sum":
        return Prio3(Sum(vector["max_measurement"]), 2, num_shares=shares)
    if kind == "SumVec":
        circuit = SumVec(vector["length"], vector["max_measurement"], vector["chunk_length"])
        return Prio3(circuit, 3, num_shares=shares)
    if kind == "Histogram":
        return Prio3(Histogram(vector["length"], vector["chunk_length"]), 4, num_shares=shares)
    if kind == "MultihotCountVec":
        circuit = MultihotCountVec(vector["length"], vector["max_weight"], vector["chunk_length"])
        return Prio3(circuit, 5, num_shares=shares)
    if kind == "SumVecWithMultiproof":
        circuit = SumVec(vector["length"], vector["max_measurement"], vector["chunk_length"], FIELD64)
        return Prio3(circuit, 0xFFFFFFFF, num_shares=shares, num_proofs=vector["proofs"])
    assert kind == "HigherDegree"
    return Prio3(HigherDegree(), 0xFFFFFFFF, num_shares=shares)
