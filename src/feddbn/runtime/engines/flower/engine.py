"""Flower as an engine: kits, checks and apps; Flower's own tools run them."""

from __future__ import annotations

from pathlib import Path

from feddbn.federation.protocol.study import Study
from feddbn.runtime.deployed.check import Finding, check_settings
from feddbn.runtime.engines.flower.kit import make_flower_kits, write_flower_app
from feddbn.runtime.engines.interface import Engine
from feddbn.runtime.engines.plan import FederationPlan

__all__ = ["ENGINE", "FlowerEngine"]


class FlowerEngine(Engine):
    """TLS by certificates of the federation's own, site keys that a SuperLink knows, studies as apps without code."""

    name = "flower"
    instead = (
        "use Flower's own tools (flower-superlink, flower-supernode with `feddbn site serve`, flwr run) as "
        "docs/deployment.md shows"
    )

    def make_kits(self, plan: FederationPlan, directory: Path) -> dict[str, Path]:
        """Write certificates, keys and settings."""
        return make_flower_kits(plan, directory)

    def check_site(self, kit: Path, study: Study | None = None) -> list[Finding]:
        """Check data, policy and state."""
        return check_settings(self.site_settings(kit), study)

    def site_settings(self, kit: Path) -> Path:
        """Return its place in the kit."""
        return Path(kit) / "feddbn_site.toml"

    def write_app(self, study: Study, run_id: str, directory: Path) -> str:
        """Write a project file that names installed modules."""
        return f"flwr run {write_flower_app(study, run_id, directory)} <connection> --stream"


ENGINE = FlowerEngine()
