"""A site's audit logs: what left, who asked, whether the logs are whole, and what all of it has cost.

They are one sealed log of the site's store (`SealedLog`), under a key made from its identity. Each run has a log of
what it asked and what left, and the site one of its own: greetings, refused ones too, approvals and the ends of runs;
with each it says how far the run's log had come, so that its last hash stands for all logs of the site. `check_logs`
holds them against each other and against the heads that others hold; `logs_of` reads them for people; `export_logs`
writes them as JSON lines, ``<run id>.jsonl`` and ``_site.jsonl``, which need no feddbn to be verified.

Logs are never pruned. A line is on disk before the answer it is about leaves.

Sites hold something of each other's logs (`PeerHeads`). A site gives its head at the greeting and at the end of a run;
the server carries it to the others. Each checks it with the key it has pinned, keeps the one that reaches furthest, and
gives a receipt for it. A site that is shown its own signature under a longer log than it has knows that its log was
rolled back. The server can keep heads from arriving; `feddbn site verify` shows how old those are that did.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter, ValidationError

from feddbn.errors import FeddbnError, FileError, reading
from feddbn.findings import Finding
from feddbn.privacy.audit import (
    GENESIS,
    AuditChain,
    AuditEntry,
    ChainReport,
    Head,
    Receipt,
    against_log,
    contradiction,
    is_signed,
    parse_entries,
    read_head,
    read_receipt,
    signed_head,
    signed_receipt,
    verify_chain,
    well_formed,
)
from feddbn.privacy.ledger import Ledger, entry_epsilon
from feddbn.privacy.policy import SitePolicy, Unit
from feddbn.runtime.site.earlier_state import is_earlier_state, take_over
from feddbn.runtime.store import STORE, FileStore, SealedLog, Store, iso_time, private_directory

if TYPE_CHECKING:
    from feddbn.privacy.keys import Identity

SITE_LOG = "_site"
SUFFIX = ".jsonl"
DECISIONS = ("approved", "revoked", "declined", "admitted")
"""Events that only the site's owner can bring about."""

MOST_REFUSED = 100
"""Refused greetings that the site's own log takes in a day: others could fill it."""


@dataclass
class _Standing:
    """Where the site's own log stands, and what it says since midnight and since its owner last decided something."""

    chain: AuditChain
    day: str = ""
    said: dict[tuple[str, ...], AuditEntry] = field(default_factory=dict)
    n_refused: int = 0

    def hear(self, entry: AuditEntry) -> None:
        """Take an entry down."""
        if entry.time[:10] != self.day:
            self.day, self.n_refused = entry.time[:10], 0
            self.said.clear()
        if entry.event in DECISIONS:
            self.said.clear()
        self.said[_about(entry)] = entry
        self.n_refused += entry.event == "refused"


def _about(entry: AuditEntry) -> tuple[str, ...]:
    """All that an entry says but when."""
    return tuple(
        str(value)
        for name, value in entry.fields().items()
        if name not in ("index", "time", "previous", "hash", "signature")
    )


class SiteAudit:
    """All logs of a site, written by any of its processes; without a key nothing is signed, and there are no heads."""

    def __init__(
        self, state: Path, site: str, identity: Identity | None, clock: Callable[[], float] = time.time
    ) -> None:
        self.state = Path(state)
        self.site = site
        self.identity = identity
        self._clock = clock
        self._known: _Standing | None = None
        secret = b"" if identity is None else identity.sign(b"key of audit logs")
        self._log = SealedLog(state, "audit", self.damaged, secret)
        self.hold = self._log.hold

    @property
    def key(self) -> bytes | None:
        """The public key that the site's logs are signed for."""
        return None if self.identity is None else self.identity.public

    def lines(self, run_id: str) -> list[str]:
        """Return the log of a run, to go on with; nothing goes on where one of the site's logs was touched."""
        return self._log.lines(run_id)

    def append(self, run_id: str, line: str) -> None:
        """Add an entry to the log of a run; it is on disk when the call returns."""
        self._log.append(run_id, line)

    def entries(self) -> list[AuditEntry]:
        """Return what the site's own log says."""
        return parse_entries(self.lines(SITE_LOG))

    def about(self, digest: str) -> list[AuditEntry]:
        """Return what all logs say of the study of this digest, in the order it was written."""
        lines = [line for _, line in self._log.tagged() if digest in line]
        return [entry for entry in parse_entries(lines) if entry.study_digest == digest]

    def note(self, event: str, task: str = "", note: str = "", run: str = "", **more: Any) -> AuditEntry:
        """Write one entry of the site's own log, on disk when this returns; a log that is not intact is not continued.

        What was written today is not written again, unless the owner has decided something since, and refused greetings are
        not all written where they are many: a server that repeats itself does not fill the disk.
        """
        with self.hold():
            standing = self._standing()
            now = iso_time(self._clock())
            said = {
                "site": self.site,
                "event": event,
                "task": task,
                "asked_by": more.pop("asked_by", "server"),
                "note": note[:500],
                "run": run,
                "chain": self._reached(run),
                **more,
            }
            if event == "refused" and now[:10] == standing.day and standing.n_refused >= MOST_REFUSED:
                said = {name: said[name] for name in ("site", "event", "task", "asked_by")}
                said["note"] = (
                    f"more than {MOST_REFUSED} greetings were refused today; this log does not list the others"
                )
            # Made without a signature first: most of what a server repeats is not written.
            known = standing.said.get(_about(AuditChain().add(time=now, **said)))
            if known is not None and event not in DECISIONS and now[:10] == standing.day:
                return known
            entry = standing.chain.add(write=partial(self.append, SITE_LOG), time=now, **said)
            standing.hear(entry)
            return entry

    def head(self) -> Head | None:
        """Return where the site's own log stands, signed; None for a site without a key."""
        if self.identity is None:
            return None
        return signed_head(self.identity, self.site, self._standing().chain, iso_time(self._clock()))

    def _standing(self) -> _Standing:
        """Return where the site's own log stands; its entries are read if they are not as this process left them."""
        lines = self.lines(SITE_LOG)
        if self._known is None or self._known.chain.n_entries != len(lines):
            chain = AuditChain.resume(lines, self.identity, self.key)
            # There was no such log in the version that did not sign.
            if self.key is not None and lines and verify_chain(lines, key=self.key).seal == "unkeyed":
                raise FileError(
                    "the audit log is not intact (it is not signed) and is not continued.", code="not-signed"
                )
            self._known = _Standing(chain)
            for entry in parse_entries(lines):
                self._known.hear(entry)
        return self._known

    def _reached(self, run_id: str) -> str:
        """How far the log of a run has come, "n hash"."""
        if not run_id:
            return ""
        last = parse_entries(self.lines(run_id)[-1:])
        return f"{last[0].index + 1} {last[0].hash}" if last else f"0 {GENESIS}"

    def account(self) -> Account:
        """Return what all logs of runs together say, unless one was touched."""
        by_run: dict[str, list[str]] = {}
        try:
            for run_id, line in self._log.tagged():
                by_run.setdefault(run_id, []).append(line)
            by_run.pop(SITE_LOG, None)
            entries = {run_id: tuple(parse_entries(lines)) for run_id, lines in by_run.items()}
            return Account(entries, self._unlogged(by_run))
        except FeddbnError as error:
            return Account(doubt=str(error))

    def _unlogged(self, logged: Collection[str]) -> str | None:
        """A sentence if a run that is still in the store has answered and has no log: somebody has taken all away."""
        for run_id in Store(self.state).changed():
            if run_id in logged or run_id.startswith("_"):
                continue
            record = FileStore(self.state, self.site).load(run_id)
            if record is not None and record.digest:
                return f"run {run_id!r} has answered, and its log is missing; restore the site's state from a backup."
        return None

    def adopt(self) -> int:
        """Seal the logs as they are, if each is intact by itself; return how many runs have one. The owner's decision."""
        if is_earlier_state(self.state):
            take_over(self.state, self._log)
        lines = self._log.as_they_are()
        logs: dict[str, list[str]] = {}
        for run_id, line in lines:
            logs.setdefault(run_id, []).append(line)
        for run_id, log in logs.items():
            report = verify_chain(log)
            if report.problem is not None:
                raise FileError(
                    f"the log of run {run_id!r} is not intact: {report.problem}.", code="damaged-log"
                )
        self._log.seal_anew(lines)
        return len(logs.keys() - {SITE_LOG})

    @staticmethod
    def damaged() -> FileError:
        """Return what is said where they are not as they were."""
        return FileError(
            "the audit logs in this site's store or their head (_audit.head) were damaged, lost or put back from a backup; "
            "restore the latest of both, or, if no log was deleted or shortened, take them as they are with `feddbn site "
            "verify --adopt`.",
            code="damaged-log",
        )


@dataclass(frozen=True)
class Account:
    """What all logs say was sent; `doubt` is a sentence if they cannot be trusted, and everything counts as spent then."""

    by_run: Mapping[str, tuple[AuditEntry, ...]] = field(default_factory=dict)
    doubt: str | None = None

    @property
    def ledger(self) -> Ledger:
        """Everything that was released, in all runs."""
        return Ledger.replay(entry for entries in self.by_run.values() for entry in entries)

    def spent(self, unit: Unit, delta: float) -> float:
        """Return the epsilon of everything for one unit; infinite if it cannot be known."""
        return float("inf") if self.doubt else self.ledger.for_unit(unit).epsilon(delta)


def budget_finding(account: Account, policy: SitePolicy) -> Finding:
    """Return what was spent of a policy's budget; `spent` is None where answers without noise have left."""
    if account.doubt:
        return Finding("budget-unknown", "error", {"doubt": account.doubt})
    if policy.max_epsilon is None:
        return Finding("budget-unset", "note")
    spent = account.spent(policy.unit, policy.delta)
    values = {"limit": policy.max_epsilon, "unit": policy.unit, "delta": policy.delta}
    return Finding("budget", "note", {**values, "spent": None if spent == float("inf") else spent})


@dataclass(frozen=True)
class LogReport:
    """One log: its chain, and what is wrong with it, or None."""

    log: str
    chain: ChainReport
    problem: str | None


def logs_at(place: Path) -> dict[str, list[str]]:
    """Return the lines of each log at a place, by file name: of a site's state, of a folder of exported logs, of one file.

    ``<state>/_audit`` and ``<state>/_audit/<run id>.jsonl``, where logs were in version 0.2, mean those of the store.
    """
    place, only = Path(place), ""
    state = place
    if not place.exists() and place.name == "_audit":
        state = place.parent
    elif not place.exists() and place.parent.name == "_audit":
        state, only = place.parent.parent, place.name
    if (state / STORE).exists():
        logs: dict[str, list[str]] = {}
        for tag, line in SealedLog(state, "audit", SiteAudit.damaged).as_they_are():
            logs.setdefault(f"{tag}{SUFFIX}", []).append(line)
        if not only or only in logs:
            return {only: logs[only]} if only else logs
    # A site that has not run yet has no state, and no logs.
    is_one = place.is_file() or place.suffix == SUFFIX
    paths = [place] if is_one else sorted(place.glob(f"*{SUFFIX}"))
    with reading(f"the audit log {str(place)!r}"):
        return {path.name: path.read_text("utf-8", "replace").splitlines() for path in paths}


def export_logs(state: Path, out: Path) -> list[Path]:
    """Write the logs of a site's store as files of JSON lines; return their paths."""
    private_directory(out)
    paths = []
    for name, lines in logs_at(state).items():
        paths.append(Path(out) / name)
        paths[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


def check_logs(
    logs: Mapping[str, Sequence[str]], key: bytes | None = None, heads: Sequence[Head] = ()
) -> list[LogReport]:
    """Return a report for each log; `key` is the site's public key, `heads` are of its own log.

    A log that the site's own log or a head speaks of and that is not there has a report, too.
    """
    own = f"{SITE_LOG}{SUFFIX}"
    promised = _promised(logs.get(own, ()))
    names = sorted({*logs, *promised, *([own] if heads else [])})
    return [
        _report(name, logs.get(name, ()), key, promised.get(name, ()), heads if name == own else None)
        for name in names
    ]


def _report(
    name: str,
    lines: Sequence[str],
    key: bytes | None,
    promised: Sequence[tuple[int, str, str]],
    heads: Sequence[Head] | None,
) -> LogReport:
    chain = verify_chain(lines, key=key)
    if chain.problem is not None:
        return LogReport(name, chain, chain.problem)
    entries = parse_entries(lines)
    wrong: list[str | None] = [_missing(entries, *one) for one in promised]
    if heads is not None:
        # There was no such log in the version that did not sign.
        wrong += ["it is not signed"] if key is not None and lines and chain.seal == "unkeyed" else []
        wrong += [against_log(head, entries) for head in heads]
    return LogReport(name, chain, next((problem for problem in wrong if problem is not None), None))


def _missing(entries: Sequence[AuditEntry], n: int, last: str, time: str) -> str | None:
    if len(entries) < n:
        return f"it has {len(entries)} entries, but the site's own log says {n} at {time}: entries were taken away"
    if n and entries[n - 1].hash != last:
        return f"its entry {n} is not the one that the site's own log names at {time}: it was rewritten"
    return None


def _promised(site_log: Sequence[str]) -> dict[str, list[tuple[int, str, str]]]:
    """Return, for each run's log, (entries, hash, time) that the site's own log says it had."""
    found: dict[str, list[tuple[int, str, str]]] = {}
    try:
        entries = parse_entries(site_log)
    except FileError:
        return {}
    for entry in entries:
        n, _, last = entry.chain.partition(" ")
        if entry.run and n.isdigit() and int(n) > 0:
            found.setdefault(f"{entry.run}{SUFFIX}", []).append((int(n), last, entry.time))
    return found


@dataclass(frozen=True)
class LogLine:
    """One line for people; equal questions that followed each other (rounds of a method) are one."""

    time: str
    outcome: str
    asked: str
    epsilon: str
    left: str
    task: str
    times: int = 1


@dataclass(frozen=True)
class RunLog:
    """What is logged about one run; of the site itself where `run` is empty."""

    run: str
    entries: tuple[AuditEntry, ...]

    @property
    def title(self) -> str:
        """The run, its study and who asked."""
        if not self.run:
            return "the site itself"
        first = next((entry for entry in self.entries if entry.study), self.entries[0])
        study = f", study {first.study} ({first.study_digest[:12]})" if first.study else ""
        return f"run {self.run}{study}, asked by {first.asked_by}"

    def lines(self) -> Iterator[LogLine]:
        """Yield the lines for people."""
        kept: LogLine | None = None
        for entry in self.entries:
            line = _line(entry)
            # What the owner decided is about one study each, and refusals may have different reasons.
            is_round = entry.event not in DECISIONS and (
                entry.event != "refused" or kept is None or kept.asked == line.asked
            )
            if kept is not None and is_round and (kept.task, kept.outcome) == (line.task, line.outcome):
                kept = replace(line, time=kept.time, times=kept.times + 1)
                continue
            if kept is not None:
                yield kept
            kept = line
        if kept is not None:
            yield kept


def logs_of(place: Path, run: str = "") -> list[RunLog]:
    """Return what the logs at a place say about each run, or about one, the oldest first."""
    found: dict[str, list[AuditEntry]] = {}
    for name, lines in logs_at(place).items():
        for entry in parse_entries(lines):
            # Entries of earlier versions do not name their run; their log does.
            about = entry.run or ("" if name == f"{SITE_LOG}{SUFFIX}" else name.removesuffix(SUFFIX))
            if run in ("", about):
                found.setdefault(about, []).append(entry)
    logs = [RunLog(name, tuple(_in_order(entries))) for name, entries in found.items()]
    return sorted(logs, key=lambda log: log.entries[0].time)


def _in_order(entries: Iterable[AuditEntry]) -> list[AuditEntry]:
    """Return them by time; in one second, a greeting comes before what it leads to, and the end after it."""
    ranks = {"agreed": 0, "finished": 2}
    return sorted(entries, key=lambda entry: (entry.time, ranks.get(entry.event, 1), entry.index))


def _line(entry: AuditEntry) -> LogLine:
    # Sampling noise promises no epsilon; what it compares to depends on the rows of all sites.
    is_promised = entry.epsilon is not None and not entry.protection.endswith("sampling noise")
    epsilon = f"{entry.epsilon:.3g} per {entry.unit}" if is_promised else "-"
    left = "-"
    if entry.budget is not None and entry.epsilon is not None:
        left = f"{max(entry.budget - entry.epsilon, 0):.3g} of {entry.budget:g}"
    about = entry.study if entry.event in DECISIONS else ""
    words = (entry.task, entry.asked, about, entry.note)
    outcome = entry.event
    if entry.event == "sent":
        # Entries of version 1 know no other word for a sum that the server could read.
        protection = "in the clear" if entry.protection == "none" else entry.protection
        cost = entry_epsilon(entry) if is_promised else None
        outcome = f"sent {entry.length} numbers, {protection}" + (
            "" if cost is None else f", epsilon {cost:.3g}"
        )
    return LogLine(entry.time, outcome, ": ".join(word for word in words if word), epsilon, left, entry.task)


MOST_ODD = 8
PEERS = "_peers"


@dataclass(frozen=True)
class Peer:
    """What is known of one other site: its head that reaches furthest, heads that contradict what was held then, and its
    receipt: its word that it holds a head of this site.
    """

    site: str
    held: Head | None = None
    odd: tuple[Head, ...] = field(default=())
    receipt: Receipt | None = None


_PEER = TypeAdapter(Peer)


class PeerHeads:
    """A site's end of the exchange of heads; `keys` are those that its owner has pinned."""

    def __init__(
        self, audit: SiteAudit, keys: Mapping[str, bytes], warn: Callable[[str], None] = lambda sentence: None
    ) -> None:
        self._audit = audit
        self._keys = {site: key for site, key in keys.items() if site != audit.site}
        self._warn = warn
        self._store = Store(audit.state)
        self._read: dict[str, tuple[bytes, Peer]] = {}

    def head(self) -> dict[str, Any] | None:
        """Return this site's head, to be carried to the others."""
        head = self._audit.head()
        return None if head is None else head.fields()

    def hear(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the heads and receipts that came from others; return receipts.

        What is malformed, or not signed by a pinned key, is passed over: the server could have made it up.
        """
        most = len(self._keys)
        receipts = [self._keep(head) for head in well_formed(meta.get("heads"), read_head, most)]
        given = [
            word for word in well_formed(meta.get("receipts"), read_receipt, most) if self._keep_receipt(word)
        ]
        entries = self._audit.entries() if given else []
        for receipt in given:
            wrong = against_log(receipt.head, entries)
            if wrong is not None:
                self._tell(
                    f"this site's own audit log was rolled back: {receipt.holder} holds its signed head, and {wrong}; "
                    "restore the state from a copy, and trust no budget before that."
                )
        return {"receipts": [receipt.fields() for receipt in receipts if receipt is not None]}

    def all(self) -> list[Peer]:
        """Return what is known of each other site, sorted by name; what is damaged counts as nothing."""
        return [self._load(site) for site in sorted(self._keys)]

    def _keep(self, head: Head) -> Receipt | None:
        key, identity = self._keys.get(head.site), self._audit.identity
        if key is None or identity is None or not is_signed(head, key):
            return None
        with self._store.hold():
            peer = self._load(head.site)
            held = peer.held or head
            wrong = contradiction(held, head)
            # The same contradiction again, which the server can send as often as it likes, is not told again.
            is_news = wrong is not None and head not in peer.odd and len(peer.odd) < MOST_ODD
            if is_news:
                self._put(replace(peer, odd=(*peer.odd, head)))
            elif peer.held is None or head.n_entries > held.n_entries:
                held = head
                self._put(replace(peer, held=held))
        if is_news:
            self._tell(f"{wrong}; ask its owner.")
        return signed_receipt(identity, self._audit.site, held)

    def _keep_receipt(self, receipt: Receipt) -> bool:
        """Keep a receipt for a head of this site, if it is one and reaches further than the last."""
        key, own, head = self._keys.get(receipt.holder), self._audit.key, receipt.head
        if key is None or own is None or head.site != self._audit.site:
            return False
        if not is_signed(receipt, key) or not is_signed(head, own):
            return False
        with self._store.hold():
            peer = self._load(receipt.holder)
            is_news = peer.receipt is None or head.n_entries > peer.receipt.head.n_entries
            if is_news:
                self._put(replace(peer, receipt=receipt))
        return is_news

    def _tell(self, sentence: str) -> None:
        self._audit.note("warning", "heads", sentence, asked_by=self._audit.site)
        self._warn(sentence)

    def _load(self, site: str) -> Peer:
        """Return what is held of a site; its signatures are checked when it has changed."""
        stored = self._store.get(PEERS, site)
        if stored is None:
            return Peer(site)
        if site not in self._read or self._read[site][0] != stored:
            self._read[site] = (stored, self._checked(site, stored))
        return self._read[site][1]

    def _checked(self, site: str, stored: bytes) -> Peer:
        try:
            peer = _PEER.validate_json(stored)
        except ValidationError:
            self._warn(f"what this site held of {site}'s audit log was damaged and is begun anew.")
            return Peer(site)
        # Whoever can write the store cannot make up heads; what is not signed is forgotten.
        key, own = self._keys[site], self._audit.key
        held = peer.held if peer.held is not None and is_signed(peer.held, key) else None
        receipt = peer.receipt
        if receipt is not None and (
            own is None or not is_signed(receipt, key) or not is_signed(receipt.head, own)
        ):
            receipt = None
        return Peer(site, held, tuple(head for head in peer.odd if is_signed(head, key)), receipt)

    def _put(self, peer: Peer) -> None:
        self._store.put(PEERS, peer.site, _PEER.dump_json(peer))


def own_heads(state: Path, site: str, key: bytes) -> list[Head]:
    """Return the heads of this site that others have given receipts for, as its own store holds them."""
    found, store = [], Store(state)
    for name in store.names(PEERS):
        with contextlib.suppress(ValidationError):
            receipt = _PEER.validate_json(store.get(PEERS, name) or b"").receipt
            if receipt is not None and receipt.head.site == site and is_signed(receipt.head, key):
                found.append(receipt.head)
    return found


@dataclass(frozen=True)
class Export:
    """What a person hands to another: a site's head, those it holds, also odd ones, and the receipts it has."""

    site: str
    own: Head | None
    held: tuple[Head, ...]
    odd: tuple[Head, ...]
    receipts: tuple[Receipt, ...]
    type: Literal["feddbn audit heads"] = "feddbn audit heads"
    version: Literal[1] = 1


_EXPORT = TypeAdapter(Export)


def export_heads(heads: PeerHeads, audit: SiteAudit) -> str:
    """Return, as JSON to hand to another person, this site's head, those it holds and the receipts it has."""
    peers = heads.all()
    exported = Export(
        audit.site,
        audit.head(),
        tuple(peer.held for peer in peers if peer.held is not None),
        tuple(head for peer in peers for head in peer.odd),
        tuple(peer.receipt for peer in peers if peer.receipt is not None),
    )
    return _EXPORT.dump_json(exported, indent=1).decode() + "\n"


def read_export(path: Path, keys: Mapping[str, bytes]) -> Export:
    """Return the heads in a file from another person; every signature is checked with the pinned keys."""
    with reading(str(path)):
        text = Path(path).read_bytes()
    try:
        found = _EXPORT.validate_json(text)
    except ValidationError:
        raise FileError(
            f"{path} does not hold heads of audit logs; `feddbn site verify --out` writes them.",
            code="no-heads",
        ) from None
    own = found.own
    for word in (*(() if own is None else (own,)), *found.held, *found.odd, *found.receipts):
        signer = word.site if isinstance(word, Head) else word.holder
        if signer not in keys or not is_signed(word, keys[signer]):
            raise FileError(
                f"{path} holds a head that {signer} did not sign, or its key is not in peers.toml.",
                code="not-signed",
            )
    if own is not None and own.site != found.site:
        raise FileError(f"{path} is of {found.site}, but its own head is of {own.site}.", code="foreign-head")
    return found


def compare(heads: PeerHeads, audit: SiteAudit, other: Export) -> list[str]:
    """Return everything in which another person's heads contradict this site's log or the heads it holds."""
    found: list[str] = []
    entries = audit.entries()
    for head in (*other.held, *other.odd, *(receipt.head for receipt in other.receipts)):
        wrong = against_log(head, entries) if head.site == audit.site else None
        if wrong is not None:
            found.append(f"{other.site} holds a head of this site's log, and {wrong}")
    known: Sequence[Peer] = heads.all()
    for peer in known:
        shown = [
            head
            for head in (other.own, *other.held, *other.odd)
            if head is not None and head.site == peer.site
        ]
        for head in shown if peer.held is not None else ():
            assert peer.held is not None
            wrong = contradiction(peer.held, head) or contradiction(head, peer.held)
            if wrong is not None:
                found.append(wrong)
    return list(dict.fromkeys(found))
