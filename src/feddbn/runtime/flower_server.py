"""Where deployed kits and jobs look for this; the code is in `engines.flower.server`."""

from feddbn.runtime.engines.flower.server import app as app
