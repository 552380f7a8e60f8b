"""Masked sums of a deployed study: secure aggregation inside numbered requests, asked again with new masks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from feddbn.errors import (
    AggregationError,
    FeddbnError,
    FederationError,
    NotEnoughSites,
    PrivacyError,
    ProtocolError,
)
from feddbn.federation.protocol.encoding import encode
from feddbn.federation.protocol.messages import Request, encode_request
from feddbn.federation.protocol.study import Attendance, Study
from feddbn.federation.protocol.task import Sum
from feddbn.federation.sums.private_moments import guaranteed_sites
from feddbn.privacy.secagg import Message
from feddbn.runtime.masked import SecureFederation, read_secure_reply
from feddbn.runtime.server.asking import Line, Turn, too_few

WHAT = "secagg"


class _Incomplete(NotEnoughSites):
    """Sites are missing from a sum that must have all of them; nothing was opened."""


class _Courier:
    """Carries messages of secure aggregation inside numbered requests, so that answers pass the sites' fence.

    Before a sum is opened it makes sure that the study's rule on missing sites allows it. After the first sum the sites
    are fixed: sites refuse what, together with it, would show single ones.
    """

    def __init__(self, study: Study, line: Line, rules: Attendance) -> None:
        self.sites = tuple(sorted(study.sites))
        self._line = line
        self._may_miss = rules.when_missing == "continue" or rules.enough is not None
        self._turn: Turn | None = None
        self._fixed: frozenset[str] = frozenset()
        self._masked: set[str] = set()

    def begin(self, turn: Turn) -> None:
        """Say which task the next messages are about."""
        self._turn = turn
        self._masked = set()
        self._fixed = frozenset(turn.counted)

    def _require_whole(self, turn: Turn) -> None:
        """Raise if the sum that is about to be opened lacks a site that must be in it."""
        needed = self._fixed or (() if self._may_miss else turn.participants)
        missing = ", ".join(sorted(set(needed) - self._masked))
        if missing and self._fixed:
            raise _Incomplete(
                f"a sum lacks {missing}, whose numbers are in earlier sums of this run; together with those it would show "
                f"them, so nothing was opened. Resume the run when {missing} can be reached, or use a study with noise.",
                code="lost-later",
            )
        if missing:
            raise _Incomplete(f"a sum lacks {missing}; nothing was opened.", code="lacks-sites")

    def __call__(self, messages: Mapping[str, Message]) -> dict[str, Message]:
        """Send and read; a site that refuses or is silent counts as a drop-out."""
        turn = self._turn
        assert turn is not None
        phases = {str(meta.get("phase")) for meta, _ in messages.values()}
        if phases & {"survivors", "unmask"}:
            self._require_whole(turn)
        if phases <= {"advertise", "masked"} and self._fixed:
            messages = {site: message for site, message in messages.items() if site in self._fixed}
        encoded: dict[int, np.ndarray] = {}
        outgoing: dict[str, bytes] = {}
        for site, message in messages.items():
            # One object for all sites is encoded once.
            inner = encoded.get(id(message))
            if inner is None:
                inner = encoded[id(message)] = np.frombuffer(encode(*message), dtype=np.uint8)
            request = Request(WHAT, self._line.run_id, turn.seq, turn.after(site), arrays={"message": inner})
            outgoing[site] = encode_request(request)
        replies: dict[str, Message] = {}
        for site, reply in self._line.ask(outgoing, WHAT, turn.seq).items():
            if "message" not in reply.arrays:
                continue
            try:
                replies[site] = read_secure_reply(reply.arrays["message"].tobytes())
            except (FederationError, PrivacyError) as error:
                self._line.note_refusal(site, error, WHAT, turn.seq)
        if phases == {"masked"}:
            self._masked |= set(replies)
        return replies

    def reject(self, site: str, sentence: str) -> None:
        """Count a site whose reply cannot be used as missing, under its own name."""
        assert self._turn is not None
        self._masked.discard(site)
        self._line.note_odd(site, sentence, WHAT, self._turn.seq)


class MaskedSums:
    """Sums of which the server can open nothing but the whole; each attempt uses new masks."""

    def __init__(self, study: Study, line: Line, rules: Attendance | None = None) -> None:
        self._rules = rules or study.attendance
        self._line = line
        self._courier = _Courier(study, line, self._rules)
        privacy = study.privacy
        self._max_norm = privacy.max_norm
        # Two thirds of the study's sites, whoever is on the roster: sites accept no less, and noise is spread over so many.
        threshold = guaranteed_sites(study)
        self._secure = SecureFederation(
            self._courier, line.run_id, privacy.min_sites, threshold, study.variables
        )

    def __call__(self, turn: Turn) -> Sum:
        """Return the sum over the sites that answered; fail closed with a sentence if it cannot be opened."""
        # A collection has waited already: new keys and masks would be another question to sites that come later.
        is_patient = self._rules.when_missing in ("wait", "continue")
        patience_s = self._rules.max_wait_s if is_patient else 0.0
        failed: FeddbnError | None = None
        for attempt in self._line.attempts(patience_s):
            self._courier.begin(turn)
            try:
                if attempt:
                    # A new epoch asks everybody: who came back is in it.
                    self._secure.agree_on_keys()
                return self._bounded(self._secure.sum(turn.task), turn)
            except (_Incomplete, AggregationError) as error:
                failed = error
        said = self._line.said
        assert failed is not None
        raise too_few(f"task {turn.seq} ({turn.task.name!r}): {failed}", sorted(said), said, failed.code)

    def _bounded(self, opened: Sum, turn: Turn) -> Sum:
        """Return the sum unless it is longer than its sites can make it by the study's rule."""
        longest = np.inf if self._max_norm is None else len(opened.contributors) * self._max_norm
        # A little more, for rounding.
        if not np.linalg.norm(opened.value) <= longest * (1 + 1e-9):
            raise ProtocolError(
                f"task {turn.seq} ({turn.task.name!r}): the sum is longer than {len(opened.contributors)} answers of at most "
                f"max_norm = {self._max_norm:g}. One of its sites has not kept to the rule; masks hide which one, and "
                "nothing is learned from this sum.",
                code="too-long",
            )
        return opened
