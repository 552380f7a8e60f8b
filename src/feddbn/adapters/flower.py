"""Studies over Flower, with a node of our own: code that comes from a Flower server is neither fetched nor run.

A SuperNode of Flower installs and runs the app that whoever reaches its server sends. `run_node` takes messages from a
SuperLink as a SuperNode does, with Flower's own client library, and passes their bytes to the site's endpoint. It is started
by the site's owner: ``python -m feddbn.adapters.flower``.
"""

from __future__ import annotations

import argparse
import logging
import time
from functools import partial
from pathlib import Path
from typing import Any

from feddbn.engine import open_site
from feddbn.errors import FeddbnError, MissingExtra

RECORD, BYTES, SITE, WAIT_S = "feddbn", "bytes", "site", 0.2
_log = logging.getLogger("feddbn.site")


def run_node(
    folder: str | Path,
    superlink: str,
    *,
    root: str | None = None,
    key: str | None = None,
    insecure: bool = False,
) -> None:
    """Answer for the site in a folder until stopped.

    Parameters
    ----------
    folder
        The site's kit, or another folder with its settings.
    superlink
        ``host:port`` of the SuperLink.
    root
        File with the root certificate that the SuperLink's must have; None takes those of this machine.
    key
        File with this node's private key (OpenSSH), which the SuperLink knows by ``flwr supernode register``.
    insecure
        Connect without TLS, for trials on one machine.
    """
    try:
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key
        from flwr.app import ConfigRecord, Message, RecordDict
        from flwr.supercore.inflatable import inflatable_object as objects
        from flwr.supercore.inflatable import inflatable_utils as parts
        from flwr.supernode.fleet_http_connection import http_request_response
    except ImportError:
        raise MissingExtra("flwr 1.41", "flower") from None
    endpoint = open_site(folder)
    own = load_ssh_private_key(Path(key).read_bytes(), None) if key else None
    keys: Any = (own, own.public_key()) if own else None
    with http_request_response(superlink, insecure, root, keys) as connection:
        _, receive, send, _, _, pull, push, heard = connection
        _log.info("site %s is connected to its server and waits for studies", endpoint.name)
        while True:
            try:
                if (got := receive()) is None:
                    time.sleep(WAIT_S)
                    continue
                message, tree = got
                run, number = message.metadata.run_id, message.metadata.message_id
                wanted = [one.object_id for one in objects.iterate_object_tree(tree)]
                found = parts.pull_objects(wanted, pull_object_fn=partial(pull, run))
                heard(run, number)
                asked = parts.inflate_object_from_contents(number, found).content[RECORD]
                said: dict[str, Any] = {SITE: endpoint.name}
                if isinstance(asked.get(BYTES), bytes):
                    said[BYTES] = endpoint.handle(asked[BYTES])
                reply = Message(RecordDict({RECORD: ConfigRecord(said)}), reply_to=message)
                with objects.no_object_id_recompute():
                    reply.metadata.__dict__["_message_id"] = reply.object_id
                    nested = objects.get_all_nested_objects(reply)
                    sent = {name: one.deflate() for name, one in nested.items()}
                    missing, session = send(reply, objects.get_object_tree(reply), 0.0)
                pushed = ((name, sent[name]) for name in sent if name in missing)
                parts.push_object_contents_from_iterable(pushed, push_object_fn=partial(push, run, session))
            except Exception as error:
                _log.error("a message could not be answered: %s", error)
                time.sleep(WAIT_S)


if __name__ == "__main__":
    options = argparse.ArgumentParser("python -m feddbn.adapters.flower", description="Answer for a site.")
    options.add_argument("folder", help="the site's kit or folder")
    options.add_argument("superlink", help="host:port of the SuperLink")
    options.add_argument("--root", help="the root certificate of the SuperLink (PEM)")
    options.add_argument("--key", help="this node's private key (OpenSSH), which the SuperLink knows")
    options.add_argument("--insecure", action="store_true", help="no TLS, for trials on one machine")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s  %(message)s")
    # It tells each look for a message.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        run_node(**vars(options.parse_args()))
    except FeddbnError as error:
        options.error(str(error))
