"""Names that both ends of a Flower run use; importing them needs no engine."""

from __future__ import annotations

__all__ = ["NODE_SETTINGS", "OUTCOME_MARK", "RECORD", "SERVER_SETTINGS"]

RECORD = "feddbn"
NODE_SETTINGS = "feddbn-site"
SERVER_SETTINGS = "FEDDBN_SERVER_SETTINGS"
OUTCOME_MARK = "feddbn-outcome "
