"""Where deployed kits and jobs look for this; the code is in `engines.nvflare.launcher`."""

from feddbn.runtime.engines.nvflare.launcher import WarmServerLauncher, WarmSiteLauncher

__all__ = ["WarmServerLauncher", "WarmSiteLauncher"]
