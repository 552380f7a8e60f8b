"""Kits for studies by files: ``files.toml`` says whose kit it is, who leads, and which folder is shared, if one is."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field

from feddbn.errors import FileError, ParameterError, reading
from feddbn.federation.protocol.study import Study
from feddbn.findings import Finding
from feddbn.privacy.keys import KEY_BYTES, Identity
from feddbn.privacy.policy import Table, read_table
from feddbn.runtime.site.kit_files import (
    IDENTITY,
    PEERS,
    SITE_SETTINGS,
    check_names,
    kits_below,
    open_to_others,
    owner_only,
    read_identity,
    read_peers,
    write_secret,
    write_site_files,
)
from feddbn.runtime.store import write_atomically

MARK = "files.toml"
_KEY = "\nThis directory holds a private key (identity.key): nobody but its owner may have it.\n"
_README = {
    "site": """The site {name} of a federation whose studies travel as files.

1. Put the data into data/: CSV or Parquet files, one column per variable, one file per recording. What else can be said
   about them (columns with times and recordings, units) goes into feddbn_site.toml.
2. Read policy.toml: what this site allows. Everything else is refused.
3. feddbn site check --kit {name}                says what is wrong, before anything leaves
4. A question has come from the lead:
   feddbn show QUESTION --kit {name}             says in plain words what is asked
   feddbn site approve QUESTION --kit {name}     approves its study; once for each study
   feddbn site answer QUESTION --kit {name}      writes the answer; send it back to the lead
   feddbn site log --kit {name}                  says who asked what, and what left
5. With a folder that the lead shares (folder in files.toml): feddbn start --kit {name} does the answering.

Runs, results, approvals and the audit log of what left are kept in state/.
"""
    + _KEY,
    "lead": """The kit of the lead {name} of a federation whose studies travel as files.

1. Make a folder with the name that the run shall have, and put study.toml into it.
2. feddbn study step FOLDER --kit {name}
   takes the answers that are there and writes the next questions. Hand each site the file with its name, put what comes
   back anywhere into FOLDER, and step again, until there is a result.
3. With a folder that the sites share: feddbn study step FOLDER --kit {name} --wait does it until the end.

Journals of runs are kept in runs/.
"""
    + _KEY,
}


Role = Literal["site", "lead"]


class FilesSettings(Table):
    """What ``files.toml`` says: whose kit it is, the lead's name and public key, and the shared folder, if there is one."""

    federation: str = Field(min_length=1)
    role: Role
    name: str = Field(min_length=1)
    lead: str = Field(min_length=1)
    lead_key: str = Field(pattern=r"^[0-9a-f]{64}$")
    folder: Path | None = None


@dataclass(frozen=True)
class FilesKit:
    """A kit on disk."""

    place: Path
    settings: FilesSettings

    @property
    def name(self) -> str:
        """Whose kit it is."""
        return self.settings.name

    @property
    def lead_key(self) -> bytes:
        """The lead's public key."""
        return bytes.fromhex(self.settings.lead_key)

    @cached_property
    def identity(self) -> Identity:
        """The key of whose kit it is."""
        return read_identity(self.place / IDENTITY)

    @cached_property
    def keys(self) -> dict[str, bytes]:
        """Site -> public key."""
        return read_peers(self.place / PEERS)

    def shared_folder(self) -> Path:
        """Return the shared folder; refuse where none is named or there."""
        folder = self.settings.folder
        if folder is None:
            raise FileError(
                f'{self.place / MARK} names no shared folder; add a line such as folder = "/mnt/shared", or answer each '
                "question with `feddbn site answer`.",
                code="no-folder",
            )
        if not folder.is_dir():
            raise FileError(
                f"folder in {self.place / MARK} is {str(folder)!r}, which is no folder; make it, or correct the line.",
                code="no-folder",
            )
        return folder


def open_kit(place: Path, role: Role) -> FilesKit:
    """Return the kit of a site or of the lead."""
    settings = read_mark(Path(place))
    if settings.role != role:
        other = {"site": "a site", "lead": "the lead"}[role]
        raise FileError(
            f"{place} is the kit of the {settings.role} {settings.name!r}; use that of {other}.",
            code="other-kit",
        )
    return FilesKit(Path(place), settings)


def read_mark(place: Path) -> FilesSettings:
    """Return what ``files.toml`` in a folder says."""
    path = place / MARK

    def beside(values: dict[str, object]) -> None:
        if isinstance(values.get("folder"), str):
            values["folder"] = (path.parent.resolve() / str(values["folder"])).resolve()

    if not path.exists():
        raise FileError(
            f"{place} is no kit for studies by files: {MARK} is missing; make kits with `feddbn federation init`.",
            code="no-kit",
        )
    with reading(f"the settings {path}"):
        text = path.read_text(encoding="utf-8")
    return read_table(FilesSettings, text, f"the settings {path}", beside)


def make_kits(
    directory: Path, sites: Sequence[str], lead: str = "lead@example.org", federation: str = "feddbn"
) -> dict[str, Path]:
    """Write a kit for the lead and for each site below ``directory/kits``; return participant -> kit."""
    check_names(sites)
    if not re.fullmatch(r"[^@\s/]+@[^@\s/]+", lead):
        raise ParameterError(f"lead must look like an e-mail address, got {lead!r}.")
    root = kits_below(directory)
    root.mkdir(parents=True, mode=0o700)
    kits = {name: root / name for name in (lead, *sites)}
    for kit in kits.values():
        kit.mkdir(mode=0o700)
    seed = os.urandom(KEY_BYTES)
    write_secret(kits[lead] / IDENTITY, seed)
    public = Identity.from_seed(seed).public.hex()
    settings = FilesSettings(federation=federation, role="lead", name=lead, lead=lead, lead_key=public)
    peers = write_site_files({site: kits[site] for site in sites})
    (kits[lead] / PEERS).write_text(peers, encoding="utf-8")
    for name, kit in kits.items():
        _describe(kit, settings, name, "lead" if name == lead else "site")
    return kits


def make_more_kits(names: Sequence[str], directory: Path, lead: Path) -> dict[str, Path]:
    """Write a kit for each of some new sites into `directory`; the lead's kit has the others' keys, and then theirs."""
    known, settings = read_peers(lead / PEERS), open_kit(lead, "lead").settings
    check_names((*known, *names))
    kits = {name: Path(directory).resolve() / name for name in names}
    for kit in kits.values():
        if kit.exists():
            raise FileError(f"{kit} is there already; choose another name.", code="kits-there")
    for kit in kits.values():
        kit.mkdir(parents=True, mode=0o700)
    peers = write_site_files(kits, others=lead)
    for name, kit in kits.items():
        _describe(kit, settings, name, "site")
    write_atomically(lead / PEERS, peers.encode())
    return kits


def _describe(kit: Path, settings: FilesSettings, name: str, role: Role) -> None:
    """Say in a kit whose it is."""
    if role == "site":
        (kit / "data").mkdir()
    share = "a folder that the lead and this site share, if there is one"
    if role == "lead":
        share = "where the sites look for questions"
    own = settings.model_copy(update={"name": name, "role": role})
    (kit / MARK).write_text(_mark(own) + f'# folder = "/mnt/shared"   # {share}\n', encoding="utf-8")
    (kit / "readme.txt").write_text(_README[role].format(name=name), encoding="utf-8")
    owner_only(kit)


def _mark(settings: FilesSettings) -> str:
    return "".join(
        f'{key} = "{getattr(settings, key)}"\n' for key in ("federation", "role", "name", "lead", "lead_key")
    )


def check_site(place: Path, study: Study | None = None) -> list[Finding]:
    """Return the findings for a site's folder, and whether it could join `study` if one is given.

    A folder without ``files.toml`` is that of a site on a platform.
    """
    # Imported here: it reads data, which a lead never does.
    from feddbn.runtime.site.check import check_settings

    found = check_settings(Path(place) / SITE_SETTINGS, study)
    readable = tuple(open_to_others(Path(place)))
    if readable:
        found.append(Finding("keys-readable", "error", {"kit": str(place)}, readable))
    else:
        found.append(Finding("keys-private", "good"))
    if not (Path(place) / MARK).exists():
        return found
    kit = open_kit(place, "site")
    site = next((one.values["site"] for one in found if one.code == "settings-read"), kit.name)
    values = {"site": site, "named": kit.name, "lead": kit.settings.lead, "key": kit.settings.lead_key[:12]}
    matches = site == kit.name and kit.keys.get(site) == kit.identity.public
    found.append(
        Finding("files-kit" if matches else "files-kit-other", "good" if matches else "error", values)
    )
    folder = kit.settings.folder
    there = folder is None or folder.is_dir()
    found.append(
        Finding(
            "folder-none" if folder is None else "folder-shared",
            "note" if folder is None else "good" if there else "error",
            {"folder": str(folder), "there": there},
        )
    )
    return found
