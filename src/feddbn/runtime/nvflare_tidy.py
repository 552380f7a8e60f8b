"""Where deployed kits and jobs look for this; the code is in `engines.nvflare.tidy`."""

from feddbn.runtime.engines.nvflare.tidy import MemoryTidy

__all__ = ["MemoryTidy"]
