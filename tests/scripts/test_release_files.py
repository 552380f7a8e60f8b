"""The lock file of a release, held against what the project asks for."""

import re
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("packaging")
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def locked():
    """Name -> (requirement, hashes) of every entry of the lock."""
    text = (ROOT / "requirements.lock").read_text().replace("\\\n", " ")
    entries = {}
    for line in text.splitlines():
        wanted, *hashes = re.split(r"\s+--hash=", line.strip())
        one = Requirement(wanted)
        entries.setdefault(one.name, []).append((one, hashes))
    return entries


def test_the_lock_pins_every_package_with_hashes_and_names_no_place():
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert "-index" not in text
    for entries in locked().values():
        for one, hashes in entries:
            assert [specifier.operator for specifier in one.specifier] == ["=="], one
            assert hashes
            assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", code) for code in hashes)


def test_the_lock_fits_what_all_installs():
    entries, extras = locked(), PROJECT["optional-dependencies"]
    (own,) = map(Requirement, extras["all"])
    wanted = [*PROJECT["dependencies"], *(one for extra in sorted(own.extras) for one in extras[extra])]
    for one in map(Requirement, wanted):
        for found, _ in entries[one.name]:
            (pinned,) = found.specifier
            assert one.specifier.contains(pinned.version), f"{one}: run `make lock`"
