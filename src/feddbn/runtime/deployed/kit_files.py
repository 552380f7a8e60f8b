"""What a site's kit holds on every engine: settings, policy, identity and the others' public keys."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from feddbn.errors import FileError
from feddbn.privacy.keys import KEY_BYTES, Identity

__all__ = ["kits_below", "open_to_others", "owner_only", "write_secret", "write_site_files"]


_MORE = (
    "# What else can be said about the data; remove the # where it applies.",
    '# variables = ["heart_rate", "lactate"]   # columns that studies may use; all if left out',
    '# series = "patient"                      # the column that tells recordings apart',
    '# time = "when"                           # the column with the time',
    "# sort = true                             # rows are not in the order of time",
    "# day_first = true                        # dates such as 31.01.2024",
    "# [units]                                 # compared with what a study means; this table comes last",
    '# heart_rate = "1/min"',
    "",
)


def kits_below(directory: Path) -> Path:
    """Return the new directory for the kits of a federation, not yet made."""
    root = Path(directory).resolve() / "kits"
    if root.exists():
        raise FileError(f"{directory} already holds the kits of a federation; choose another directory.")
    return root


def owner_only(directory: Path) -> None:
    """Take everybody else's rights off a directory and all that is in it."""
    for path in (directory, *directory.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o700)


def open_to_others(kit: Path) -> list[str]:
    """Return the private keys in a kit that others than their owner can read or write."""
    keys = (path for path in sorted(kit.rglob("*.key")) if path.is_file())
    return [str(path.relative_to(kit)) for path in keys if path.stat().st_mode & 0o077]


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read."""
    path.touch(mode=0o600)
    path.write_bytes(content)


def write_site_files(places: Mapping[str, Path], above: str = "") -> None:
    """Write each site's own files into its place; data and state are below `above` of it.

    ``identity.key`` is secret. A site that trusts nobody with it makes its own: replace the file by 32 random
    bytes and the line in everybody's ``peers.toml``.
    """
    # Imported here: a lead's session needs nothing of it, and it takes two seconds.
    from feddbn.runtime.deployed.protection import default_policy_text

    peers = []
    for site, place in sorted(places.items()):
        seed = os.urandom(KEY_BYTES)
        write_secret(place / "identity.key", seed)
        peers.append(f'"{site}" = "{Identity.from_seed(seed).public.hex()}"\n')
    for site, place in places.items():
        lines = [f'name = "{site}"', f'data = "{above}data"', f'state = "{above}state"']
        lines += ['policy = "policy.toml"', 'identity = "identity.key"', 'peers = "peers.toml"']
        settings = "\n".join([*lines, "max_lags = 10", "keep_days = 30", "", *_MORE])
        (place / "feddbn_site.toml").write_text(settings, encoding="utf-8")
        (place / "policy.toml").write_text(default_policy_text(), encoding="utf-8")
        (place / "peers.toml").write_text("".join(peers), encoding="utf-8")
