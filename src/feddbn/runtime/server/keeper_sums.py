"""Sums of a study with two keepers: sites' parts are carried to them, they agree on who is valid, and each gives its share.

Who did not send is not in the sum, nor is a site whose proof does not hold; both are named. Later sums of a run have the
sites of the first one: without a few of them they would show these. Where a study may go on without sites, others are left
out with those that are missing until they are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from feddbn._version import __version__
from feddbn.core.arrays import FloatArray
from feddbn.core.encoding import decode
from feddbn.errors import FeddbnError, ProtocolError
from feddbn.federation.protocol import batches
from feddbn.federation.protocol.messages import (
    DECLINED,
    MAX_MESSAGE_BYTES,
    NEVER,
    Reply,
    Request,
    batch_digest,
    batch_request,
    encode_request,
)
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Sum, Task
from feddbn.privacy.keepers import NUMBER_BYTES, Batch, Vdaf, peek, sum_context
from feddbn.privacy.keys import SealingKey
from feddbn.privacy.secagg import odd_ones
from feddbn.runtime.server.asking import Line, Turn, too_few

if TYPE_CHECKING:
    from feddbn.runtime.server.coordinator import GoesOn, Roll

CHUNK_BYTES = MAX_MESSAGE_BYTES // 8
_WHY = {
    "bad-proof": "its proof does not hold",
    "different-parts": "its parts for the two keepers are not of one report",
    "second-part": "it has sent another part for this question before",
    "not-signed": "its part was not signed with the key that the keeper has of it",
    "altered-seal": "its part was not sealed for the keeper",
    "few-sites": "it joins larger sums only",
}

Parts = Mapping[str, bytes]


class KeeperSums:
    """Makes the sums of one run; `secret` are 32 bytes of the run, from which the key follows that sums are sealed for."""

    def __init__(self, study: Study, line: Line, roll: Roll, secret: bytes) -> None:
        self._study = study
        self._keepers = study.privacy.keepers
        self._line = line
        self._roll = roll
        self._key = SealingKey.from_seed(secret)

    def __call__(self, turn: Turn) -> Sum:
        """Return the sum for one task."""
        found = self.together(turn, [turn.task], lambda sums: True)
        return found[0] if found else Sum(np.zeros(0), ())

    def together(self, turn: Turn, tasks: Sequence[Task], goes_on: GoesOn) -> list[Sum]:
        """Return the sums for the task of a turn and those asked along with it, opened one after the other.

        One that a site did not answer, or that the program does not ask for after those before it, is not opened, and empty.
        Nothing is returned where a site refuses and every site is needed: then they have to be asked one by one.
        """
        fixed = frozenset(turn.counted)
        self._roll.excused |= set(turn.participants) - fixed if fixed else set()
        parts = self._collect(turn, tasks)
        what = f"task {turn.seq} ({turn.task.name!r})"
        refused = [site for site in turn.participants if site not in parts and site in self._line.refused]
        if refused and len(tasks) > 1 and self._roll.insists:
            for site in refused:
                self._line.refused.pop(site)
            return []
        self._roll.require(tuple(parts), turn.participants, what, self._line.reasons)
        lengths = self._lengths(parts, turn)
        opening, vdaf = self._opening(turn, tasks, lengths)
        valid, opened = opening.verified(parts)
        sites = opened if opened is not None else self._chosen(valid, fixed, parts)
        self._roll.require(sites, turn.participants, what, self._line.reasons)
        sums: list[Sum] = []
        while len(sums) < len(tasks) and (not sums or goes_on(sums)):
            stop = sum(lengths[: len(sums) + 1])
            shares = opening.shares(sites, len(sums) + 1)
            if any(len(share) < NUMBER_BYTES * stop for share in shares):
                break
            rest = bytes(NUMBER_BYTES * (sum(lengths) - stop))
            vector = vdaf.unshard([share + rest for share in shares], len(sites))
            sums.append(Sum(vector[stop - lengths[len(sums)] : stop], sites))
        return [*sums, *[Sum(np.zeros(0), ())] * (len(tasks) - len(sums))]

    def weighed(
        self, turn: Turn, known: FloatArray, sites: tuple[str, ...]
    ) -> tuple[FloatArray, tuple[str, ...]]:
        """Ask the sites of an opened sum for their answers again, with a proof that none weighs too much in it.

        Return the sum, which has to be the same as before, and who has not given such a proof: then it is not opened.
        """
        tasks = [turn.task]
        parts = {site: own for site, own in self._collect(turn, tasks, known).items() if own}
        shown: tuple[str, ...] = ()
        if parts:
            opening, vdaf = self._opening(turn, tasks, self._lengths(parts, turn), known)
            shown, _ = opening.verified(parts)
        lacking = tuple(site for site in sites if site not in shown)
        if lacking:
            return np.zeros(0), lacking
        return vdaf.unshard(opening.shares(sites, 1), len(sites)), ()

    def _opening(
        self, turn: Turn, tasks: Sequence[Task], lengths: Sequence[int], known: FloatArray | None = None
    ) -> tuple[_Opening, Vdaf]:
        """Return the messages to keepers about answers of these lengths, and what reads their sum."""
        batch = batches.batch_of(self._study, self._line.run_id, turn.seq, tasks, lengths, known)
        opening = _Opening(self._study, self._line, batch, tasks, self._key, self._note, known)
        return opening, batches.vdaf_of(self._study, tasks, batch, known)

    def _collect(
        self, turn: Turn, tasks: Sequence[Task], known: FloatArray | None = None
    ) -> dict[str, Parts]:
        """Ask sites for their parts until the study's patience ends; a site may decline where a sum is known."""
        line, found = self._line, dict[str, Parts]()
        pending = [site for site in turn.participants if site not in self._roll.excused]
        for attempt in line.attempts(self._roll.patience_s):
            messages = {
                site: encode_request(
                    batch_request(tasks, line.run_id, turn.seq, turn.after(site), attempt, known)
                )
                for site in pending
            }
            for site, reply in line.ask(messages, turn.task.name, turn.seq).items():
                has_declined = known is not None and bool(reply.meta.get(DECLINED))
                parts = {} if has_declined else self._parts(reply, tasks)
                if parts is None:
                    line.note_odd(site, f"site {site!r} sent no parts.", turn.task.name, turn.seq, "no-parts")
                else:
                    found[site] = parts
            pending = [site for site in pending if site not in found]
            if not pending or any(site in line.refused for site in pending):
                break
        return found

    def _parts(self, reply: Reply, tasks: Sequence[Task]) -> Parts | None:
        arrays = {keeper: reply.arrays.get(f"part/{keeper}") for keeper in self._keepers}
        parts = {keeper: array.tobytes() for keeper, array in arrays.items() if array is not None}
        try:
            for part in parts.values():
                peek(part)
        except ProtocolError:
            return None
        return parts if len(parts) == 2 and reply.meta.get("digest") == batch_digest(tasks) else None

    def _lengths(self, parts: dict[str, Parts], turn: Turn) -> tuple[int, ...]:
        """Return how long answers are; a site with other lengths than most is left out."""
        said = {site: peek(own[self._keepers[0]]).batch.lengths for site, own in parts.items()}
        for site, lengths, usual in odd_ones(said, "lengths"):
            words = f"site {site!r} answered with {lengths} numbers, most with {usual}."
            self._line.note_odd(site, words, turn.task.name, turn.seq, "other-shape")
            del parts[site], said[site]
        return next(iter(said.values()))

    def _note(self, site: str, code: str, seq: int) -> None:
        """Take down that a site's report is not in the sum, and why."""
        why = _WHY.get(code, f"a keeper refused its part ({code})")
        self._line.note_odd(site, f"site {site!r}: {why}.", "parts", seq, code)
        self._roll.excused.add(site)

    def _chosen(
        self, valid: tuple[str, ...], fixed: frozenset[str], parts: Mapping[str, Parts]
    ) -> tuple[str, ...]:
        """Return the sites of the sum: those that are valid, without those that join larger sums only, and, where some of the
        earlier ones are missing, without so many more that the difference shows no few.
        """
        fewest = {site: peek(parts[site][self._keepers[0]]).fewest for site in valid}
        least = self._study.privacy.min_sites
        sites = [site for site in valid if not fixed or site in fixed]
        while few := [site for site in sites if fewest[site] > len(sites)]:
            for site in few:
                self._note(site, "few-sites", NEVER)
            sites = [site for site in sites if site not in few]
        missing = fixed - set(sites)
        lacking = max([least, *fewest.values()], default=least) - len(missing) if missing else 0
        if lacking > 0:
            names = ", ".join(sorted(missing))
            if self._roll.insists or len(sites) - lacking < least:
                raise too_few(
                    f"a sum lacks {names}, whose numbers are in earlier sums of this run; together with those it would show "
                    f"them, so nothing was opened. Resume the run when {names} can be reached.",
                    sorted(missing),
                    self._line.reasons,
                    "lost-later",
                )
            sites = sites[:-lacking]
        self._roll.excused |= missing
        return tuple(sites)


class _Opening:
    """The messages to the two keepers about one batch."""

    def __init__(
        self,
        study: Study,
        line: Line,
        batch: Batch,
        tasks: Sequence[Task],
        key: SealingKey,
        note: Callable[[str, str, int], None],
        known: FloatArray | None = None,
    ) -> None:
        self._line = line
        self._batch = batch
        self._key = key
        self._note = note
        questions = encode_request(batch_request(tasks, batch.run, batch.seq, NEVER, known=known))
        self._meta: dict[str, Any] = {
            "study": study.to_json(),
            "version": __version__,
            "to": key.public.hex(),
        }
        self._meta["lengths"] = list(batch.lengths)
        self._arrays = {"batch": np.frombuffer(questions, np.uint8)}

    def verified(self, parts: Mapping[str, Parts]) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
        """Have every report verified; return whose hold, and for whom the batch has been opened before, if it has."""
        first, second = self._batch.keepers
        accepted: set[str] = set()
        opened: tuple[str, ...] | None = None
        said: list[dict[str, np.ndarray]] = []
        for some in _chunks(parts):
            replies = self._ask(
                "parts", {k: {f"part/{s}": parts[s][k] for s in some} for k in self._batch.keepers}
            )
            refused: dict[str, str] = {}
            for reply in replies.values():
                refused |= {
                    str(site): str(code) for site, code in dict(reply.meta.get("refused") or {}).items()
                }
                before = reply.meta.get("opened")
                opened = tuple(map(str, before)) if isinstance(before, list) else opened
            for site, code in sorted(refused.items()):
                if site in some and code != "already-opened":
                    self._note(site, code, self._batch.seq)
            accepted |= set(some) - refused.keys()
            said.append({keeper: reply.arrays["verifiers"] for keeper, reply in replies.items()})
        invalid: dict[str, str] = {}
        for one in said:
            told = {first: one[second], second: one[first]}
            for reply in self._ask("open", {k: {"verifiers": v.tobytes()} for k, v in told.items()}).values():
                invalid |= {
                    str(site): str(code) for site, code in dict(reply.meta.get("invalid") or {}).items()
                }
        for site, code in sorted(invalid.items()):
            if site in accepted:
                self._note(site, code, self._batch.seq)
        return tuple(sorted(accepted - invalid.keys())), opened

    def shares(self, sites: tuple[str, ...], n_tasks: int) -> list[bytes]:
        """Return each keeper's share of the sums over some sites for the first questions: of as many as all have answered."""
        found = []
        more = {"sites": list(sites), "n_tasks": n_tasks}
        for keeper, reply in self._ask("open", {one: {} for one in self._batch.keepers}, more).items():
            meta, arrays = decode(decode(reply.arrays["sum"].tobytes())[1]["message"].tobytes())
            if meta.get("sites") != list(sites) or meta.get("batch") != self._batch.context.hex():
                raise ProtocolError(f"keeper {keeper!r} has opened another sum.", code="other-sum")
            context = sum_context(self._batch, sites, int(meta["n_tasks"]))
            found.append(self._key.open(arrays["sealed"].tobytes(), context))
        return found

    def _ask(
        self, kind: str, arrays: Mapping[str, Mapping[str, bytes]], more: Mapping[str, Any] | None = None
    ) -> dict[str, Reply]:
        """Send a message to each keeper; both must answer."""
        line, seq = self._line, self._batch.seq
        meta = {**self._meta, **(more or {})}
        messages = {
            keeper: encode_request(
                Request(
                    kind,
                    line.run_id,
                    seq,
                    meta=meta,
                    arrays={**self._arrays, **{k: np.frombuffer(v, np.uint8) for k, v in own.items()}},
                )
            )
            for keeper, own in arrays.items()
        }
        replies = line.ask(messages, kind, seq)
        silent = [keeper for keeper in self._batch.keepers if keeper not in replies]
        if silent:
            said: Mapping[str, FeddbnError] = line.reasons
            for keeper in silent:
                line.refused.pop(keeper, None)
            raise too_few(
                f"a sum needs both keepers, and {' and '.join(silent)} did not help; nothing more was opened.",
                silent,
                said,
                next((said[keeper].code for keeper in silent if keeper in said), "no-keeper"),
            )
        return {keeper: replies[keeper] for keeper in self._batch.keepers}


def _chunks(parts: Mapping[str, Parts]) -> Iterator[list[str]]:
    """Yield sites whose parts fit into one message."""
    some: list[str] = []
    size = 0
    for site in sorted(parts):
        n = max(map(len, parts[site].values()))
        if some and size + n > CHUNK_BYTES:
            yield some
            some, size = [], 0
        some.append(site)
        size += n
    if some:
        yield some
