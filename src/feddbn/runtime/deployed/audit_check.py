"""Whether all audit logs of a site are intact, hold what the site's own log says of them, and reach the heads others hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from feddbn.errors import FileError
from feddbn.privacy.audit import AuditEntry, ChainReport, Head, against_log, parse_entries, verify_chain
from feddbn.runtime.deployed.audit_files import SITE_LOG, whole_lines

__all__ = ["LogReport", "check_logs"]


@dataclass(frozen=True)
class LogReport:
    """One log: its chain, and what is wrong with it, or None."""

    log: str
    chain: ChainReport
    problem: str | None


def check_logs(directory: Path, key: bytes | None = None, heads: Sequence[Head] = ()) -> list[LogReport]:
    """Return a report for each log below `directory`; `key` is the site's public key, `heads` are of its own log.

    A log that the site's own log or a head speaks of and that is not there has a report, too.
    """
    paths = {path.name: path for path in sorted(Path(directory).glob("*.jsonl"))}
    promised = _promised(paths.get(SITE_LOG))
    names = sorted({*paths, *promised, *([SITE_LOG] if heads else [])})
    return [_report(Path(directory) / name, key, promised.get(name, ()), heads) for name in names]


def _report(
    path: Path, key: bytes | None, promised: Sequence[tuple[int, str, str]], heads: Sequence[Head]
) -> LogReport:
    try:
        lines = whole_lines(path)
    except FileError as error:
        return LogReport(path.name, ChainReport(0, "", str(error)), str(error).rstrip("."))
    chain = verify_chain(lines, key=key)
    if chain.problem is not None:
        return LogReport(path.name, chain, chain.problem)
    entries = parse_entries(lines)
    wrong: list[str | None] = [_missing(entries, *one) for one in promised]
    if path.name == SITE_LOG:
        # There was no such log in the version that did not sign.
        wrong += ["it is not signed"] if key is not None and lines and chain.seal == "unkeyed" else []
        wrong += [against_log(head, entries) for head in heads]
    return LogReport(path.name, chain, next((problem for problem in wrong if problem is not None), None))


def _missing(entries: Sequence[AuditEntry], n: int, last: str, time: str) -> str | None:
    if len(entries) < n:
        return f"it has {len(entries)} entries, but the site's own log says {n} at {time}: entries were taken away"
    if n and entries[n - 1].hash != last:
        return f"its entry {n} is not the one that the site's own log names at {time}: it was rewritten"
    return None


def _promised(site_log: Path | None) -> dict[str, list[tuple[int, str, str]]]:
    """Return, for each run's log, (entries, hash, time) that the site's own log says it had."""
    found: dict[str, list[tuple[int, str, str]]] = {}
    try:
        entries = [] if site_log is None else parse_entries(whole_lines(site_log))
    except FileError:
        return {}
    for entry in entries:
        n, _, last = entry.chain.partition(" ")
        if entry.run and n.isdigit() and int(n) > 0:
            found.setdefault(f"{entry.run}.jsonl", []).append((int(n), last, entry.time))
    return found
