"""Where deployed kits and jobs look for this; the code is in `engines.nvflare.components`."""

from feddbn.runtime.engines.nvflare.components import MemoryTidy

__all__ = ["MemoryTidy"]
