"""The server's end of studies over Flower: what a ServerApp calls; the sites' end is `feddbn.adapters.flower`."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feddbn.adapters.flower import BYTES, RECORD, SITE, WAIT_S
from feddbn.engine import conduct
from feddbn.errors import FederationError
from feddbn.federation.protocol.study import parse_study


class GridExchange:
    """Carries messages by the `grid` of a ServerApp; nodes say themselves which site they answer for."""

    def __init__(self, grid: Any, timeout_s: float) -> None:
        self._grid, self._timeout_s, self._nodes = grid, timeout_s, dict[int, str]()

    def sites(self) -> dict[str, int]:
        """Return site -> the id of its node, of those that are connected."""
        here = set(self._grid.get_node_ids())
        said = self._ask({node: {} for node in here - self._nodes.keys()}, min(self._timeout_s, 10.0))
        self._nodes = {n: one for n, one in self._nodes.items() if n in here} | {
            n: str(r[SITE]) for n, r in said.items()
        }
        names = list(self._nodes.values())
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise FederationError(
                f"two nodes say that they are site {twice[0]!r}; end one of them.", code="site-twice"
            )
        return {name: node for node, name in self._nodes.items()}

    def __call__(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        """Send one message to each site; return the replies that came in time."""
        nodes = {node: site for site, node in self.sites().items() if site in messages}
        replies = self._ask({node: {BYTES: messages[site]} for node, site in nodes.items()}, self._timeout_s)
        return {nodes[node]: reply[BYTES] for node, reply in replies.items() if BYTES in reply}

    def _ask(self, records: Mapping[int, Mapping[str, bytes]], timeout_s: float) -> dict[int, Any]:
        from flwr.app import ConfigRecord, Message, RecordDict

        contents = {node: RecordDict({RECORD: ConfigRecord(dict(one))}) for node, one in records.items()}
        made = [Message(one, node, "query", ttl=timeout_s) for node, one in contents.items()]
        asked = dict(zip(self._grid.push_messages(made), records, strict=True)) if made else {}
        replies, end = dict[int, Any](), time.monotonic() + timeout_s
        while asked and time.monotonic() < end:
            for reply in self._grid.pull_messages(list(asked)):
                # An error that the SuperLink made names no node that can be trusted.
                node = asked.pop(reply.metadata.reply_to_message_id, None)
                if node is not None and reply.has_content() and SITE in reply.content.get(RECORD, {}):
                    replies[node] = reply.content[RECORD]
            if asked:
                time.sleep(WAIT_S)
        return replies


def serve(grid: Any, study: str | Path, run: str | None = None) -> None:
    """Run the study in a file over a ServerApp's grid; runs are kept in the folder that ``FEDDBN_RUNS`` names."""
    path = Path(study)
    read = parse_study(path.read_text(encoding="utf-8"), path.name)
    exchange, end = (
        GridExchange(grid, read.attendance.timeout_s),
        time.monotonic() + read.attendance.timeout_s,
    )
    while not (here := exchange.sites()).keys() >= set(read.sites) and time.monotonic() < end:
        time.sleep(1)
    conduct(read, exchange, os.environ.get("FEDDBN_RUNS", "feddbn_runs"), run=run, here=list(here))
