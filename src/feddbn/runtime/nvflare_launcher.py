"""Where deployed kits and jobs look for this; the code is in `engines.nvflare.launcher`."""

from feddbn.runtime.engines.nvflare.launcher import WarmServerLauncher as WarmServerLauncher
from feddbn.runtime.engines.nvflare.launcher import WarmSiteLauncher as WarmSiteLauncher
