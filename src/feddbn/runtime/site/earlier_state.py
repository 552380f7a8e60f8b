"""State of version 0.2, in some twenty kinds of files: refused with one sentence, and read into a store by the site's owner.

Audit logs, approvals, texts of studies, heads of other sites' logs and what the site remembers of sums are taken over. Which
rows were used is not: that was about one version of the data. A run goes on with the version it began with, so what belongs
to runs stays where it is. The folders that were read are moved to ``_version_0.2``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from feddbn.errors import FileError
from feddbn.runtime.site.registers import SiteLedger
from feddbn.runtime.store import SealedLog, Store, private_directory

_FOLDERS = ("_audit", "_register", "_approvals", "_studies")
_KINDS = {"sums": "sum", "recordings": "recordings", "resamples": "resamples", "steps": "steps"}
"""Files of the register, and what their lines are called now."""


def is_earlier_state(state: Path) -> bool:
    """Whether a site's state is of version 0.2 and was not read yet."""
    return not Store(state).exists and any((Path(state) / name).is_dir() for name in _FOLDERS)


def refuse_earlier_state(state: Path) -> None:
    """Refuse a state of version 0.2."""
    if is_earlier_state(state):
        raise FileError(
            f"the state in {state} was written by version 0.2; its owner has it read into this version's store with `feddbn "
            "site verify --adopt --kit KIT`, or moves it away.",
            code="earlier-state",
        )


def take_over(state: Path, audit: SealedLog) -> None:
    """Read a state of version 0.2 into the store, all or nothing."""
    state, store, ledger = Path(state), Store(state), SiteLedger(state)
    try:
        with store.hold():
            audit.seal_anew(
                [(path.stem, line) for path in _files(state / "_audit", "*.jsonl") for line in _lines(path)]
            )
            for file, kind in _KINDS.items():
                found = [
                    json.loads(line)
                    for path in _files(state / "_register", f"{file}.jsonl")
                    for line in _lines(path)
                ]
                ledger.add(kind, ({"of": line.pop("kind", ""), **line} for line in found))
            for place in ("_approvals", "_studies"):
                for path in _files(state / place, "[!.]*.json"):
                    store.put(place, path.stem, path.read_bytes())
            for path in _files(state / "_audit" / "peers", "[!.]*.json"):
                store.put("_peers", unquote(path.stem), path.read_bytes())
    except (OSError, ValueError) as error:
        raise FileError(f"the state in {state} cannot be read: {error}.", code="earlier-state") from None
    private_directory(state / "_version_0.2")
    for name in _FOLDERS:
        if (state / name).exists():
            (state / name).rename(state / "_version_0.2" / name)


def _files(folder: Path, names: str) -> Iterator[Path]:
    yield from sorted(folder.glob(names))


def _lines(path: Path) -> list[str]:
    """Return the lines of a file; half a line at its end is about something that did not happen."""
    return path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
