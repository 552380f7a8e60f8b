"""Vantage6: `central` runs a study, `partial` answers one message at a node.

Every message is a task, and every task a container that is gone afterwards. What a site must remember is in its folder, so
that folder is no part of the container: the owner of the node lists it as the database `feddbn` (type folder), and the node
mounts it. Neither the researcher nor `central` can name another one. What a container prints goes to the server of
Vantage6; so what is for the owner goes to ``site.log`` in the folder, and nothing about data or settings is printed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from feddbn.engine import Exchange, conduct, open_keeper, open_site
from feddbn.errors import Given, ParameterError, SiteRefused
from feddbn.federation.protocol.study import parse_study

try:
    from vantage6.algorithm.tools import decorators
except ImportError:
    decorators = None

__all__ = ["central", "exchange", "partial"]


def exchange(client: Any, sites: Mapping[str, int], timeout_s: float, name: str = "feddbn") -> Exchange:
    """Return what carries messages to nodes as tasks of a client; `sites` has the id of each site's organisation."""

    def is_ready(task: int) -> bool:
        return not any(
            one["status"] in ("pending", "initializing", "active") for one in client.run.from_task(task)
        )

    def carry(messages: Mapping[str, bytes]) -> dict[str, bytes]:
        waiting, replies = {}, {}
        for site, message in messages.items():
            asked = {"method": "partial", "kwargs": {"message": b64encode(message).decode()}}
            waiting[site] = client.task.create(asked, [sites[site]], name)["id"]
        end = time.monotonic() + timeout_s
        while True:
            for site in [site for site, task in waiting.items() if is_ready(task)]:
                for text in client.result.from_task(waiting.pop(site)):
                    replies[site] = _bytes(text)
            # A node that is away is silent: the study says what that means.
            if not waiting or time.monotonic() > end:
                return replies
            time.sleep(0.5)

    return carry


def _central(client: Any, study: str, sites: Mapping[str, int], run: str | None = None) -> dict[str, str]:
    """Run the study in a text (TOML), or go on with a run of it; return the run's name and its result file in base64.

    Runs can go on where the node keeps them: its owner lists a folder as the database `feddbn_runs`.
    """
    parsed = parse_study(study, "study")
    for name in {*parsed.sites, *parsed.privacy.keepers} - set(sites):
        raise ParameterError(f"{Given('sites', dict(sites))} lacks site {name!r}; add its organisation's id.")
    run = run or f"{parsed.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    folder = os.environ.get("FEDDBN_RUNS_DATABASE_URI") or os.environ["TEMPORARY_FOLDER"]
    carry = exchange(client, sites, parsed.attendance.timeout_s, f"feddbn {run}")
    result = conduct(parsed, carry, folder, run=run)
    return {"run": run, "result": b64encode(result.to_bytes()).decode()}


# Without the platform a client is the first argument.
central: Callable[..., dict[str, str]] = decorators.algorithm_client(_central) if decorators else _central


def partial(message: str) -> str:
    """Return this node's reply to one message, both in base64."""
    folder = Path(os.environ.get("FEDDBN_DATABASE_URI", "no folder"))
    if not folder.is_dir():
        raise SiteRefused(
            "this node has no database `feddbn` of type folder; its owner adds it.", code="no-site"
        )
    # The process is this container's own, and ends with the answer.
    said = "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(filename=folder / "site.log", format=said, encoding="utf-8", force=True)
    logging.captureWarnings(True)
    try:
        opened = open_keeper if (folder / "feddbn_keeper.toml").is_file() else open_site
        return b64encode(opened(folder).handle(_bytes(message))).decode()
    except Exception:
        logging.exception("this site cannot answer")
        raise SiteRefused("this site cannot answer; its owner reads why.", code="withheld") from None


def _bytes(text: object) -> bytes:
    with contextlib.suppress(ValueError):
        return b64decode(text if isinstance(text, str) else "", validate=True)
    return b""
