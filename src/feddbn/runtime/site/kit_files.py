"""What a site's folder holds: settings, policy, identity and the others' public keys."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from feddbn.errors import FileError, ParameterError, reading
from feddbn.privacy.keys import KEY_BYTES, Identity, RandomBytes
from feddbn.privacy.policy import SitePolicy

SITE_SETTINGS, POLICY, IDENTITY, PEERS = "feddbn_site.toml", "policy.toml", "identity.key", "peers.toml"
SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_MORE = (
    "# What else can be said about the data; remove the # where it applies.",
    '# variables = ["heart_rate", "lactate"]   # columns that studies may use; all if left out',
    '# series = "patient"                      # the column that tells recordings apart',
    '# time = "when"                           # the column with the time',
    "# sort = true                             # rows are not in the order of time",
    "# day_first = true                        # dates such as 31.01.2024",
    '# names = "what"                          # one reading per row: the column that says of what,',
    '# values = "value"                        # the one with its value,',
    '# freq = "1h"                             # and the step in which readings are averaged',
    "# [units]                                 # compared with what a study means; tables come last",
    '# heart_rate = "1/min"',
    "# [variables]                             # instead of a list: where each is in the table, its unit and limits",
    '# heart_rate = {name = "HR", unit = "1/min", limits = [10, 300]}',
    "",
)


def check_names(sites: Sequence[str]) -> None:
    """Refuse names of sites that cannot be those of folders, and a name that is given twice."""
    for name in sites:
        if not SITE_NAME.fullmatch(name):
            raise ParameterError(
                f"{name!r} is no name; use letters, digits, '-' and '_', a letter or digit first."
            )
    twice = sorted({name for name in sites if sites.count(name) > 1})
    if twice or not sites:
        said = f"sites has {twice[0]!r} twice" if twice else "sites is empty"
        raise ParameterError(f"{said}; give at least one name and no name twice.")


def kits_below(directory: Path) -> Path:
    """Return the new directory for the kits of a federation, not yet made."""
    root = Path(directory).resolve() / "kits"
    if root.exists():
        raise FileError(
            f"{directory} already holds the kits of a federation; choose another directory.",
            code="kits-there",
        )
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


def write_site_files(
    places: Mapping[str, Path],
    others: Path | None = None,
    entropy: RandomBytes = os.urandom,
) -> str:
    """Write each site's own files into its place; data and state are below it.

    Where sites are there already, `others` is a folder with the public keys of these. Secret keys are bytes of `entropy`.
    Return the list of all sites' public keys.

    ``identity.key`` is secret. A site that trusts nobody with it makes its own: replace the file by 32 random
    bytes and the line in everybody's ``peers.toml``.
    """
    peers = "" if others is None else peer_lines(read_peers(others / PEERS))
    for site, place in sorted(places.items()):
        seed = entropy(KEY_BYTES)
        write_secret(place / IDENTITY, seed)
        peers += peer_lines({site: Identity.from_seed(seed).public})
    for site, place in places.items():
        lines = [f'name = "{site}"', 'data = "data"', 'state = "state"']
        lines += [f'policy = "{POLICY}"', f'identity = "{IDENTITY}"', f'peers = "{PEERS}"']
        settings = "\n".join([*lines, "max_lags = 10", "keep_days = 30", "", *_MORE])
        (place / SITE_SETTINGS).write_text(settings, encoding="utf-8")
        (place / POLICY).write_text(default_policy_text(), encoding="utf-8")
        (place / PEERS).write_text(peers, encoding="utf-8")
    return peers


def peer_lines(keys: Mapping[str, bytes]) -> str:
    """Return lines of a list of public keys; inverse of `read_peers`."""
    return "".join(f'"{site}" = "{key.hex()}"\n' for site, key in keys.items())


def default_policy_text() -> str:
    """Return the default policy as a file to edit."""
    policy = SitePolicy()

    def listed(names: Sequence[str]) -> str:
        return "[" + ", ".join(f'"{name}"' for name in names) + "]"

    return (
        "# What this site allows; everything else is refused.\n"
        f"methods = {listed(policy.methods)}\n"
        f"tasks = {listed(policy.tasks)}\n"
        f"features = {listed(policy.features)}\n"
        f"transformations = {listed(policy.transformations)}\n"
        '# variables = ["ward", "temperature"]   # without it, all that the site offers\n'
        f"min_sites = {policy.min_sites}\n"
        f"min_rows = {policy.min_rows}\n"
        f"min_rows_per_parameter = {policy.min_rows_per_parameter}\n"
        f"max_share = {policy.max_share}\n"
        f"require_masking = {str(policy.require_masking).lower()}\n"
        f"max_rounds = {policy.max_rounds}\n"
        "# max_epsilon = 1.0     # with a budget, answers without noise are refused\n"
        "# approve_by_rule = true # any study within these rules is answered, without `feddbn site approve`\n"
    )


def read_seed(path: Path) -> bytes:
    """Return the 32 secret bytes of an identity."""
    with reading(f"the identity {path}"):
        seed = Path(path).read_bytes()
    if len(seed) != KEY_BYTES:
        raise FileError(f"the identity {path} must have {KEY_BYTES} bytes, it has {len(seed)}.")
    return seed


def read_identity(path: Path) -> Identity:
    """Return the identity in a file of 32 secret bytes."""
    return Identity.from_seed(read_seed(path))


def read_peers(path: Path) -> dict[str, bytes]:
    """Return site -> public key from a TOML file of hexadecimal lines."""
    return {site: bytes.fromhex(key) for site, key in _keys(path, "peers", 64).items()}


def _keys(path: Path, of: str, n_digits: int) -> dict[str, str]:
    with reading(f"the list of {of} {path}", "TOML"):
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    for name, key in values.items():
        if not isinstance(key, str) or not re.fullmatch(f"[0-9a-f]{{{n_digits}}}", key):
            raise FileError(
                f"the list of {of} {path} has no key of {n_digits} hexadecimal digits for {name!r}."
            )
    return values
