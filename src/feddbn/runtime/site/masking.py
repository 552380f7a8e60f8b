"""A deployed site's part in secure aggregation, and how it survives the site's process.

Theory of operation
-------------------
A site may be a new process for each message (`feddbn.engine`), and a study that collects leaves every message open until all
sites have come (`runtime.server.collecting`). Then a site's secrets of an epoch must outlive its process. After each message
they are on the site's own disk, sealed under a key made from its identity, with the message and the answer to it, and only
then does the answer leave. Therefore

- the same message again gets the same bytes again, and nothing is computed: no second input, no second list of
  survivors;
- another message for the same step is refused by the rules of the protocol, as it is in memory;
- a message that is refused leaves everything as it was, and can be asked again when its reason is gone;
- of two processes of one site only the one that saved last goes on, so that they cannot reveal two halves of a secret;
- keys were agreed on for one version of the data: with other data the site takes no further part in the epoch.

What is kept is replaced by each message, which takes 3 ms. Secrets that were erased are gone from it, but not from backups of
the disk. An engine whose site lives as long as a run keeps them in memory, unless the study collects.

A greeting begins with new keys, so what was kept is forgotten with it, and at the end of the run. Only in a collection is
there one greeting for the whole run: a server that resumes it makes the messages of the same epochs again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from feddbn.errors import FeddbnError, SiteRefused, StateError
from feddbn.federation.protocol.encoding import decode, encode
from feddbn.federation.protocol.endpoint import SiteEndpoint
from feddbn.federation.protocol.messages import refused_in
from feddbn.federation.protocol.study import Study
from feddbn.privacy.keys import Identity, RandomBytes, open_sealed, seal
from feddbn.privacy.register import MemoryShelf, Register
from feddbn.privacy.secagg_site import SecAggSite, epoch_from, kept_epoch
from feddbn.runtime.masked import SecureSite
from feddbn.runtime.site.registers import FileShelf, data_version
from feddbn.runtime.store import Slot

SALT_BYTES = 16


class SealedSlot:
    """A value of a run that only this site reads: sealed under a key made from its identity, a new one for each content."""

    def __init__(
        self, slot: Slot, identity: Identity, run_id: str, entropy: RandomBytes = os.urandom
    ) -> None:
        self._slot = slot
        self._entropy = entropy
        self._identity = identity
        self._context = f"kept masks {run_id}".encode()

    def load(self) -> bytes | None:
        """Return what was saved last, or None."""
        stored = self._slot.load()
        if stored is None:
            return None
        salt, sealed = stored[:SALT_BYTES], stored[SALT_BYTES:]
        return open_sealed(self._key(salt), sealed, self._context)

    def save(self, content: bytes) -> None:
        """Replace it; it is on disk when this returns."""
        salt = self._entropy(SALT_BYTES)
        self._slot.save(salt + seal(self._key(salt), content, self._context))

    def drop(self) -> None:
        """Forget it: it is not on disk any more when this returns."""
        self._slot.drop()

    def _key(self, salt: bytes) -> bytes:
        return hashlib.sha256(self._identity.sign(b"key of " + self._context + b" " + salt)).digest()


class KeptMasks:
    """Answers messages of secure aggregation, each once; what the register was told when an epoch began is kept, too."""

    def __init__(self, secure: SecureSite, register: Register, slot: SealedSlot) -> None:
        self._secure = secure
        self._register = register
        self._slot = slot
        self._stored = slot.load()
        self._digest = b""
        self._reply = b""
        self._restore()

    def handle(self, message: bytes) -> bytes:
        """Return the reply to one message, the one it had before if it was answered before."""
        digest = hashlib.sha256(message).digest()
        if digest == self._digest:
            return self._reply
        try:
            reply = self._secure.handle(message)
            if not refused_in(reply):
                self._keep(digest, reply)
        except BaseException:
            self._restore()
            raise
        if digest != self._digest:
            # Refused: nothing has left that depends on what was done meanwhile.
            self._restore()
        return reply

    def _keep(self, digest: bytes, reply: bytes) -> None:
        epoch = self._secure.secagg.held
        if epoch is None:
            return
        meta, arrays = kept_epoch(epoch)
        about: dict[str, Any] = {
            "epoch": meta,
            "register": self._register.kept(),
            "data": self._register.data,
        }
        answered = {"digest": np.frombuffer(digest, np.uint8), "reply": np.frombuffer(reply, np.uint8)}
        content = encode(
            {"type": "kept-masks", **about}, {**{f"epoch/{k}": v for k, v in arrays.items()}, **answered}
        )
        self._slot.save(content)
        self._stored, self._digest, self._reply = content, digest, reply

    def _restore(self) -> None:
        """Be what is on disk."""
        secagg = self._secure.secagg
        if self._stored is None:
            secagg.hold(None)
            return
        try:
            meta, arrays = decode(self._stored)
            epoch = {k.partition("/")[2]: v for k, v in arrays.items() if k.startswith("epoch/")}
            if meta["data"] != self._register.data:
                raise StateError(
                    f"the data of this site are not those with which it agreed on keys for run {secagg.run!r}; put "
                    "them back, or begin a new run.",
                    code="other-data",
                )
            self._register.resume(meta["register"])
            secagg.hold(epoch_from((meta["epoch"], epoch), secagg.run))
            self._digest, self._reply = arrays["digest"].tobytes(), arrays["reply"].tobytes()
        except (KeyError, TypeError) as error:
            raise StateError(
                f"the masks kept of run {secagg.run!r} cannot be read: {error!r}.", code="damaged-masks"
            ) from None
        except FeddbnError:
            secagg.hold(None)
            raise


class SiteMasking:
    """Makes a site's end of secure aggregation for a run.

    Its sums are written down in the store in `state`, where with `keep`, and in studies that collect, its secrets outlive its
    process, too; None keeps all in memory, which is for simulations only, and refuses to collect. With `noise_covers`, sums
    with much noise are not written down: noise for a recording is noise for a whole site only if it is large. Keys and masks
    are made of bytes of `entropy`.
    """

    def __init__(
        self,
        name: str,
        identity: Identity,
        peers: Mapping[str, bytes],
        min_sites: int,
        state: Path | None,
        noise_covers: bool = False,
        keep: bool = False,
        entropy: RandomBytes = os.urandom,
    ) -> None:
        self._name = name
        self._identity = identity
        self._peers = dict(peers)
        self._min_sites = min_sites
        self._state = state
        self._noise_covers = noise_covers
        self._keep = keep
        self._entropy = entropy
        self._in_memory = MemoryShelf()
        self._version: str | None = None

    def __call__(self, run_id: str, study: Study, site: SiteEndpoint) -> Callable[[bytes], bytes]:
        """Return what answers the messages of secure aggregation in a run."""
        fewest = max(self._min_sites, study.privacy.min_sites)
        if self._version is None:
            # The data were read once, when the site was opened.
            self._version = data_version(site.whole, self._identity)
        state = self._state
        shelf = self._in_memory if state is None else FileShelf(state, run_id, study.digest)
        register = Register(self._version, shelf, noisy=self._noise_covers and study.privacy.hides_rows)
        secagg = SecAggSite(
            self._name,
            self._identity,
            self._peers,
            run_id,
            self._entropy,
            fewest,
            study=study.digest,
            n_sites=len(study.sites),
            register=register,
            opening=site.opening,
        )
        secure = SecureSite(site, secagg, history=site.history)
        if not (self._keep or study.attendance.collects):
            return secure.handle
        if state is None:
            raise SiteRefused(
                "this site keeps no masks on its disk, so it cannot take part in a collection.",
                code="no-kept-masks",
            )
        return KeptMasks(secure, register, self._slot(state, run_id)).handle

    def forget(self, run_id: str) -> None:
        """Forget the keys of a run, here and on disk; what protects its sums stays."""
        if self._state is not None:
            self._slot(self._state, run_id).drop()

    def _slot(self, state: Path, run_id: str) -> SealedSlot:
        return SealedSlot(Slot(state, run_id, "masks", erase=True), self._identity, run_id, self._entropy)
