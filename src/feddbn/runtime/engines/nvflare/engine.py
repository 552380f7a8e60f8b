"""NVFlare as an engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from feddbn.federation.protocol.study import Study
from feddbn.runtime.engines.interface import Engine, Process
from feddbn.runtime.engines.nvflare.client import Console
from feddbn.runtime.engines.nvflare.kit import make_kits, place_stores, start_command, start_environment
from feddbn.runtime.engines.nvflare.prune import forget_jobs
from feddbn.runtime.engines.plan import FederationPlan

if TYPE_CHECKING:
    from feddbn.runtime.deployed.check import Finding

__all__ = ["ENGINE", "NVFlareEngine"]


class NVFlareEngine(Engine):
    """Kits made by `nvflare provision`, jobs without code, an admin session for the lead."""

    name = "nvflare"
    instead = "send it with `feddbn submit`"

    def make_kits(self, plan: FederationPlan, directory: Path) -> dict[str, Path]:
        """Provision and harden one kit per participant."""
        return make_kits(plan, directory)

    def check_site(self, kit: Path, study: Study | None = None) -> list[Finding]:
        """Check data, policy, rights, certificate, clock and the way to the server."""
        # Imported here: it reads data, which a lead's session never does.
        from feddbn.runtime.engines.nvflare.check import check_site

        return check_site(kit, study)

    def site_settings(self, kit: Path) -> Path:
        """Return its place among the kit's local files."""
        return Path(kit) / "local" / "feddbn_site.toml"

    def server_process(self, kit: Path) -> Process:
        """Return what runs the server; jobs that are too old are forgotten before it starts.

        A kit is made at one machine and unpacked at another, so its stores are placed here.
        """
        from feddbn.runtime.deployed.settings import read_server_settings

        process = self.site_process(kit)
        place_stores(kit)
        forget_jobs(kit, read_server_settings(kit / "local" / "feddbn_server.toml").keep_days)
        return process

    def site_process(self, kit: Path) -> Process:
        """Return what runs the site and starts it again after a failure."""
        return Process(start_command(kit), start_environment())

    def session(self, kit: Path) -> Console:
        """Return the lead's admin session."""
        return Console(kit)


ENGINE = NVFlareEngine()
