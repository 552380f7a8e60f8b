"""The adapter's classes in a simulator: a controller that carries what a test sends, an executor that looks often."""

import sys

from feddbn.adapters.nvflare import FeddbnController, FeddbnExecutor
from support.bridge import serve

# A site of the simulator looks for tasks twice a second, whatever is configured; a real one as often as the job says.
if hasattr(sys.modules["__main__"], "FETCH_TASK_RUN_RETRY"):
    sys.modules["__main__"].FETCH_TASK_RUN_RETRY = 1


class BridgeController(FeddbnController):
    def __init__(self, timeout_s=60.0):
        super().__init__()
        self.timeout_s = timeout_s

    def conduct(self, exchange, fl_ctx):
        serve(exchange)


class BridgeExecutor(FeddbnExecutor):
    pass
