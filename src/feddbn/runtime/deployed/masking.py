"""A deployed site's part in secure aggregation: its identity on disk and its end of the line."""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from feddbn.errors import FileError, SiteRefused
from feddbn.federation.protocol.endpoint import SiteEndpoint
from feddbn.federation.protocol.secure_site import SecureSite
from feddbn.federation.protocol.study import Study
from feddbn.privacy.keys import KEY_BYTES, Identity
from feddbn.privacy.register import MemoryShelf, Register
from feddbn.privacy.secagg_site import SecAggSite
from feddbn.runtime.deployed.kept_masks import KeptMasks, SealedFile
from feddbn.runtime.deployed.registers import FileShelf, data_version
from feddbn.runtime.deployed.store import OwnFile

__all__ = ["read_identity", "read_peers", "site_masking"]


def read_identity(path: Path) -> Identity:
    """Return the identity in a file of 32 secret bytes."""
    try:
        seed = Path(path).read_bytes()
    except OSError as error:
        raise FileError(f"the identity {path} cannot be read: {error.strerror}.") from None
    if len(seed) != KEY_BYTES:
        raise FileError(f"the identity {path} must have {KEY_BYTES} bytes, it has {len(seed)}.")
    return Identity.from_seed(seed)


def read_peers(path: Path) -> dict[str, bytes]:
    """Return site -> public key from a TOML file of hexadecimal lines."""
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FileError(f"the list of peers {path} cannot be read: {error}.") from None
    for site, key in values.items():
        if not isinstance(key, str) or not re.fullmatch("[0-9a-f]{64}", key):
            raise FileError(f"the list of peers {path} has no key of 64 hexadecimal digits for {site!r}.")
    return {site: bytes.fromhex(key) for site, key in values.items()}


def site_masking(
    name: str,
    identity: Identity,
    peers: Mapping[str, bytes],
    min_sites: int,
    registers: Path | None,
    noise_covers: float = 0.0,
    kept: Path | None = None,
) -> Callable[[str, Study, SiteEndpoint], Callable[[bytes], bytes]]:
    """Return what makes a site's end of secure aggregation for a run.

    Its sums are written down below `registers`; None keeps them in memory, which is for simulations only. Sums with noise of
    an epsilon up to `noise_covers` are not: noise for a recording or a row is noise for a whole site only if it is large.
    `kept` is where secrets outlive the site's process, in studies that collect; without it such studies are refused.
    """
    in_memory = MemoryShelf()
    versions: list[str] = []

    def make(run_id: str, study: Study, site: SiteEndpoint) -> Callable[[bytes], bytes]:
        fewest = max(min_sites, study.privacy.min_sites)
        if not versions:
            # The data were read once, when the site was opened.
            versions.append(data_version(site.whole, identity))
        shelf = in_memory if registers is None else FileShelf(registers, run_id, study.digest)
        register = Register(versions[0], shelf, noisy=(study.privacy.epsilon or math.inf) <= noise_covers)
        secagg = SecAggSite(
            name,
            identity,
            dict(peers),
            run_id,
            os.urandom,
            fewest,
            study=study.digest,
            n_sites=len(study.sites),
            register=register,
            opening=site.opening,
        )
        secure = SecureSite(site, secagg, history=site.history)
        if study.attendance.when_missing != "collect":
            return secure.handle
        if kept is None:
            raise SiteRefused("this site keeps no masks on its disk, so it cannot take part in a collection.")
        file = SealedFile(OwnFile(kept, run_id, "masks.feddbn"), identity, run_id)
        return KeptMasks(secure, register, file).handle

    return make
