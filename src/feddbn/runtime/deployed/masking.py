"""Secure aggregation between real processes: identities on disk, the site's end, the server's courier."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from feddbn.core.encoding import encode
from feddbn.errors import FederationError, FileError, InputError, NotEnoughSites, PrivacyError
from feddbn.federation.protocol.endpoint import FencedSite
from feddbn.federation.protocol.messages import Reply, Request, encode_request
from feddbn.federation.protocol.secure_site import SecureSite, read_secure_reply
from feddbn.federation.protocol.study import Study
from feddbn.privacy.keys import KEY_BYTES, Identity
from feddbn.privacy.secagg import Message
from feddbn.privacy.secagg_site import SecAggSite

__all__ = ["EnvelopeCourier", "Incomplete", "read_identity", "read_peers", "site_masking", "write_identities"]

Ask = Callable[[Mapping[str, bytes]], Mapping[str, Reply | Exception]]


class Incomplete(NotEnoughSites):
    """Sites are missing from a sum that must have all of them; nothing was opened."""


def write_identities(directories: Mapping[str, Path]) -> None:
    """Write a new identity for each site and, for all, the public keys of the others.

    ``identity.key`` is secret. A site that trusts nobody with it makes its own: replace the file by 32 random
    bytes and the line in everybody's ``peers.toml``.
    """
    identities = {}
    for site, directory in directories.items():
        path = Path(directory) / "identity.key"
        seed = os.urandom(KEY_BYTES)
        path.touch(mode=0o600)
        path.write_bytes(seed)
        identities[site] = Identity.from_seed(seed)
    lines = [f'"{site}" = "{identity.public.hex()}"' for site, identity in sorted(identities.items())]
    for directory in directories.values():
        (Path(directory) / "peers.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


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
    name: str, identity: Identity, peers: Mapping[str, bytes], min_sites: int
) -> Callable[[str, Study, FencedSite], Callable[[bytes], bytes]]:
    """Return what makes a site's end of secure aggregation for a run."""

    def make(run_id: str, study: Study, site: FencedSite) -> Callable[[bytes], bytes]:
        fewest = max(min_sites, study.privacy.min_sites)
        secagg = SecAggSite(name, identity, dict(peers), run_id, os.urandom, fewest)
        return SecureSite(site, secagg).handle  # type: ignore[arg-type]

    return make


class EnvelopeCourier:
    """Carries messages of secure aggregation inside numbered requests, so that answers pass the sites' fence.

    Before a sum is opened it makes sure that the study's rule on missing sites allows it: a sum that was
    opened for some sites can never be opened for others, their difference would show single sites.
    """

    def __init__(
        self, sites: tuple[str, ...], run_id: str, ask: Ask, refused: Callable[[str, Exception], None]
    ) -> None:
        self._sites = sites
        self._refused = refused
        self._run_id = run_id
        self._ask = ask
        self._seq = -1
        self._counted: Mapping[str, int] = {}
        self._wanted: tuple[str, ...] = ()
        self._allow_missing = False
        self._masked: set[str] = set()

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        return self._sites

    def begin(
        self, seq: int, counted: Mapping[str, int], wanted: tuple[str, ...], allow_missing: bool
    ) -> None:
        """Say which task the next messages are about."""
        self._seq, self._counted = seq, counted
        self._wanted, self._allow_missing = wanted, allow_missing
        self._masked = set()

    def __call__(self, messages: Mapping[str, Message]) -> dict[str, Message]:
        """Send and read; a site that refuses or is silent counts as a drop-out."""
        phases = {str(meta.get("phase")) for meta, _ in messages.values()}
        if phases == {"unmask"} and not self._allow_missing:
            missing = [site for site in self._wanted if site not in self._masked]
            if missing:
                raise Incomplete(f"a sum lacks {', '.join(missing)}; nothing was opened.")
        encoded: dict[int, np.ndarray] = {}
        outgoing: dict[str, bytes] = {}
        for site, message in messages.items():
            inner = encoded.get(id(message))
            if inner is None:
                inner = encoded[id(message)] = np.frombuffer(encode(*message), dtype=np.uint8)
            after = self._counted.get(site, -1)
            outgoing[site] = encode_request(
                Request("secagg", self._run_id, self._seq, after, arrays={"message": inner})
            )
        replies: dict[str, Message] = {}
        for site, reply in self._ask(outgoing).items():
            if not isinstance(reply, Reply) or "message" not in reply.arrays:
                continue
            try:
                replies[site] = read_secure_reply(reply.arrays["message"].tobytes())
            except (FederationError, PrivacyError, InputError) as error:
                self._refused(site, error)
        if phases == {"masked"}:
            self._masked |= set(replies)
        return replies
