"""Kits for studies by files: ``files.toml`` says whose kit it is, who leads, and which folder is shared, if one is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field

from feddbn.errors import FileError, reading
from feddbn.federation.protocol.study import Study
from feddbn.findings import Finding
from feddbn.privacy.keys import KEY_BYTES, Identity
from feddbn.privacy.policy import Table, read_table
from feddbn.runtime.engines.interface import FederationPlan
from feddbn.runtime.site.kit_files import (
    KEEPER_SETTINGS,
    kits_below,
    make_authority,
    open_to_others,
    owner_only,
    read_identity,
    read_keepers,
    read_peers,
    write_circle,
    write_secret,
    write_site_files,
)

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
    "keeper": """The keeper {name} of a federation whose studies travel as files.

Two keepers that do not work together hold shares of what sites answer, and open nothing but sums.

1. A question has come from the lead:
   feddbn keeper answer QUESTION --kit {name}    writes the answer; send it back to the lead
2. feddbn keeper show --kit {name}               says which sums were opened
3. With a folder that the lead shares (folder in files.toml): feddbn start --kit {name} does the answering.

What must be remembered of every sum is in state/: never put back an earlier copy of it.
"""
    + _KEY,
}


Role = Literal["site", "lead", "keeper", "authority"]


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
        return read_identity(self.place / "identity.key")

    @cached_property
    def keys(self) -> dict[str, bytes]:
        """Site, or keeper -> public key."""
        keys, path = read_peers(self.place / "peers.toml"), self.place / "keepers.toml"
        return {
            **keys,
            **({name: one.sign for name, one in read_keepers(path).items()} if path.exists() else {}),
        }

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
    """Return the kit of a site, of a keeper or of the lead."""
    settings = read_mark(Path(place))
    if settings.role != role:
        other = {"site": "a site", "lead": "the lead", "keeper": "a keeper"}[role]
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
            f"{place} is no kit for studies by files: {MARK} is missing; make kits with `feddbn federation init --engine "
            "files`.",
            code="no-kit",
        )
    with reading(f"the settings {path}"):
        text = path.read_text(encoding="utf-8")
    return read_table(FilesSettings, text, f"the settings {path}", beside)


def open_end_kit(place: Path) -> FilesKit:
    """Return the kit of who answers questions: a keeper's, or a site's."""
    return open_kit(place, "keeper" if (Path(place) / KEEPER_SETTINGS).exists() else "site")


def make_kits(plan: FederationPlan, directory: Path) -> dict[str, Path]:
    """Write a kit for the lead, for each site and for each keeper below ``directory/kits``; return participant -> kit.

    What adding a site takes stays in ``directory/authority``.
    """
    root = kits_below(directory)
    root.mkdir(parents=True, mode=0o700)
    kits = {name: root / name for name in (plan.admin, *plan.sites, *plan.keepers)}
    for kit in kits.values():
        kit.mkdir(mode=0o700)
    seed = os.urandom(KEY_BYTES)
    write_secret(kits[plan.admin] / "identity.key", seed)
    settings = FilesSettings(
        federation=plan.name,
        role="authority",
        name="authority",
        lead=plan.admin,
        lead_key=Identity.from_seed(seed).public.hex(),
    )
    authority, key = make_authority(directory)
    peers = write_site_files(
        {site: kits[site] for site in plan.sites},
        keepers={name: kits[name] for name in plan.keepers},
        authority=key,
    )
    for place in (kits[plan.admin], authority):
        write_circle(place, peers, key)
        if plan.keepers:
            shutil.copy(kits[plan.keepers[0]] / "keepers.toml", place / "keepers.toml")
    (authority / MARK).write_text(_mark(settings), encoding="utf-8")
    for name, kit in kits.items():
        _describe(
            kit,
            settings,
            name,
            "lead" if name == plan.admin else "keeper" if name in plan.keepers else "site",
        )
    return kits


def make_more_kits(names: Sequence[str], directory: Path, others: Path) -> dict[str, Path]:
    """Write a kit for each of some new sites; `others` is the authority's folder, or the lead's kit, which was it earlier."""
    settings = read_mark(others)
    kits = {name: Path(directory).resolve() / "kits" / name for name in names}
    for kit in kits.values():
        kit.mkdir(parents=True, mode=0o700)
    key = "" if settings.role == "lead" else read_identity(others / "identity.key").public.hex()
    write_site_files(kits, others=others, authority=key)
    for name, kit in kits.items():
        _describe(kit, settings, name, "site")
    return kits


def _describe(kit: Path, settings: FilesSettings, name: str, role: Role) -> None:
    """Say in a kit whose it is."""
    if role == "site":
        (kit / "data").mkdir()
    share = "a folder that the lead and this site share, if there is one"
    if role == "lead":
        share = "where `feddbn study submit` puts runs; else where it is typed"
    own = settings.model_copy(update={"name": name, "role": role})
    (kit / MARK).write_text(_mark(own) + f'# folder = "/mnt/shared"   # {share}\n', encoding="utf-8")
    (kit / "readme.txt").write_text(_README[role].format(name=name), encoding="utf-8")
    owner_only(kit)


def _mark(settings: FilesSettings) -> str:
    return "".join(
        f'{key} = "{getattr(settings, key)}"\n' for key in ("federation", "role", "name", "lead", "lead_key")
    )


def check_site(place: Path, study: Study | None = None) -> list[Finding]:
    """Return the findings for a site's kit, and whether it could join `study` if one is given."""
    # Imported here: it reads data, which a lead's session never does.
    from feddbn.runtime.site.check import check_settings

    kit = open_kit(place, "site")
    found = check_settings(kit.place / "feddbn_site.toml", study)
    site = next((one.values["site"] for one in found if one.code == "settings-read"), kit.name)
    readable = tuple(open_to_others(kit.place))
    keys = (
        Finding("keys-readable", "error", {"kit": str(kit.place)}, readable)
        if readable
        else Finding("keys-private", "good")
    )
    own = kit.keys.get(site)
    values = {"site": site, "named": kit.name, "lead": kit.settings.lead, "key": kit.settings.lead_key[:12]}
    matches = site == kit.name and own == kit.identity.public
    folder = kit.settings.folder
    there = folder is None or folder.is_dir()
    shared = Finding(
        "folder-shared" if folder is not None else "folder-none",
        "note" if folder is None else "good" if there else "error",
        {"folder": str(folder), "there": there},
    )
    return [
        *found,
        keys,
        Finding("files-kit" if matches else "files-kit-other", "good" if matches else "error", values),
        shared,
    ]
