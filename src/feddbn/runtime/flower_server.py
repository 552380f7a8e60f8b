"""Where deployed apps look for this; the code is in `engines.flower.server`."""

from feddbn.runtime.engines.flower.server import app

# Flower looks for the name in this file's text before it imports it.
__all__ = ["app"]
