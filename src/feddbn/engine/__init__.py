"""How any platform carries studies: a site is bytes in and bytes out, and a server needs one function that carries them.

A platform opens each site where its data are (`open_site`) and runs the study anywhere else (`conduct`), with its own
`Exchange`. `feddbn.engine.conformance` tells whether it does so rightly. Names, arguments and what bytes mean stay as they
are as long as `VERSION` does.

May import: runtime and below.
"""

from __future__ import annotations

from feddbn.engine.server import conduct
from feddbn.engine.site import Endpoint, make_sites, open_site
from feddbn.federation.protocol.messages import MAX_MESSAGE_BYTES, Exchange

VERSION = 1
"""Of this interface: it grows when an adapter that was written for the one before has to change."""

__all__ = [
    "MAX_MESSAGE_BYTES",
    "VERSION",
    "Endpoint",
    "Exchange",
    "conduct",
    "make_sites",
    "open_site",
]
