"""Where deployed kits and jobs look for this; the code is in `engines.nvflare.server`."""

from feddbn.runtime.engines.nvflare.server import FeddbnServer

__all__ = ["FeddbnServer"]
