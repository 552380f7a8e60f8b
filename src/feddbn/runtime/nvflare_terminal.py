"""Where deployed kits look for this; the code is in `engines.nvflare.components`."""

from feddbn.runtime.engines.nvflare.components import StudiesOnly

__all__ = ["StudiesOnly"]
