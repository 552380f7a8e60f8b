"""A site behind secure aggregation: bytes in, bytes out, and no vector leaves unmasked.

The task a site answers is part of what its masks are bound to: the digest is computed here from the task
itself, so a server that sends two sites different tasks under one digest is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.encoding import decode, encode
from feddbn.errors import FeddbnError, ProtocolError
from feddbn.federation.protocol.messages import MOST_WORDS, raise_refusal, refusal_fields
from feddbn.federation.protocol.site import Channel, task_from_fields
from feddbn.federation.protocol.task import Task, task_digest
from feddbn.privacy.secagg import Message
from feddbn.privacy.secagg_site import SecAggSite

Digest = Callable[[Mapping[str, Any], Mapping[str, np.ndarray]], str]


class DigestOnce:
    """Sites of one process are handed the same objects; the digest of the last ones is kept."""

    def __init__(self) -> None:
        self._last: tuple[Mapping[str, Any], Mapping[str, np.ndarray], str] | None = None

    def __call__(self, fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
        """Return the digest of a task."""
        last = self._last
        if last is not None and last[0] is fields and last[1] is arrays:
            return last[2]
        digest = task_digest(fields, arrays)
        self._last = (fields, arrays, digest)
        return digest


class Answering(Protocol):
    """What masking may call: a site of this process, or one behind its fence."""

    @property
    def name(self) -> str:
        """Name of the site."""
        ...

    @property
    def answer(self) -> Callable[..., FloatArray]:
        """Return the vector for a task and a channel."""
        ...


class SecureSite:
    """Answers secure-aggregation messages for one site.

    `history` tells what the state behind the last answer was asked before: a site of this process has no fence, and
    none.
    """

    def __init__(
        self,
        site: Answering,
        secagg: SecAggSite,
        digest: Digest = task_digest,
        history: Callable[[], str] = str,
    ) -> None:
        self.site = site
        self.secagg = secagg
        self._digest = digest
        self._history = history

    def respond(self, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Message:
        """Return the reply to one decoded message, or raise the refusal."""
        return self.secagg.handle(meta, arrays, lambda: self.answer(meta, arrays), self._history)

    def handle(self, message: bytes) -> bytes:
        """Return the reply to one message as bytes; a refusal is a reply too."""
        try:
            return encode(*self.respond(*decode(message, MOST_WORDS)))
        except FeddbnError as error:
            return encode({"kind": "refusal", "site": self.site.name, **refusal_fields(error)})

    def answer(self, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> FloatArray:
        """Return this site's vector for a task, unmasked: for the protocol only."""
        task = self.task(meta, arrays)
        n_guaranteed = self.secagg.guaranteed_contributors
        channel = Channel(masked=True, n_guaranteed=n_guaranteed, among=self.secagg.among)
        return self.site.answer(task, channel)

    def task(self, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Task:
        """Return the task of a request to mask, which its digest must fit."""
        fields = meta.get("task")
        if not isinstance(fields, dict) or self._digest(fields, arrays) != meta.get("task_digest"):
            raise ProtocolError("the digest of this task does not fit its content.", code="wrong-digest")
        return task_from_fields(fields, arrays, meta.get("participants"))


def read_secure_reply(message: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return a decoded reply; a refusal raises the error the site named, with its sentence."""
    meta, arrays = decode(message, MOST_WORDS)
    if meta.get("kind") == "refusal":
        raise_refusal(str(meta.get("site")), meta)
    return meta, arrays
