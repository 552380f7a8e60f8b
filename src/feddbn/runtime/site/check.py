"""What is found at a site before it takes part: its settings, data and policy, and what a study is about.

Nothing leaves the site. The sentences are in `feddbn.words`: `card(finding, "owner")` says what was looked at, and what was
found.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from feddbn._version import __version__
from feddbn.core.designs.recordings import SiteData
from feddbn.data.checks import check_sites
from feddbn.data.site import with_columns
from feddbn.errors import FeddbnError, SiteRefused
from feddbn.federation.guards.disclosure import counted_rows
from feddbn.federation.guards.study_plan import (
    lacking_tasks,
    scope_of,
)
from feddbn.federation.protocol.endpoint import agree, chosen_variables
from feddbn.federation.protocol.study import Study
from feddbn.findings import Finding, Level
from feddbn.privacy.policy import SitePolicy
from feddbn.runtime.settings import (
    SiteSettings,
    about_policy,
    read_policy,
    read_site_settings,
)
from feddbn.runtime.site.audit import budget_finding
from feddbn.runtime.site.kit_files import read_identity, read_peers
from feddbn.runtime.site.open_site import about_data, about_variables, read_data, rows_of, study_checks
from feddbn.runtime.site.owner import Owner
from feddbn.runtime.site.registers import FileShelf
from feddbn.words import card


def why_refused(settings: SiteSettings, policy: SitePolicy, data: SiteData, study: Study) -> list[Finding]:
    """Return everything that would make this site refuse the study; nothing if it would take part."""
    own: list[Callable[[], None]] = [lambda: agree(study, settings.name, tuple(data.variables), __version__)]
    own += [lambda check=check: check(study) for check in study_checks(settings, policy, data)]  # type: ignore[misc]
    own += [
        lambda: _masking(settings, study),
        lambda: _budget(settings, policy, study),
        lambda: _earlier_sums(settings, policy, study),
        lambda: _rows(settings, policy, data, study),
    ]
    found: list[Finding] = []
    for check in own:
        try:
            check()
        except FeddbnError as error:
            refused = _wrong("study-refused", error)
            if refused not in found:
                found.append(refused)
    return found


def study_remarks(
    settings: SiteSettings, policy: SitePolicy, data: SiteData, study: Study
) -> Iterator[Finding]:
    """Yield what the owner of the data should know about a study that would not be refused."""
    perhaps = lacking_tasks(policy, study)
    if perhaps:
        yield Finding("tasks-not-listed", "note", about=tuple(perhaps))
    names = chosen_variables(study, tuple(data.variables))
    unused = tuple(name for name in data.variables if name not in names)
    if unused:
        yield Finding("columns-unused", "note", about=unused)
    unsaid = tuple(name for name in names if name in settings.units and name not in study.units)
    if unsaid:
        yield Finding("units-unsaid-there", "note", about=unsaid)
    counts = rows_of(study, settings, data, names)
    usable, complete = counts["usable"], counts["complete"]
    yield Finding("rows-usable", "note", counts)
    if (
        0 < usable - complete < policy.min_rows
        and "fill" in scope_of(study, settings.max_lags).transformations
    ):
        yield Finding("rows-not-filled", "note", {"rows": usable - complete})


def _wrong(code: str, error: FeddbnError) -> Finding:
    return Finding(code, "error", {"why": error.code, "sentence": str(error)})


def _earlier_sums(settings: SiteSettings, policy: SitePolicy, study: Study) -> None:
    """Refuse sites whose sum would show a few of them, beside a sum over other sites in the register."""
    covered = policy.max_epsilon is not None and study.privacy.hides_rows
    if not study.privacy.secure_aggregation or covered or settings.peers is None:
        return
    from feddbn.privacy.register import member, must_differ_by

    # The versions of the others' data are not known here.
    peers, least = read_peers(settings.peers), max(policy.min_sites, study.privacy.min_sites)
    if not set(study.sites) <= peers.keys():
        return
    now = frozenset(member(peers[site], "") for site in study.sites)
    shelf = FileShelf(settings.state, "", "").entries()
    before = {frozenset(one.partition(":")[0] + ":" for one in entry.members) for entry in shelf}
    if fewest := must_differ_by(now, before, least):
        raise SiteRefused(
            "data of this site were added up before with other sites than those of this study. The two sums together could "
            f"show fewer than {fewest} sites, so this site will refuse the sums of the study. Ask the lead for the same "
            f"sites, for at least {fewest} new ones at once, or for a study with noise. Only if many sites have new data "
            "since, the sums can be made.",
            code="shows-few-sites",
        )


def _masking(settings: SiteSettings, study: Study) -> None:
    if not study.privacy.secure_aggregation:
        return
    if settings.identity is None or settings.peers is None:
        raise SiteRefused(
            "the study asks for secure aggregation, which is not set up at this site; `identity` and `peers` in its "
            "settings name the two files.",
            code="no-masks-here",
        )
    read_identity(settings.identity)
    peers = read_peers(settings.peers)
    unknown = [site for site in study.sites if site not in peers]
    if unknown:
        raise SiteRefused(
            f"{settings.peers} has no key of {', '.join(unknown)}; if they are new, admit them with `feddbn site "
            "admit NAME KEY`.",
            code="unknown-key",
        )


def _budget(settings: SiteSettings, policy: SitePolicy, study: Study) -> None:
    if policy.max_epsilon is None or study.privacy.epsilon is None:
        return
    account = Owner(settings).audit.account()
    if account.spent(policy.unit, policy.delta) >= policy.max_epsilon:
        told = card(budget_finding(account, policy), "owner").detail.rstrip(".")
        raise SiteRefused(
            f"this site's privacy budget: {told}; no further study with noise can be answered.",
            code="budget-spent",
        )


def _rows(settings: SiteSettings, policy: SitePolicy, data: SiteData, study: Study) -> None:
    names, n_lags = chosen_variables(study, tuple(data.variables)), study.n_lags or 0
    if not names:
        return
    # Kinds that only the study declares are looked for in cells.
    is_known = set(study.kinds) <= set(settings.layout.kinds)
    data = with_columns(data, names) if is_known else read_data(settings, names, study.kinds)
    check_sites({settings.name: data}, n_lags)
    if not study.privacy.hides_rows:
        n_rows = sum(counted_rows(data.recordings(), n_lags))
        policy.check_rows(n_rows, (n_lags + 1) * len(names))
        policy.check_share(n_rows, study.rows)


def check_settings(path: Path, study: Study | None = None) -> list[Finding]:
    """Return the findings for a site's settings file, and whether it could join `study` if one is given."""
    try:
        settings = read_site_settings(path)
    except FeddbnError as error:
        return [_wrong("settings-wrong", error)]
    return [
        Finding("settings-read", "good", {"site": settings.name}),
        *_check_data(settings, study),
        _check_state(settings.state),
    ]


def _check_data(settings: SiteSettings, study: Study | None) -> list[Finding]:
    out: list[Finding] = []
    try:
        data = read_data(settings)
        out += [about_data(data), *about_variables(data, settings.layout)]
        policy = read_policy(settings.policy)
        out.append(about_policy(policy))
        if policy.max_epsilon is not None:
            out.append(budget_finding(Owner(settings).audit.account(), policy))
        if study is not None:
            refused = why_refused(settings, policy, data, study)
            out += refused or [
                Finding("study-joinable", "good", {"study": study.name}),
                *_approval(settings, policy, study),
                *study_remarks(settings, policy, data, study),
            ]
    except FeddbnError as error:
        if out:
            out.append(_wrong("study-refused", error))
        else:
            out = [_wrong("data-wrong", error)]
    return out


def _check_state(place: Path) -> Finding:
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        free = shutil.disk_usage(place).free / 2**30
    except OSError as error:
        return Finding("state-wrong", "error", {"place": str(place), "why": error.strerror})
    level: Level = "good" if os.access(place, os.W_OK) else "error"
    return Finding("state-place", level, {"place": str(place), "free": free})


def _approval(settings: SiteSettings, policy: SitePolicy, study: Study) -> list[Finding]:
    """Say whether the owner has approved the study, where the policy asks for that."""
    if policy.approve_by_rule:
        return []
    try:
        found = Owner(settings).approvals.find(study)
    except FeddbnError as error:
        return [_wrong("approval-wrong", error)]
    if found is None or found[1] != "valid":
        return [Finding("approval-missing", "note", {"state": "none yet" if found is None else found[1]})]
    one = found[0]
    values = {"expires": one.expires, "left": one.runs - len(one.used), "runs": one.runs}
    return [Finding("approval-valid", "good", values)]
