"""What guards a deployed site's answers: its policy, noise where a study promises it, and the audit log of each run.

Audit logs are never pruned, because the site's privacy budget is what all its logs together say was spent.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from feddbn.core.designs.recordings import SiteData
from feddbn.errors import SiteRefused
from feddbn.federation.guards.disclosure import (
    DisclosureGuard,
    MixedGuard,
)
from feddbn.federation.guards.dominance import DominanceGuard
from feddbn.federation.guards.noise import DpGuard, Promise
from feddbn.federation.guards.row_set_guard import RowSetGuard
from feddbn.federation.guards.site_guards import About, AuditGuard, BoundsGuard, PolicyGuard
from feddbn.federation.guards.study_plan import Asked, ScopeGuard, scope_of
from feddbn.federation.guards.weights import RowWeights
from feddbn.federation.protocol.site import Channel, Guard
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.private_moments import study_noise_plan
from feddbn.findings import Finding
from feddbn.privacy.audit import AuditChain, parse_entries
from feddbn.privacy.gaussian import RandomBytes
from feddbn.privacy.ledger import Ledger
from feddbn.privacy.policy import SitePolicy
from feddbn.runtime.site.audit import Account, SiteAudit
from feddbn.runtime.site.registers import (
    FileColumnBook,
    FileRowBook,
    FileStepBook,
    RecordingBook,
    SiteLedger,
)
from feddbn.runtime.store import Claim, iso_time

ATTEMPTS, PAUSE_S = 200, 0.1
"""How often, and how far apart, a site tries to spend its budget while another of its processes does."""


class Protection:
    """Makes the guards of each run of one site."""

    def __init__(
        self,
        state: Path,
        site: str,
        policy: SitePolicy,
        data: SiteData,
        max_lags: int = 10,
        audit: SiteAudit | None = None,
        tell: Callable[[Finding], None] = lambda finding: None,
        entropy: RandomBytes = os.urandom,
    ) -> None:
        self._state = Path(state)
        self._site = site
        self._policy = policy
        self._max_lags = max_lags
        self._audit = audit or SiteAudit(state, site, None)
        self._data = data
        self._tell = tell
        self._entropy = entropy

    def guards(self, run_id: str, study: Study) -> list[Guard]:
        """Return what may be asked, policy, weights, rules about rows, noise, bounds and audit, in this order."""
        lines = self._audit.lines(run_id)
        noise, weights = self._noise(run_id, study), self._weights(study)
        chain = AuditChain.resume(lines, self._audit.identity, self._audit.key)
        about = About(run_id, study.name, study.digest, study.lead, study.variables, self._policy.max_epsilon)
        append = partial(self._audit.append, run_id)
        audit = AuditGuard(self._site, append, iso_time, chain, noise, about, study.privacy.has_weights)
        # Audit logs are never cut, as logs of events are.
        answered = Counter(entry.task for entry in parse_entries(lines) if entry.event == "sent")
        policy = PolicyGuard(self._policy, len(study.sites), answered)
        asked = self._asked(run_id)
        scope = ScopeGuard(scope_of(study, self._max_lags), self._policy, asked)
        # Much noise hides single rows, and rules about numbers of rows would tell what no noise covers.
        rows = [] if study.privacy.hides_rows else self._rules_of_rows(run_id, study, asked)
        rows += [noise] if noise else []
        bounds = BoundsGuard(len(study.sites), study.privacy.max_norm)
        guards = [policy, scope, *weights, *rows, bounds, audit]
        if noise is None or self._policy.max_epsilon is None:
            return guards
        spending = _Spending(self._state / "_budget.lock", noise, self._audit.account)
        return [spending, *guards]

    def _rules_of_rows(self, run_id: str, study: Study, asked: Asked) -> list[Guard]:
        """Return what keeps sums, also those of all runs together, from showing rows."""
        about = (self._state, self._data, run_id, study.digest)
        RecordingBook(self._state, self._data).begin(run_id, study)
        rows = FileRowBook(*about)
        return [
            RowSetGuard(rows, self._policy.min_rows, self._tell, _reach(study)),
            DisclosureGuard(study, self._policy, asked),
            DominanceGuard(self._policy, self._data, FileColumnBook(self._state, run_id, study.digest)),
            MixedGuard(self._policy, FileStepBook(*about)),
        ]

    def _asked(self, run_id: str) -> Asked:
        """Return what a run has been asked so far; no restart, second greeting or pruning forgets it."""
        ledger = SiteLedger(self._state, run=run_id)
        known = [tuple(line["asked"]) for line in ledger.all("asked") if line["run"] == run_id]

        def write(*one: object) -> None:
            ledger.add("asked", [{"asked": one}])

        return Asked(known, write)

    def _noise(self, run_id: str, study: Study) -> DpGuard | None:
        """Return the guard that adds the noise a study promises and books what leaves; None if neither is needed."""
        privacy, budget = study.privacy, self._policy.max_epsilon
        if privacy.epsilon is None:
            return None
        account = self._audit.account()
        promise = Promise(privacy.epsilon, privacy.delta, Ledger.replay(account.by_run.get(run_id, ())))
        # The owner's budget is about the owner's delta, the study's promise about the study's.
        return DpGuard(
            study_noise_plan(study),
            self._entropy,
            budget,
            self._policy.delta,
            account.ledger,
            promise,
            doubt=account.doubt,
        )

    def _weights(self, study: Study) -> list[Guard]:
        """Return the guard that weights rows, the same in all studies that have them; none in others."""
        identity = self._audit.identity
        if not study.privacy.has_weights:
            return []
        if identity is None:
            raise SiteRefused(
                "the study weights rows in secret, and this site has no key to do so by (identity in its settings).",
                code="no-masks-here",
            )
        return [RowWeights(hashlib.sha256(identity.sign(b"key of row weights")).digest())]


class _Spending(Guard):
    """Lets one answer at a time spend the site's budget, in all its processes, each on what was spent until then."""

    def __init__(self, path: Path, noise: DpGuard, account: Callable[[], Account]) -> None:
        self._path = path
        self._noise = noise
        self._account = account
        self._claim: Claim | None = None

    def before(self, task: Task, state: Mapping[str, np.ndarray], channel: Channel) -> None:
        """Wait until no other answer is being made."""
        for _ in range(ATTEMPTS):
            with suppress(OSError):
                self._claim = Claim(self._path)
                break
            time.sleep(PAUSE_S)
        else:
            raise SiteRefused(
                "another run is spending this site's privacy budget; try again when it has answered.",
                code="budget-in-use",
            )
        account = self._account()
        self._noise.ledger, self._noise.doubt = account.ledger, account.doubt

    def ended(self, task: Task, leaves: bool) -> None:
        """What leaves is on record: others may spend."""
        if self._claim is not None:
            self._claim.close()
            self._claim = None


def _reach(study: Study) -> int:
    """The most lags among which a study chooses on rows that are held out."""
    tried = study.select.grid.get("n_lags", ()) if study.goal == "select" else ()
    return max(map(int, tried)) * study.lag_reach if len(tried) > 1 else 0
