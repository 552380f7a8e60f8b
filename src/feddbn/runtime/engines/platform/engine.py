"""The engine: a kit is a site's folder."""

from __future__ import annotations

from pathlib import Path

from feddbn.federation.protocol.study import Study
from feddbn.findings import Finding
from feddbn.runtime.engines.interface import SITE_SETTINGS, Engine, FederationPlan
from feddbn.runtime.site.kit_files import kits_below, open_to_others, owner_only, write_site_files


class PlatformEngine(Engine):
    """Folders of sites; whoever has the platform carries the messages."""

    name = "platform"
    instead = "the platform does, see docs/platforms.md"
    has_server = False

    def make_kits(self, plan: FederationPlan, directory: Path) -> dict[str, Path]:
        """Write settings, policy and keys of every site."""
        root = kits_below(directory)
        kits = {site: root / site for site in plan.sites}
        for kit in kits.values():
            (kit / "data").mkdir(parents=True)
        write_site_files(kits)
        owner_only(root)
        return kits

    def check_site(self, kit: Path, study: Study | None = None) -> list[Finding]:
        """Check data, policy and who can read the keys."""
        # Imported here: it reads data.
        from feddbn.runtime.site.check import check_settings

        readable = tuple(open_to_others(Path(kit)))
        private = Finding("keys-private", "good")
        keys = Finding("keys-readable", "error", {"kit": str(kit)}, readable) if readable else private
        return [*check_settings(self.site_settings(kit), study), keys]

    def site_settings(self, kit: Path) -> Path:
        """Return its place in the folder."""
        return Path(kit) / SITE_SETTINGS


ENGINE = PlatformEngine()
