"""What lies in a store, for tests that read it, change it behind its back, or put it back as it was."""

import json
import shutil
import sqlite3
from pathlib import Path

from feddbn.privacy.audit import parse_entries
from feddbn.runtime.site.audit import logs_at
from feddbn.runtime.store import STORE, Store


def log_lines(state, run):
    """The lines of a run's audit log, or of the site's own, `_site`."""
    return logs_at(Path(state)).get(f"{run}.jsonl", [])


def entries_of(state, run):
    """What the log of a run says."""
    return parse_entries(log_lines(state, run))


def changed(state, statement, *values):
    """Change a store as somebody who can write the file; return how many rows that has changed."""
    with sqlite3.connect(Path(state) / STORE) as connection:
        n = connection.execute(statement, values).rowcount
    connection.close()
    return n


def rewrite_log(state, run, lines):
    """Give an audit log other lines, without the key under which it is sealed; fewer are taken from its end."""
    with sqlite3.connect(Path(state) / STORE) as connection:
        rows = connection.execute(
            "SELECT number, content FROM lines WHERE place = '_audit' ORDER BY number"
        ).fetchall()
        found = [(number, bytes(content).decode().split(" ", 2)) for number, content in rows]
        own = [(number, mac) for number, (mac, tag, _) in found if tag == run]
        for number, _ in own:
            connection.execute("DELETE FROM lines WHERE place = '_audit' AND number = ?", (number,))
        for (number, mac), line in zip(own, lines, strict=False):
            content = f"{mac} {run} {line}".encode()
            connection.execute("INSERT INTO lines VALUES ('_audit', '', ?, 0, ?)", (number, content))
    connection.close()


def ledger_lines(state, kind):
    """What a site's ledger says of a kind."""
    found = [record.decode().split(" ", 2)[1:] for record in Store(state).records("_ledger", "")]
    return [json.loads(text) for tag, text in found if tag == kind]


def copied(state, to):
    """Copy a store with its heads; return where."""
    to.mkdir()
    for path in (*Path(state).glob("*.sqlite"), *Path(state).glob("*.head")):
        shutil.copy(path, to / path.name)
    return to


def put_back(backup, state):
    """Replace a store with its heads by what was copied."""
    for path in Path(state).glob("*.head"):
        path.unlink()
    for path in backup.iterdir():
        shutil.copy(path, Path(state) / path.name)
