"""Sites and two keepers in this process, with all their files, as their owners have them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

import feddbn
from feddbn.engine import conduct, make_sites, open_keeper, open_site
from feddbn.errors import AggregationError
from feddbn.federation.protocol.batches import batch_parts
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import part_length
from support.entropy import Entropy
from support.study_files import ABOUT

KEEPERS = ("keeper-a", "keeper-b")
POLICY = 'approve_by_rule = true\ntasks = ["survey.*", "agree", "gram.*", "counts.*", "residuals.*"]\n'
SCALE = 2.0**40


class Additive:
    """Plain additive shares of 16 bytes, and a "proof" that says whether the sum of all numbers is below a bound.

    It has the interface of the real one and a thousandth of its cost; it proves nothing to anybody.
    """

    MODULUS = 2**128
    rand_size = 32

    def __init__(self, length: int, context: bytes) -> None:
        self.length, self.context = length, context

    def _stream(self, seed: bytes) -> list[int]:
        drawn = hashlib.shake_256(self.context + seed).digest(16 * self.length)
        return [int.from_bytes(drawn[16 * k : 16 * k + 16], "little") for k in range(self.length)]

    def _bytes(self, values) -> bytes:
        return b"".join((int(v) % self.MODULUS).to_bytes(16, "little") for v in values)

    def _ints(self, content: bytes) -> list[int]:
        if len(content) != 16 * self.length:
            raise ValueError("length")
        return [int.from_bytes(content[16 * k : 16 * k + 16], "little") for k in range(self.length)]

    def shard(self, vector, nonce, rand):
        assert len(vector) == self.length
        assert len(rand) == self.rand_size
        ok = b"\1" if np.abs(vector).max(initial=0.0) < 1e9 else b"\0"
        mask = self._stream(rand)
        first = [round(float(v) * SCALE) - m for v, m in zip(vector, mask, strict=True)]
        return ok + nonce, [self._bytes(first), self._bytes(mask)]

    def verify_init(self, verify_key, keeper_index, nonce, public, share):
        assert len(verify_key) == 32
        self._ints(share)
        told = hashlib.sha256(verify_key + nonce + public).digest() + public[:1]
        return (share, told), told

    def verify_finish(self, state, verifier_shares):
        share, told = state
        if any(one != told for one in verifier_shares) or told[-1:] != b"\1":
            raise AggregationError("no proof", code="bad-proof")
        return share

    def add(self, out_shares):
        rows = [self._ints(one) for one in out_shares]
        return self._bytes(map(sum, zip(*rows, strict=True)))

    def unshard(self, sums, n_reports):
        total = self._ints(self.add(sums))
        return np.array([(v - self.MODULUS if v >= self.MODULUS // 2 else v) / SCALE for v in total])


def additive(study, tasks, batch, known=None):
    return Additive(sum(map(part_length, batch_parts(tasks, batch.lengths))), batch.context)


class Kept:
    """Sites and keepers below a directory, opened anew for each message unless `stays`."""

    def __init__(self, place: Path, n_sites: int = 4, n_rows: int = 300, d: int = 3, seed: int = 700) -> None:
        self.place = Path(place)
        simulated = feddbn.simulate(
            d=d, n_lags=1, n_sites=n_sites, n_samples=n_rows * n_sites, random_state=seed
        )
        self.names = tuple(f"s{k}" for k in range(n_sites))
        self.entropy = Entropy(seed)
        self.folders = make_sites(self.place, self.names, KEEPERS, entropy=self.entropy("keys"))
        for name, recordings in zip(self.names, simulated.sites.values(), strict=True):
            recordings[0].to_csv(self.folders[name] / "data" / "one.csv", index=False)
            (self.folders[name] / "policy.toml").write_text(POLICY)
        self.variables = tuple(next(iter(simulated.sites.values()))[0].columns)
        self.ends = {}
        self.away: set[str] = set()
        self.sent: list[tuple[str, bytes, bytes]] = []

    def study(self, **changes) -> Study:
        values = {
            "name": "kept",
            "about": ABOUT,
            "method": "oneshot",
            "variables": self.variables,
            "sites": self.names,
            "parameters": {"n_lags": 1, "noise_variance": "free"},
            "privacy": {"keepers": KEEPERS, "min_sites": 3},
            "attendance": {"when_missing": "abort"},
        }
        return Study(**{**values, **changes})

    def end(self, name):
        place = self.folders[name]
        return open_keeper(place) if name in KEEPERS else open_site(place, entropy=self.entropy(name))

    def handle(self, name, message):
        if name not in self.ends:
            self.ends[name] = self.end(name)
        return self.ends[name].handle(message)

    def exchange(self, messages):
        replies = {}
        for name, message in messages.items():
            if name in self.away:
                continue
            replies[name] = self.handle(name, message)
            self.sent.append((name, message, replies[name]))
        return replies

    def run(self, study=None, run="run-1", exchange=None):
        here = set(self.names) - self.away
        return conduct(
            study or self.study(), exchange or self.exchange, self.place / "server", run=run, here=here
        )
