"""Where deployed kits look for this; the code is in `engines.nvflare.terminal`."""

from feddbn.runtime.engines.nvflare.terminal import StudiesOnly

__all__ = ["StudiesOnly"]
