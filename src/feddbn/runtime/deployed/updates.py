"""Updates of runs: the sums that a server keeps of a run, and what a site remembers of the recordings that were in it.

A study with `update_of` is about new rows. The server adds their sums to those of the earlier run, which it has had in its
journal all along and keeps as ``<runs>/<run id>/sums.json``; they are sent to nobody. A site answers only if none of its
recordings was in that run, as it is or with rows added: otherwise rows would be counted twice.

A site whose recordings were summed in parts, by an update or because its data were replaced, offers the parts together only
with the same sites: sums of the parts over other sites than the whole would show single ones, and the register of sums,
which goes by versions of data, does not know that parts make a whole.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from feddbn.core.designs.recordings import Recording, SiteData
from feddbn.errors import SiteRefused, StateError
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.study_methods import StudyResult
from feddbn.runtime.deployed.registers import RegisterLines
from feddbn.runtime.deployed.store import run_directory, write_atomically

__all__ = ["RecordingBook", "earlier_sums", "keep_sums"]

_SAME = ("method", "variables", "parameters", "sites", "units", "some_variables_may_be_missing", "held_by")


def keep_sums(directory: Path, study: Study, result: StudyResult) -> None:
    """Keep what an update of this run will need, at the server."""
    if result.kept:
        values = {"study": json.loads(study.to_json()), **result.kept}
        write_atomically(Path(directory) / "sums.json", json.dumps(values).encode())


def earlier_sums(runs: Path, study: Study) -> Mapping[str, Any] | None:
    """Return what the run that a study updates has kept; None if it updates none. Another question is refused."""
    if not study.update_of:
        return None
    path = run_directory(runs, study.update_of, create=False) / "sums.json"
    try:
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        before = Study.model_validate(kept["study"])
    except FileNotFoundError:
        raise StateError(
            f"update_of = {study.update_of!r}: the server has no sums of such a run; it did not finish, was deleted after "
            "`keep_days`, or learned by more than second moments. Ask about all rows in a study of its own."
        ) from None
    except (OSError, ValueError, KeyError) as error:
        raise StateError(f"update_of = {study.update_of!r}: its sums cannot be read: {error}.") from None
    differ = [name for name in _SAME if getattr(before, name) != getattr(study, name)]
    if differ:
        raise StateError(
            f"update_of = {study.update_of!r}: the study has other {differ[0]} than that run; only the same question can be "
            "updated."
        )
    if before.attendance.when_missing == "continue" or before.attendance.enough is not None:
        raise StateError(
            f"update_of = {study.update_of!r}: that run was allowed to go on without a site; update runs that wait for all."
        )
    return kept


@dataclass(frozen=True)
class _Known:
    """The recordings of one run: number of rows and digest of each; `base` is the run that it updated."""

    run: str
    base: str
    sites: tuple[str, ...]
    recordings: tuple[tuple[int, str], ...]


class RecordingBook:
    """Which recordings a site offered in which run: ``<state>/_register/recordings.jsonl``."""

    def __init__(self, directory: Path, data: SiteData) -> None:
        self._lines = RegisterLines(
            Path(directory) / "recordings.jsonl", _known, "which recordings were in which run"
        )
        self._data = data

    def begin(self, run_id: str, study: Study) -> None:
        """Write down what is offered in a run, or refuse: rows of an update that are not new, parts beside their whole."""
        with self._lines.hold():
            known = self._lines.all()
            now = [_Prefixes(recording) for recording in self._data.recordings()]
            if study.update_of:
                self._require_new(study, known, now)
            self._require_same_sites(study, known, now)
            recordings = tuple(sorted(one.whole for one in now))
            line = _Known(run_id, study.update_of, tuple(sorted(study.sites)), recordings)
            if line not in known:
                self._lines.add([vars(line)])

    def _require_new(self, study: Study, known: Sequence[_Known], now: Sequence[_Prefixes]) -> None:
        # Also the runs that the earlier one has updated.
        wanted, base = {study.update_of}, study.update_of
        while base := next((one.base for one in known if one.run == base and one.base not in wanted), ""):
            wanted.add(base)
        before = [one for one in known if one.run in wanted]
        if not any(one.run == study.update_of for one in before):
            raise SiteRefused(
                f"the study updates run {study.update_of!r}, in which this site did not take part or which it has forgotten."
            )
        if any(set(one.sites) != set(study.sites) for one in before):
            raise SiteRefused(f"the study updates run {study.update_of!r} with other sites than it had.")
        old = {recording for one in before for recording in one.recordings}
        if any(one.begins_with(old) for one in now):
            raise SiteRefused(
                f"recordings of this site were in run {study.update_of!r}, or go on where they ended; offer new rows only, "
                "with the last n_lags rows of a recording that goes on in front."
            )

    def _require_same_sites(self, study: Study, known: Sequence[_Known], now: Sequence[_Prefixes]) -> None:
        """Refuse the whole where its parts were summed with other sites than are asked now."""
        sites, here = tuple(sorted(study.sites)), {one.whole for one in now}
        sets = [(one, frozenset(one.recordings)) for one in known]
        for (first, old), (second, new) in itertools.combinations(sets, 2):
            if first.sites == second.sites == sites or old & new:
                continue
            is_whole = bool(old & here and new & here)
            if second.base == first.run:
                # A recording that has grown may hold the rows of both.
                has_old = any(one.begins_with(old) for one in now)
                has_grown = any(one.begins_with(old) and one.whole not in old for one in now)
                is_whole |= has_grown or (has_old and any(one.begins_with(new) for one in now))
            if is_whole:
                raise SiteRefused(
                    f"rows of this site were added up in parts (runs {first.run!r} and {second.run!r}) with other sites; "
                    "with these the sum of all would show single sites. Ask the same sites, or use a study with noise."
                )


class _Prefixes:
    """Digests of a recording's beginnings."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        n = sum(len(block.values) for block in recording.blocks())
        self.whole = (n, self._digest(n))
        self._found = {n: self.whole[1]}

    def begins_with(self, old: Collection[tuple[int, str]]) -> bool:
        """Whether it is one of the old recordings, or begins with all rows of one."""
        for n in {n for n, _ in old if 0 < n <= self.whole[0]}:
            if n not in self._found:
                self._found[n] = self._digest(n)
            if (n, self._found[n]) in old:
                return True
        return False

    def _digest(self, n: int) -> str:
        digest, left = hashlib.sha256(), n
        for block in self._recording.blocks():
            values = np.ascontiguousarray(block.values[:left], dtype=np.float64)
            if not len(values):
                break
            digest.update(values.tobytes())
            left -= len(values)
        return digest.hexdigest()


def _known(line: Any) -> _Known:
    recordings = tuple((int(n), str(digest)) for n, digest in line["recordings"])
    return _Known(str(line["run"]), str(line["base"]), tuple(line["sites"]), recordings)
