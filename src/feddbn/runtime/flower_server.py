"""Where deployed kits and jobs look for this; the code is in `engines.flower.server`."""

from __future__ import annotations

from feddbn.runtime.engines.flower.server import app

__all__ = ["app"]
