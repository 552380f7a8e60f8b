"""Where deployed kits and jobs look for this; the code is in `engines.nvflare.site`."""

from feddbn.runtime.engines.nvflare.site import FeddbnSite

__all__ = ["FeddbnSite"]
