"""The rule that a task changes a site at most once, whatever the network repeats, delays or reorders.

Theory of operation
-------------------
The server numbers the tasks of a run 0, 1, 2, ... A site keeps two snapshots: `previous`, the last one the
server has counted, and `current`, after the last task it executed. Each task says `after`: the number of the
last task whose answer by this site was counted. Then

- ``seq == current.seq`` and the same digest: the recorded answer is given again, nothing is executed;
- ``seq > current.seq`` and ``after == current.seq``: execute from the current snapshot (the usual step);
- ``seq > current.seq`` and ``after == previous.seq``: the last answer came too late to be counted; execute
  from the previous snapshot, as if the uncounted task had never been asked;
- anything else is refused and changes nothing.

A server that resumes from its journal is at most one task behind a site, and asks the same question again: it
gets the recorded answer. A site that was away for rounds still holds the snapshot the server means.

Known weakness: a site that lost its state directory cannot take part in a running run again, except as a
newcomer if its earlier answers were never counted.
"""

from __future__ import annotations

import enum

from feddbn.errors import ProtocolError, StateError
from feddbn.federation.protocol.messages import NEVER
from feddbn.federation.protocol.store_format import SiteRecord

__all__ = ["Step", "decide"]


class Step(enum.Enum):
    """What a site does with a task."""

    EXECUTE = "executed"
    REPEAT = "answered again from the record"
    STEP_BACK = "executed from the previous state; the last answer was not counted"


def decide(record: SiteRecord, seq: int, after: int, digest: str) -> Step:
    """Return what to do with task `seq`; a task that fits no rule raises and nothing has changed."""
    current, previous = record.current.seq, record.previous.seq
    if seq < 0 or after < NEVER or after >= seq:
        raise ProtocolError(f"task {seq} after task {after} is not a possible order.")
    if seq == current:
        if digest == record.digest:
            return Step.REPEAT
        raise ProtocolError(f"task {seq} was already answered and now has another content.")
    if seq < current:
        raise ProtocolError(f"task {seq} is stale: this site has already answered task {current}.")
    if after == current:
        return Step.EXECUTE
    if after == previous:
        return Step.STEP_BACK
    raise StateError(
        f"the server counted this site's answer to task {after}, but the stored states are of tasks "
        f"{_name(previous)} and {_name(current)}; the site cannot go on with this run."
    )


def _name(seq: int) -> str:
    return "none" if seq == NEVER else str(seq)
