"""Where deployed kits and jobs look for this; the code is in `engines.flower.site`."""

from __future__ import annotations

from feddbn.runtime.engines.flower.site import app

__all__ = ["app"]
