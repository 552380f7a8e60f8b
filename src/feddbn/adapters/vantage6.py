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
from functools import partial as partial_of
from pathlib import Path
from typing import Any

from feddbn.engine import Exchange, conduct, open_site
from feddbn.errors import Given, ParameterError, SiteRefused, StillCollecting
from feddbn.federation.protocol.study import parse_study

try:
    from vantage6.algorithm.tools import decorators
except ImportError:
    decorators = None

__all__ = ["central", "exchange", "partial"]
_log = logging.getLogger("feddbn.server")


def exchange(client: Any, sites: Mapping[str, int], timeout_s: float, name: str = "feddbn") -> Exchange:
    """Return what carries messages to nodes as tasks of a client; `sites` has the id of each site's organisation."""

    def asked_platform(what: Callable[[], Any], otherwise: Any) -> Any:
        # Any request may fail once; a site that cannot be reached is silent, and is asked again.
        try:
            return what()
        except Exception as error:
            _log.warning("a request to the platform has failed: %s", error)
            return otherwise

    def is_ready(task: int) -> bool:
        return not any(
            one["status"] in ("pending", "initializing", "active") for one in client.run.from_task(task)
        )

    def carry(messages: Mapping[str, bytes]) -> dict[str, bytes]:
        waiting, replies = {}, {}
        for site, message in messages.items():
            asked = {"method": "partial", "kwargs": {"message": b64encode(message).decode()}}
            made = asked_platform(partial_of(client.task.create, asked, [sites[site]], name), None)
            if made is not None:
                waiting[site] = made["id"]
        end = time.monotonic() + timeout_s
        while True:
            for site, task in list(waiting.items()):
                if asked_platform(partial_of(is_ready, task), False):
                    texts = asked_platform(partial_of(client.result.from_task, task), None)
                    for text in texts or ():
                        replies[site] = _bytes(text)
                    if texts is not None:
                        del waiting[site]
            # A node that is away is silent: the study says what that means.
            if not waiting or time.monotonic() > end:
                return replies
            time.sleep(0.5)

    return carry


def _central(client: Any, study: str, sites: Mapping[str, int], run: str | None = None) -> dict[str, str]:
    """Run the study in a text (TOML), or go on with a run of it; return the run's name and its result file in base64.

    A study that still waits for sites has no result yet, and a sentence that says so instead (`waits`). Runs can go on where
    the node keeps them: its owner lists a folder as the database `feddbn_runs`.
    """
    parsed = parse_study(study, "study")
    for name in set(parsed.sites) - set(sites):
        raise ParameterError(f"{Given('sites', dict(sites))} lacks site {name!r}; add its organisation's id.")
    run = run or f"{parsed.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    folder = os.environ.get("FEDDBN_RUNS_DATABASE_URI") or os.environ["TEMPORARY_FOLDER"]
    carry = exchange(client, sites, parsed.attendance.timeout_s, f"feddbn {run}")
    try:
        result = conduct(parsed, carry, folder, run=run)
    except StillCollecting as error:
        return {"run": run, "waits": str(error)}
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
        return b64encode(open_site(folder).handle(_bytes(message))).decode()
    except Exception:
        logging.exception("this site cannot answer")
        raise SiteRefused("this site cannot answer; its owner reads why.", code="withheld") from None


def _bytes(text: object) -> bytes:
    with contextlib.suppress(ValueError):
        return b64decode(text if isinstance(text, str) else "", validate=True)
    return b""
