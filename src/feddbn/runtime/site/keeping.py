"""A site's half of studies with two keepers: its answers leave as two parts, one for each.

What the site takes down is the sum over all sites of the study: keepers may open it for fewer, and they hold what they open
against what they have opened before. Here a study with other sites than an earlier one, by masks or by keepers, is refused
where the two sums together would show few, whoever the keepers are. The versions of the other sites' data are not known
here, so it is as if no data had changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import AggregationError, SiteRefused
from feddbn.federation.protocol import batches
from feddbn.federation.protocol.endpoint import Answer, SiteEndpoint
from feddbn.federation.protocol.messages import DECLINED, Request, batch_digest, known_in
from feddbn.federation.protocol.site import Channel
from feddbn.federation.protocol.study import Study, check_keepers
from feddbn.federation.protocol.task import Task
from feddbn.privacy.keepers import KeeperKeys, Label, make_parts
from feddbn.privacy.keys import Identity
from feddbn.privacy.register import Entry, MemoryShelf, Shelf, member, must_differ_by
from feddbn.runtime.site.registers import FileShelf, data_version


@dataclass
class KeeperWay:
    """How the answers of one run leave: sealed and signed, a part for each keeper."""

    channel: Channel
    run_id: str
    study: Study
    site: str
    data: str
    identity: Identity
    keepers: Mapping[str, KeeperKeys]

    def __call__(self, request: Request, tasks: Sequence[Task], vectors: Sequence[FloatArray]) -> Answer:
        """Return the parts by keeper; none, where an earlier sum bounds answers and this site's are beyond it.

        That is all that leaves then: how far beyond it would tell more.
        """
        vector, lengths = batches.laid_out(tasks, vectors)
        known = known_in(request)
        batch = batches.batch_of(self.study, self.run_id, request.seq, tasks, lengths, known)
        label = Label(batch, self.site, self.data, self.channel.n_guaranteed)
        try:
            vdaf = batches.vdaf_of(self.study, tasks, batch, known)
            parts = make_parts(label, vector, len(vectors), vdaf, self.identity, self.keepers)
        except AggregationError:
            if known is None:
                raise
            return {"digest": batch_digest(tasks), DECLINED: True}, {}
        arrays = {f"part/{keeper}": np.frombuffer(part, np.uint8) for keeper, part in parts.items()}
        return {"digest": batch_digest(tasks)}, arrays


class SiteKeeping:
    """Makes, for a run, how a site's answers leave.

    Sums are written down in the store in `state`; None keeps them in memory, which is for simulations only.
    """

    def __init__(
        self,
        name: str,
        identity: Identity,
        peers: Mapping[str, bytes],
        keepers: Mapping[str, KeeperKeys],
        min_sites: int,
        state: Path | None,
    ) -> None:
        self._name = name
        self._identity = identity
        self._peers = peers
        self._keepers = keepers
        self._min_sites = min_sites
        self._state = state
        self._in_memory = MemoryShelf()
        self._version: str | None = None

    def __call__(self, run_id: str, study: Study, site: SiteEndpoint) -> KeeperWay:
        """Return it."""
        check_known(study, self._keepers, self._peers)
        fewest = max(self._min_sites, study.privacy.min_sites)
        if self._version is None:
            # The data were read once, when the site was opened.
            self._version = data_version(site.whole, self._identity)
        shelf = self._in_memory if self._state is None else FileShelf(self._state, run_id, study.digest)
        self._admit(shelf, study, self._version, fewest)
        whom = json.dumps([[one, self._peers[one].hex()] for one in sorted(study.sites)])
        among = hashlib.sha256(whom.encode()).hexdigest()
        channel = Channel(masked=True, n_guaranteed=fewest, among=among)
        return KeeperWay(channel, run_id, study, self._name, self._version, self._identity, self._keepers)

    def _admit(self, shelf: Shelf, study: Study, data: str, fewest: int) -> None:
        """Write the sum over all sites of a study down before anything leaves, or refuse it."""
        others = {member(self._peers[one], "") for one in study.sites if one != self._name}
        new = Entry(frozenset(others | {member(self._peers[self._name], data)}))
        with shelf.hold():
            if would_show(shelf, self._peers, study.sites, fewest, colluding=False):
                raise SiteRefused(
                    "the study has other sites than an earlier one that had data of this site: together their sums would "
                    f"show fewer than {fewest} sites. Ask the same sites again.",
                    code="shows-few-sites",
                )
            if all(entry.members != new.members for entry in shelf.entries()):
                signature = self._identity.sign(new.statement).hex()
                shelf.add([Entry(new.members, member(self._identity.public, "")[:-1], signature)])


def check_known(study: Study, keepers: Mapping[str, KeeperKeys] | None, peers: Mapping[str, bytes]) -> None:
    """Refuse a study with keepers or sites whose keys the site does not have, or with sums that keepers do not open."""
    check_keepers(study)
    unknown = [name for name in study.privacy.keepers if name not in (keepers or {})]
    if unknown:
        raise SiteRefused(
            f"the study names the keeper {unknown[0]!r}, whose keys this site does not have; `keepers` in its settings "
            "names the file with them.",
            code="unknown-keeper",
        )
    lacking = [name for name in study.sites if name not in peers]
    if lacking:
        raise SiteRefused(
            f"this site has no key of {', '.join(lacking[:3])}; if they are new, take the note on them with `feddbn "
            "federation admit`.",
            code="unknown-key",
        )


def would_show(
    shelf: Shelf, peers: Mapping[str, bytes], sites: Sequence[str], min_sites: int, colluding: bool = True
) -> int:
    """Return 0 if a sum over these sites may be made beside those on the shelf, as if no data had changed, else by how many
    sites it would have to differ (`must_differ_by`).
    """
    now = frozenset(member(peers[site], "") for site in sites)
    before = {frozenset(one.partition(":")[0] + ":" for one in entry.members) for entry in shelf.entries()}
    return must_differ_by(now, before, min_sites, colluding)
