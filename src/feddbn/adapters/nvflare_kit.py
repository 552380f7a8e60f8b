"""The adapter of plain NVFlare in kits that `feddbn federation init` has made, for versions that have no calls (2.8).

Where NVFlare has them (`nvflare.collab`), kits use calls: a message takes 15 ms instead of a tenth of a second.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feddbn.adapters.nvflare import FeddbnController, FeddbnExecutor
from feddbn.engine import Endpoint, Exchange
from feddbn.federation.protocol.study import Study
from feddbn.runtime.engines.nvflare.housekeeping import prune_site_jobs
from feddbn.runtime.engines.nvflare.running import run_in_kit
from feddbn.runtime.settings import read_site_settings


class KitController(FeddbnController):
    """Runs one study; `study` is its canonical text, `run_id` outlives this job."""

    def __init__(self, study: str, run_id: str) -> None:
        super().__init__(study, run_id)

    def conduct(self, exchange: Exchange, fl_ctx: Any) -> None:
        """Run it with the settings of the kit, and tell how far it is."""

        def carry(study: Study) -> _Tasks:
            self.timeout_s = study.attendance.timeout_s
            return _Tasks(self, exchange, self.sites(fl_ctx))

        run_in_kit(self.study, self.run, fl_ctx, carry)


class _Tasks:
    """The controller's exchange, with the times since when sites are awaited."""

    def __init__(self, controller: FeddbnController, exchange: Exchange, sites: frozenset[str]) -> None:
        self._controller, self._exchange, self.sites = controller, exchange, sites
        self._since = 0.0

    def __call__(self, messages: Mapping[str, bytes]) -> Mapping[str, bytes]:
        self._since = time.monotonic()
        return self._exchange(messages)

    def awaited(self) -> dict[str, float]:
        return dict.fromkeys(self._controller.awaited(), time.monotonic() - self._since)

    def close(self) -> None:
        pass


class KitExecutor(FeddbnExecutor):
    """Answers for the site of a kit, whose old jobs are pruned."""

    def open(self, fl_ctx: Any) -> Endpoint:
        """Return the endpoint of the kit."""
        workspace = fl_ctx.get_engine().get_workspace()
        settings = read_site_settings(Path(workspace.get_site_config_dir()) / "feddbn_site.toml")
        prune_site_jobs(Path(workspace.get_root_dir()), settings.keep_days, keep=fl_ctx.get_job_id())
        return super().open(fl_ctx)
