"""Where deployed kits and jobs look for this; the code is in `engines.flower.site`."""

from feddbn.runtime.engines.flower.site import app as app
