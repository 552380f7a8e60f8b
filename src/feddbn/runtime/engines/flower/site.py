"""The ClientApp a Flower SuperNode runs: it passes bytes to the site's own process and back.

The SuperNode is started with ``--node-config 'feddbn-site="/path/feddbn_site.toml"'``. Flower starts a new
process for every message; ``feddbn site serve`` is the long-lived one that holds the data, the policy and the
state, and this module imports little so that a round is as quick as Flower allows. Without it the message is
answered here, from the durable store, which serves studies without secure aggregation.
"""

from __future__ import annotations

import logging
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from feddbn.errors import FeddbnError, FileError, SiteRefused
from feddbn.federation.protocol.messages import WITHHELD, encode_reply, refusal
from feddbn.runtime.deployed.settings import read_site_settings
from feddbn.runtime.deployed.site_socket import SOCKET_NAME, ask
from feddbn.runtime.engines.flower.names import NODE_SETTINGS, RECORD

__all__ = ["app"]

app = ClientApp()
_log = logging.getLogger("feddbn.site")


@app.query()  # type: ignore[untyped-decorator]
def handle(message: Message, context: Context) -> Message:
    """Return the endpoint's reply."""
    site = "?"
    try:
        path = context.node_config.get(NODE_SETTINGS)
        if not path:
            raise FileError(f"this SuperNode was started without {NODE_SETTINGS} in its --node-config.")
        settings = read_site_settings(Path(str(path)))
        site = settings.name
        asked = bytes(message.content[RECORD]["message"])
        reply = ask(settings.state / SOCKET_NAME, asked)
        if reply is None:
            from feddbn.runtime.deployed.open_site import open_site

            reply = open_site(settings, site, _log, long_lived=False).handle(asked)
    except FeddbnError as error:
        _log.error("%s", error)
        reply = encode_reply(refusal(site, None, SiteRefused(WITHHELD)))
    return Message(RecordDict({RECORD: ConfigRecord({"message": reply})}), reply_to=message)
