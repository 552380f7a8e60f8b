"""The ClientApp a Flower SuperNode runs: each message in a process of its own, state in the site's store.

The SuperNode is started with ``--node-config 'feddbn-site="/path/feddbn_site.toml"'``. Flower starts a new
process for every message, so nothing may be kept in memory: the endpoint reads its record from disk each
time.
"""

from __future__ import annotations

import logging
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from feddbn.errors import FeddbnError, FileError
from feddbn.federation.messages import encode_reply, refusal
from feddbn.runtime.flower_names import NODE_SETTINGS, RECORD
from feddbn.runtime.open_site import open_site
from feddbn.runtime.settings import read_site_settings

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
        reply = open_site(settings, site, _log).handle(message.content[RECORD]["message"])
    except FeddbnError as error:
        _log.error("%s", error)
        reply = encode_reply(refusal(site, None, error))
    return Message(RecordDict({RECORD: ConfigRecord({"message": reply})}), reply_to=message)
