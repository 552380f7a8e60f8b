"""A controller of the adapter that carries what a test sends instead of what a study asks."""

from feddbn.adapters.nvflare import FeddbnController
from support.bridge import serve


class BridgeController(FeddbnController):
    def __init__(self, timeout_s=60.0):
        super().__init__()
        self.timeout_s = timeout_s

    def conduct(self, exchange, fl_ctx):
        serve(exchange)
