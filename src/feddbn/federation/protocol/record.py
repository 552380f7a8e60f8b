"""A site's state as a named, versioned record: every field is an array with a leading axis for the sites.

A program reads the record of the sites it answers for, computes with it, and keeps it; each site stores its own part under
the record's name. A record of another version is refused: a run goes on with the version it began with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import is_
from typing import Any, ClassVar, Self

import numpy as np

from feddbn.errors import StateError
from feddbn.federation.protocol.site import Memo, SiteState

__all__ = ["TOGETHER", "Record"]

TOGETHER = "together"
"""Where a memo keeps the records of sites that were asked together, as arrays of all of them."""
# Bytes of them that are worth keeping a second time; beyond, they are put together anew in every round.
_ROOM = 1 << 28


@dataclass(frozen=True)
class Record:
    """Base of the records; a subclass is a frozen dataclass of arrays (K, ...).

    Attributes
    ----------
    prefix, version
        Name of the record and version of its fields.
    """

    prefix: ClassVar[str]
    version: ClassVar[int]

    @classmethod
    def is_in(cls, state: Mapping[str, np.ndarray]) -> bool:
        """Whether a state holds such a record of this version."""
        found = state.get(f"{cls.prefix}.version")
        if found is not None and int(found) != cls.version:
            raise StateError(
                f"this site's {cls.prefix} state has version {int(found)}, but this feddbn reads {cls.version}; "
                "finish the run with the version it began with."
            )
        return found is not None

    @classmethod
    def read(
        cls, states: Sequence[Mapping[str, np.ndarray]], memo: Memo | None = None, first: str = ""
    ) -> Self:
        """Return the record of these sites together; a memo may know it from what was kept last.

        `first` is the name of the first of them, under which the memo has it.
        """
        known = {} if memo is None else memo.get(TOGETHER, {})
        kept, record = known.get((cls, first), ((), None))
        if len(kept) == len(states) and all(map(is_, kept, states)) and isinstance(record, cls):
            return record
        if not all(cls.is_in(state) for state in states):
            raise StateError(
                f"this site has no {cls.prefix} state of this run; it must begin with its first round."
            )
        values: dict[str, Any] = {
            item.name: np.stack([state[f"{cls.prefix}.{item.name}"] for state in states])
            for item in fields(cls)
        }
        return cls(**values)

    def kept(
        self,
        states: Sequence[Mapping[str, np.ndarray]],
        only: Iterable[str] | None = None,
        memo: Memo | None = None,
        first: str = "",
    ) -> list[SiteState]:
        """Return the sites' states with this record in them; `only` names the fields that have changed.

        A memo keeps it for the next `read` of the same states.
        """
        names = [item.name for item in fields(self)] if only is None else list(only)
        columns = [(f"{self.prefix}.{name}", getattr(self, name)) for name in names]
        version = np.array(self.version)
        # Copies: a view would keep the arrays of all sites alive as long as one site keeps its own.
        new = [
            {
                **state,
                f"{self.prefix}.version": version,
                **{key: np.array(array[k]) for key, array in columns},
            }
            for k, state in enumerate(states)
        ]
        if memo is not None:
            known = memo.setdefault(TOGETHER, {})
            known.pop((type(self), first), None)
            if self._n_bytes + sum(record._n_bytes for _, record in known.values()) <= _ROOM:
                known[type(self), first] = (tuple(new), self)
        return new

    @property
    def _n_bytes(self) -> int:
        return sum(getattr(self, item.name).nbytes for item in fields(self))
