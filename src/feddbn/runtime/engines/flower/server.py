"""The ServerApp that runs a study on Flower, and the exchange over Flower's messages.

A message lives exactly as long as its timeout (``ttl``), because Flower would otherwise deliver it to a node
that comes back later. Nodes are known by the name under which their key was registered.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

from feddbn.errors import FileError
from feddbn.federation.protocol.messages import check_run_id
from feddbn.federation.protocol.study import study_from_json
from feddbn.runtime.deployed.conduct import Progress, conduct
from feddbn.runtime.deployed.settings import load_programs, read_server_settings
from feddbn.runtime.deployed.store import prune_runs, run_directory
from feddbn.runtime.engines.flower.names import OUTCOME_MARK, RECORD, SERVER_SETTINGS

__all__ = ["FlowerExchange", "app"]

app = ServerApp()
_log = logging.getLogger("feddbn.server")


class FlowerExchange:
    """One message per site, replies matched by the message they answer."""

    def __init__(self, grid: Grid, timeout_s: float, poll_s: float = 0.1) -> None:
        self._grid = grid
        self._timeout_s = timeout_s
        self._poll_s = poll_s

    def __call__(self, messages: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Send and wait for all replies or the timeout; a site whose node is not connected is silent."""
        nodes = {node.name: node.node_id for node in self._grid.get_nodes() if node.name}
        sent: dict[str, str] = {}
        here = [site for site in messages if site in nodes]
        out = [
            Message(
                RecordDict({RECORD: ConfigRecord({"message": messages[site]})}),
                dst_node_id=nodes[site],
                message_type=MessageType.QUERY,
                ttl=self._timeout_s,
            )
            for site in here
        ]
        for site, identifier in zip(here, self._grid.push_messages(out), strict=True):
            if identifier:
                sent[identifier] = site
        replies: dict[str, bytes] = {}
        end = time.monotonic() + self._timeout_s
        while sent and time.monotonic() < end:
            for reply in self._grid.pull_messages(list(sent)):
                # An error made by the SuperLink carries a wrong sender: only the message it answers is certain.
                site = sent.pop(reply.metadata.reply_to_message_id, "")
                if site and reply.has_content():
                    replies[site] = bytes(reply.content[RECORD]["message"])
                elif site:
                    _log.warning("site %r: Flower reports error %s", site, reply.error.code)
            time.sleep(self._poll_s)
        return replies


@app.main()  # type: ignore[untyped-decorator]
def main(grid: Grid, context: Context) -> None:
    """Run or resume the study in the run configuration; files go to the server's runs directory."""
    path = os.environ.get(SERVER_SETTINGS)
    if not path:
        raise FileError(f"the SuperLink was started without {SERVER_SETTINGS} in its environment.")
    settings = read_server_settings(Path(path))
    load_programs(settings.programs)
    study = study_from_json(str(context.run_config["study"]))
    run_id = check_run_id(context.run_config["run-id"])
    prune_runs(settings.runs, settings.keep_days, keep=run_id)
    directory = run_directory(settings.runs, run_id)
    exchange = FlowerExchange(grid, study.attendance.timeout_s)
    try:
        conduct(
            exchange, study, run_id, settings.runs, directory, Progress(run_id, study.sites), _log.warning
        )
    finally:
        outcome = json.loads((directory / "outcome.json").read_text(encoding="utf-8"))
        outcome.pop("study", None)
        logging.getLogger("flwr").info(
            "%s", OUTCOME_MARK + json.dumps({**outcome, "directory": str(directory)})
        )
