"""Where deployed apps look for this; the code is in `engines.flower.site`."""

from feddbn.runtime.engines.flower.site import app

# Flower looks for the name in this file's text before it imports it.
__all__ = ["app"]
