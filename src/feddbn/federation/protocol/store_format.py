"""What a site stores for a run, as one self-checking byte string, and the place that keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.encoding import decode, encode
from feddbn.errors import ProtocolError, StateError
from feddbn.federation.protocol.messages import NEVER
from feddbn.federation.protocol.site import SiteState

__all__ = ["RecordStore", "SiteRecord", "Snapshot", "decode_record", "encode_record"]


@dataclass(frozen=True)
class Snapshot:
    """The state of a site after task `seq` (NEVER: before the first).

    `history` is a digest of all tasks that led to it: states with another history are not added up under masks.
    """

    seq: int = NEVER
    state: SiteState = field(default_factory=dict)
    history: str = ""

    def __post_init__(self) -> None:
        # A site program is a pure function; one that writes into the state it was given would spoil a repeat.
        for array in self.state.values():
            array.setflags(write=False)


@dataclass(frozen=True)
class SiteRecord:
    """Everything a site must remember of one run.

    Attributes
    ----------
    run_id, site
        Whose record this is; a record of another run or site is refused.
    study, version
        The study this run was opened with, as canonical text, and the package version it began with.
    previous, current
        The last counted state and the state after the last executed task.
    digest, vector
        The last executed task and the answer to it, after every guard: a repeat sends the same bytes,
        so noise is never drawn twice for one release.
    opened
        The sites for whose masked sum of the last task this site has helped to open the masks, or may: those of the
        sum before. It helps for no others.
    n_guaranteed
        Fewest sites in any sum that the answer may be part of: what its noise was made for.
    """

    run_id: str
    site: str
    study: str
    version: str
    previous: Snapshot = field(default_factory=Snapshot)
    current: Snapshot = field(default_factory=Snapshot)
    digest: str = ""
    vector: FloatArray | None = None
    opened: tuple[str, ...] = ()
    n_guaranteed: int = 1


def encode_record(record: SiteRecord) -> bytes:
    """Return the bytes of a record."""
    arrays: dict[str, np.ndarray] = {f"previous/{k}": v for k, v in record.previous.state.items()}
    arrays.update({f"current/{k}": v for k, v in record.current.state.items()})
    if record.vector is not None:
        arrays["vector"] = record.vector
    meta = {"type": "site-record", "run": record.run_id, "site": record.site}
    begun = {"study": record.study, "version": record.version}
    numbers = {"previous": record.previous.seq, "current": record.current.seq, "digest": record.digest}
    histories = [record.previous.history, record.current.history]
    masks = {"opened": list(record.opened), "n_guaranteed": record.n_guaranteed, "histories": histories}
    return encode({**meta, **begun, **numbers, **masks}, arrays)


def decode_record(message: bytes, run_id: str, site: str) -> SiteRecord:
    """Inverse of `encode_record`; damage or a record of another run or site raises `StateError`."""
    try:
        meta, arrays = decode(message)
    except ProtocolError as error:
        raise StateError(
            f"the stored state of run {run_id!r} at site {site!r} cannot be read: {error}"
        ) from None
    if meta.get("type") != "site-record" or meta.get("run") != run_id or meta.get("site") != site:
        raise StateError(
            f"the stored state found for run {run_id!r} at site {site!r} belongs to another run or site."
        )
    states: dict[str, SiteState] = {"previous": {}, "current": {}}
    for key, array in arrays.items():
        part, _, name = key.partition("/")
        if part in states:
            states[part][name] = array
    # Records of earlier versions have no histories; a run goes on with the version it began with.
    before, now = meta.get("histories", ("", ""))
    return SiteRecord(
        run_id,
        site,
        str(meta["study"]),
        str(meta["version"]),
        Snapshot(int(meta["previous"]), states["previous"], str(before)),
        Snapshot(int(meta["current"]), states["current"], str(now)),
        str(meta["digest"]),
        arrays.get("vector"),
        tuple(meta["opened"]),
        int(meta.get("n_guaranteed", 1)),
    )


class RecordStore(Protocol):
    """A place that keeps one site's records; `save` has happened when it returns."""

    def load(self, run_id: str) -> SiteRecord | None:
        """Return the record of a run, or None if this site never took part."""
        ...

    def save(self, record: SiteRecord) -> None:
        """Replace the record of the run, all or nothing."""
        ...
