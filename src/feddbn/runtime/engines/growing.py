"""A federation grows: kits for new sites, a signed note for all others, and what a kit does with a note.

Who made the kits makes the new ones, with the key in the authority's folder. The others need nothing but the note
(`privacy.membership`). Nobody takes a note but a person at a kit: a server cannot add a site, and a site whose owner has not
admitted the new ones refuses studies with them, because it has no key of theirs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from feddbn.errors import FileError, ParameterError, StateError, reading
from feddbn.privacy.keys import verify_signature
from feddbn.privacy.membership import Note, read_note
from feddbn.runtime.engines.interface import (
    DEFAULT_ENGINE,
    NO_SERVER,
    Engine,
    FederationPlan,
    engine,
    engine_names,
    engine_of,
)
from feddbn.runtime.settings import SiteSettings, read_keeper_settings, read_site_settings
from feddbn.runtime.site.kit_files import (
    AUTHORITY_KEY,
    KEEPER_SETTINGS,
    peer_lines,
    read_identity,
    read_keepers,
    read_peers,
)
from feddbn.runtime.site.owner import Owner
from feddbn.runtime.store import write_atomically


@dataclass(frozen=True)
class Grown:
    """Kits of new sites, the note for all others, and the key that signed it (empty: the certificate authority's)."""

    kits: dict[str, Path]
    note: Path
    authority: str


def add_sites(names: Sequence[str], directory: Path) -> Grown:
    """Make kits for new sites of the federation in `directory`, and a signed note for the others."""
    directory = Path(directory).resolve()
    found, others, name = _federation_in(directory)
    known = read_peers(others / "peers.toml")
    keepers = tuple(read_keepers(others / "keepers.toml")) if (others / "keepers.toml").exists() else ()
    # It checks names.
    FederationPlan(name, NO_SERVER, (*known, *names), keepers=keepers)
    for one in names:
        if (directory / "kits" / one).exists():
            raise FileError(
                f"{directory / 'kits' / one} is there already; choose another name.", code="kits-there"
            )
    kits = found.make_more_kits(names, directory, others)
    now = read_peers(found.site_settings(kits[names[0]]).with_name("peers.toml"))
    authority = directory / "authority"
    place = authority if authority.exists() else others
    write_atomically(place / "peers.toml", peer_lines(now).encode())
    note = found.sign(Note(name, {site: key.hex() for site, key in now.items()}), directory, place)
    path = directory / f"sites-{len(now)}.json"
    path.write_text(note.to_text(), encoding="utf-8")
    return Grown(kits, path, note.authority)


def _federation_in(directory: Path) -> tuple[Engine, Path, str]:
    """Return the engine of a federation's directory, a folder with the keys of its sites, and its name."""
    # The default may not be installed, and is asked last.
    for which in (*engine_names()[1:], DEFAULT_ENGINE):
        found = engine(which)
        if (told := found.federation_in(directory)) is not None:
            places, name = told
            break
    else:
        raise ParameterError(
            f"{directory} holds no federation; give the directory of `feddbn federation init`.",
            code="no-federation",
        )
    others = next((one for one in places if (one / "peers.toml").exists()), None)
    if others is None:
        raise StateError(
            f"{directory} has no list of the sites' public keys any more; copy peers.toml of any site to "
            f"{directory / 'authority'}.",
            code="no-peers",
        )
    return found, others, name


@dataclass(frozen=True)
class Admission:
    """What a note would change at a kit: the sites that are new there, and whether the kit knew who signed it."""

    note: Note
    new: dict[str, str]
    known: dict[str, bytes]
    peers: Path
    settings: SiteSettings | None
    pins: Path | None

    def take(self) -> None:
        """Write the new keys down; the site's own log tells of it first."""
        if self.settings is not None and self.new:
            Owner(self.settings).admit(self.new)
        if self.pins is not None:
            write_atomically(self.pins, f"{self.note.authority}\n".encode())
        now = {**self.known, **{name: bytes.fromhex(key) for name, key in self.new.items()}}
        write_atomically(self.peers, peer_lines(now).encode())


def look_at_note(path: Path, kit: Path, authority: str = "") -> Admission:
    """Return what a note would change at a kit; refuse one that who may add sites has not signed.

    Kits of platforms made by an earlier version do not know who that is: there a person names the key, as told by who made
    the kits.
    """
    with reading(f"the note {path}"):
        note = read_note(Path(path).read_bytes())
    found = engine_of(kit)
    peers, settings, keepers = _circle_of(found, Path(kit))
    known = read_peers(peers)
    is_signed, pins = found.has_signed(kit, note), None
    if is_signed is None:
        if not re.fullmatch("[0-9a-f]{16,64}", authority) or not note.authority.startswith(authority):
            raise ParameterError(
                f"this kit does not know who may add sites, and --authority {authority or 'is missing, so it'} is not the "
                "key that signed the note; ask who made the kit for the first 16 digits of that key, by another way than the "
                "note came.",
                code="unknown-authority",
            )
        key = bytes.fromhex(note.authority)
        is_signed, pins = (
            verify_signature(key, bytes.fromhex(note.signature), note.statement),
            peers.with_name(AUTHORITY_KEY),
        )
    if not is_signed:
        raise FileError(
            f"the note {path} was not signed by who may add sites to this kit, or was changed since; nothing was changed.",
            code="not-signed",
        )
    new = note.new_to(known)
    own = (
        None
        if settings is None or settings.identity is None
        else read_identity(settings.identity).public.hex()
    )
    if settings is not None and note.sites.get(settings.name) != own:
        raise FileError(
            f"the note {path} does not name this site, {settings.name!r}, with its key: it is of another federation.",
            code="other-federation",
        )
    if taken := sorted(set(new) & set(keepers)):
        raise FileError(
            f"the note gives a site the name of the keeper {taken[0]!r}; nothing was changed.",
            code="same-name",
        )
    return Admission(note, new, known, peers, settings, pins)


def _circle_of(found: Engine, kit: Path) -> tuple[Path, SiteSettings | None, Sequence[str]]:
    """Return where a kit lists the sites' keys, its settings if it is a site's, and the keepers it knows."""
    settings, keepers = None, None
    if (path := found.site_settings(kit)).exists():
        settings = read_site_settings(path)
        peers, keepers = settings.peers, settings.keepers
    elif (path := kit / KEEPER_SETTINGS).exists():
        keeper = read_keeper_settings(path)
        peers, keepers = keeper.peers, keeper.keepers
    else:
        peers = kit / "peers.toml" if (kit / "peers.toml").exists() else None
    if peers is None:
        raise ParameterError(
            f"--kit {kit} keeps no list of sites and needs no note; kits of sites and of keepers do, and the "
            "lead's where studies travel as files.",
            code="no-circle",
        )
    return peers, settings, () if keepers is None else tuple(read_keepers(keepers))
