"""The engine: a kit is a site's folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from feddbn.federation.protocol.study import Study
from feddbn.findings import Finding
from feddbn.runtime.engines.interface import SITE_SETTINGS, Engine, FederationPlan
from feddbn.runtime.site.kit_files import (
    kits_below,
    make_authority,
    open_to_others,
    owner_only,
    read_identity,
    write_circle,
    write_site_files,
)


class PlatformEngine(Engine):
    """Folders of sites; whoever has the platform carries the messages."""

    name = "platform"
    instead = "the platform does, see docs/platforms.md"
    has_server = False

    def make_kits(self, plan: FederationPlan, directory: Path) -> dict[str, Path]:
        """Write settings, policy and keys of every site."""
        kits_below(directory)
        place, key = make_authority(directory)
        kits, peers = _made(plan.sites, directory, None, key)
        write_circle(place, peers, "")
        return kits

    def federation_in(self, directory: Path) -> tuple[list[Path], str] | None:
        """Look into the authority's folder, and at the kits of sites."""
        authority, kits = directory / "authority", sorted((directory / "kits").glob("*"))
        is_one = (authority / "identity.key").exists() or any(map(is_site, kits))
        return ([authority, *kits], self.name) if is_one else None

    def make_more_kits(self, names: Sequence[str], directory: Path, others: Path) -> dict[str, Path]:
        """Write the same for some more sites; where kits were made without an authority, there is one from now on."""
        if not (place := Path(directory) / "authority").exists():
            make_authority(directory)
        return _made(names, directory, others, read_identity(place / "identity.key").public.hex())[0]

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


def is_site(kit: Path) -> bool:
    """Whether a folder is a kit of this engine and no other."""
    return (kit / SITE_SETTINGS).exists() and not (kit / "files.toml").exists()


def _made(
    sites: Sequence[str], directory: Path, others: Path | None, key: str
) -> tuple[dict[str, Path], str]:
    root = Path(directory).resolve() / "kits"
    kits = {site: root / site for site in sites}
    for kit in kits.values():
        (kit / "data").mkdir(parents=True)
    peers = write_site_files(kits, others=others, authority=key)
    owner_only(root)
    return kits, peers


ENGINE = PlatformEngine()
