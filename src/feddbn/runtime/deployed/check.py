"""What can be checked and told at a site before it takes part: its settings, data, policy, and a study in plain words.

Nothing leaves the site. What is found are findings; their sentences are in `feddbn.words`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from feddbn._version import __version__
from feddbn.data.checks import check_sites, summary
from feddbn.data.preflight import preflight
from feddbn.errors import FeddbnError, SiteRefused
from feddbn.federation.guards.disclosure import counted_rows
from feddbn.federation.guards.study_scope import (
    costs_in_words,
    lacking_tasks,
    scope_of,
    size_in_words,
    tasks_of,
)
from feddbn.federation.protocol.endpoint import agree, chosen_variables
from feddbn.federation.protocol.site import site_task
from feddbn.federation.protocol.study import Attendance, Privacy, Study
from feddbn.method_table import find_method
from feddbn.privacy.policy import SitePolicy
from feddbn.runtime.deployed.audit import account_of
from feddbn.runtime.deployed.kit_files import read_identity, read_peers
from feddbn.runtime.deployed.open_site import describe_data, read_data, study_checks
from feddbn.runtime.deployed.owner import Owner
from feddbn.runtime.deployed.registers import FileShelf
from feddbn.runtime.deployed.settings import (
    SiteSettings,
    describe_policy,
    load_programs,
    read_policy,
    read_site_settings,
)
from feddbn.runtime.deployed.store import REGISTER
from feddbn.words import card

__all__ = ["CheckLine", "check_settings", "study_in_words", "study_remarks", "why_refused"]


def why_refused(
    settings: SiteSettings, policy: SitePolicy, variables: Sequence[str], study: Study
) -> list[str]:
    """Return one sentence for everything that would make this site refuse the study; none if it would take part."""
    own: list[Callable[[], None]] = [lambda: agree(study, settings.name, variables, __version__)]
    own += [lambda check=check: check(study) for check in study_checks(settings, policy)]  # type: ignore[misc]
    own += [
        lambda: _masking(settings, study),
        lambda: _budget(settings, policy, study),
        lambda: _rows(settings, policy, variables, study),
    ]
    found: list[str] = []
    for check in own:
        try:
            check()
        except FeddbnError as error:
            if str(error) not in found:
                found.append(str(error))
    return found


def study_remarks(
    settings: SiteSettings, policy: SitePolicy, variables: Sequence[str], study: Study
) -> Iterator[str]:
    """Yield what the owner of the data should know about a study that would not be refused."""
    perhaps = lacking_tasks(policy, study)
    if perhaps:
        yield f"it may ask for {', '.join(perhaps)}, which the policy does not list and this site would refuse then"
    if _has_other_sites(settings, policy, study):
        yield (
            "earlier sums over data of this site had other sites: unless many sites have new data, sums of this study would "
            "be refused, because together with those they show single sites; ask the same sites, or use noise"
        )
    names = chosen_variables(study, variables)
    unused = [name for name in variables if name not in names]
    if unused:
        yield f"not asked for: {', '.join(unused[:8])}{', ...' if len(unused) > 8 else ''}; these columns are not read"
    silent = [name for name in names if name in study.units and name not in settings.units]
    if silent:
        wanted = ", ".join(f"{name} in {study.units[name]}" for name in silent)
        yield f"the study means {wanted}; say it in `units` of the settings if that is so, or convert the data"
    unsaid = [name for name in names if name in settings.units and name not in study.units]
    if unsaid:
        yield f"the study does not say the units of {', '.join(unsaid)}; ask the lead for a [units] table"
    n_lags = 1 if study.n_lags is None else study.n_lags
    rows = summary({settings.name: read_data(settings, names)}, n_lags).iloc[0]
    yield (
        f"{int(rows['usable_rows'])} of {int(rows['rows'] + rows['dropped_rows'])} rows can be used with n_lags = {n_lags}, "
        f"{int(rows['complete_rows'])} of them without an empty cell; {rows['missing_percent']:.1f} % of the cells are empty"
    )
    few = int(rows["usable_rows"] - rows["complete_rows"])
    if 0 < few < policy.min_rows and "fill" in scope_of(study, settings.max_lags).transformations:
        yield f"the {few} rows with an empty cell are too few to be filled in and are left out (min_rows in the policy)"


def _has_other_sites(settings: SiteSettings, policy: SitePolicy, study: Study) -> bool:
    """Whether the register has a sum over other sites than the study's, with which the study's would show a few."""
    if not study.privacy.secure_aggregation or study.privacy.epsilon is not None or settings.peers is None:
        return False
    from feddbn.privacy.register import member, shown_by

    peers = read_peers(settings.peers)
    # The versions of the others' data are not known here; as if no data had changed.
    now = frozenset(member(peers[site], "") for site in study.sites)
    shelf = FileShelf(settings.state / REGISTER, "", "")
    before = {frozenset(one.partition(":")[0] + ":" for one in entry.members) for entry in shelf.entries()}
    return bool(shown_by(now, before, max(policy.min_sites, study.privacy.min_sites)))


def _masking(settings: SiteSettings, study: Study) -> None:
    if not study.privacy.secure_aggregation:
        return
    if settings.identity is None or settings.peers is None:
        raise SiteRefused(
            "the study asks for secure aggregation, which is not set up at this site; `identity` and `peers` in its "
            "settings name the two files."
        )
    read_identity(settings.identity)
    peers = read_peers(settings.peers)
    unknown = [site for site in study.sites if site not in peers]
    if unknown:
        raise SiteRefused(
            f"{settings.peers} has no key of {', '.join(unknown)}; ask these sites for their public keys."
        )


def _budget(settings: SiteSettings, policy: SitePolicy, study: Study) -> None:
    if policy.max_epsilon is None or study.privacy.epsilon is None:
        return
    account = account_of(settings)
    if account.spent(policy.unit, policy.delta) >= policy.max_epsilon:
        raise SiteRefused(
            f"this site's privacy budget: {account.words(policy).rstrip('.')}; no further study with noise can be answered."
        )


def _rows(settings: SiteSettings, policy: SitePolicy, variables: Sequence[str], study: Study) -> None:
    names = chosen_variables(study, variables)
    if not names:
        return
    data, n_lags = read_data(settings, names, study.kinds), study.n_lags or 0
    check_sites({settings.name: data}, n_lags)
    if study.privacy.epsilon is None:
        n_rows = sum(counted_rows(data.recordings(), n_lags))
        policy.check_rows(n_rows, (n_lags + 1) * len(names))
        policy.check_share(n_rows, study.rows)


_GOALS = {
    "network": "a network",
    "confidence": "how far each edge can be trusted",
    "select": "a network whose parameters are chosen on held-out rows",
    "compare": "a network, and how well this and other methods predict held-out rows",
    "check": "what is wrong with the data of all sites together; nothing is learned from them",
}


def study_in_words(study: Study, settings: SiteSettings) -> list[tuple[str, str]]:
    """Return (what, words) about all that a study says; reads the site's data to count rows, and sends nothing."""
    load_programs(settings.programs)
    method = find_method(study.method)
    about = "" if method is None else f": {method.summary}"
    table = getattr(study, study.goal, None)
    how = {} if table is None else table.model_dump()
    more = ", ".join(f"{name} = {value}" for name, value in how.items())
    values = ", ".join(f"{name} = {value}" for name, value in study.parameters.items())
    tasks = [(f"asks for {task}", _told(task)) for task in tasks_of(study)]
    costs = [] if study.privacy.epsilon is None else [("noise costs", costs_in_words(study))]
    units = ", ".join(f"{name} in {unit}" for name, unit in study.units.items())
    return [
        ("study", study.name),
        *(
            [("new rows of", f"run {study.update_of}, whose rows this site must not offer again")]
            if study.update_of
            else []
        ),
        ("lead", study.lead or "not named"),
        ("method", f"{study.method}{about}"),
        ("goal", f"{_GOALS[study.goal]}{f' ({more})' if more else ''}"),
        ("parameters", values or "the method's defaults"),
        ("variables", _listed(study.variables)),
        *([("units", units)] if units else []),
        ("rows", _counted_rows(study, settings)),
        *tasks,
        ("size", size_in_words(study, read_policy(settings.policy))),
        ("sites", _listed(study.sites)),
        ("privacy", _privacy(study.privacy)),
        *costs,
        ("missing sites", _attendance(study.attendance)),
        ("digest", study.digest),
    ]


def _listed(names: Sequence[str]) -> str:
    return f"{len(names)}: {', '.join(names)}"


def _told(task: str) -> str:
    try:
        return site_task(task).question.purpose
    except FeddbnError:
        return "not known at this site"


def _counted_rows(study: Study, settings: SiteSettings) -> str:
    n_lags = 1 if study.n_lags is None else study.n_lags
    try:
        whole = read_data(settings)
        names = chosen_variables(study, tuple(whole.variables))
        rows = summary({settings.name: read_data(settings, names)}, n_lags).iloc[0]
    except FeddbnError as error:
        return f"cannot be counted: {error}"
    all_rows, recordings = int(rows["rows"] + rows["dropped_rows"]), int(rows["recordings"])
    return (
        f"{int(rows['usable_rows'])} of {all_rows} rows of {_counted(recordings, 'recording')} can be used with "
        f"{_counted(n_lags, 'lag')}"
    )


def _privacy(privacy: Privacy) -> str:
    masks = (
        f"secure aggregation, sums of at least {privacy.min_sites} sites are opened"
        if privacy.secure_aggregation
        else "NO secure aggregation: the server sees this site's own sums"
    )
    if privacy.epsilon is None:
        return f"{masks}; no noise is added"
    return f"{masks}; noise: epsilon {privacy.epsilon:g}, delta {privacy.delta:g} for each {privacy.unit}, in each run"


def _attendance(rules: Attendance) -> str:
    if rules.collects:
        all_or = "all sites" if rules.enough is None else f"all sites, or {rules.enough} of them in the end,"
        return f"each message waits up to {rules.window_h:g} hours until {all_or} have come and answered it"
    late = f"a site is missing after {rules.timeout_s:g} s"
    then = {
        "wait": f"the run waits for it up to {rules.max_wait_s:g} s",
        "continue": f"the run goes on with at least {rules.min_sites} sites",
        "abort": "the run stops",
    }
    return f"{late}; then {then[rules.when_missing]}"


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


@dataclass(frozen=True)
class CheckLine:
    """One line of the report; `ok` is None for information."""

    what: str
    ok: bool | None
    text: str


def check_settings(path: Path, study: Study | None = None) -> list[CheckLine]:
    """Return the findings for a site's settings file, and whether it could join `study` if one is given."""
    try:
        settings = read_site_settings(path)
    except FeddbnError as error:
        return [CheckLine("settings", False, str(error))]
    return [CheckLine("settings", True, f"site {settings.name!r}"), *_check_data(settings, study)]


def _check_data(settings: SiteSettings, study: Study | None) -> list[CheckLine]:
    out: list[CheckLine] = []
    try:
        data = read_data(settings)
        out.append(CheckLine("data", True, describe_data(data)))
        out += _preflight(settings, 1 if study is None or study.n_lags is None else study.n_lags)
        policy = read_policy(settings.policy)
        out.append(CheckLine("policy", None, describe_policy(policy)))
        if policy.max_epsilon is not None:
            account = account_of(settings)
            out.append(CheckLine("budget", False if account.doubt else None, account.words(policy)))
        if study is not None:
            out += _check_study(settings, policy, tuple(data.variables), study)
    except FeddbnError as error:
        out.append(CheckLine("study" if out else "data", False, str(error)))
        if len(out) == 1:
            out += _preflight(settings, 1)
    try:
        settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        free = shutil.disk_usage(settings.state).free / 2**30
        ok = os.access(settings.state, os.W_OK)
        out.append(CheckLine("state", ok, f"{settings.state}, {free:.1f} GiB free"))
    except OSError as error:
        out.append(CheckLine("state", False, f"{settings.state} cannot be used: {error.strerror}"))
    return out


def _check_study(
    settings: SiteSettings, policy: SitePolicy, variables: tuple[str, ...], study: Study
) -> list[CheckLine]:
    """Return every reason for which the site would refuse the study; if there is none, what its owner should know."""
    refused = why_refused(settings, policy, variables, study)
    if refused:
        return [CheckLine("study", False, sentence) for sentence in refused]
    remarks = [
        CheckLine("study: note", None, text) for text in study_remarks(settings, policy, variables, study)
    ]
    return [
        CheckLine("study", True, f"this site can join {study.name!r}"),
        *_approval(settings, policy, study),
        *remarks,
    ]


def _approval(settings: SiteSettings, policy: SitePolicy, study: Study) -> list[CheckLine]:
    """Say whether the owner has approved the study, where the policy asks for that."""
    if policy.approve_by_rule:
        return []
    try:
        found = Owner(settings).approvals.find(study)
    except FeddbnError as error:
        return [CheckLine("study: approval", False, str(error))]
    if found is not None and found[1] == "valid":
        approval = found[0]
        left = approval.runs - len(approval.used)
        return [
            CheckLine(
                "study: approval", True, f"until {approval.expires}, {left} of {approval.runs} runs left"
            )
        ]
    how = "none yet" if found is None else found[1]
    return [
        CheckLine(
            "study: approval", None, f"{how}; `feddbn site approve` approves it, before that it is refused"
        )
    ]


def _preflight(settings: SiteSettings, n_lags: int) -> list[CheckLine]:
    """Return what the site's own data show by themselves; it is told here and nowhere else."""
    try:
        found = preflight(
            {settings.name: settings.data},
            n_lags,
            **settings.reading,
        )
    except FeddbnError:
        # The data cannot be opened, which is said already.
        return []
    # Only a refusal keeps a site from taking part; everything else is for its owner to judge.
    return [
        CheckLine(f"data: {one.code}", None, f"{one.level}: {words.detail} {words.advice}".rstrip())
        for one, words in ((one, card(one, "owner")) for one in found)
    ]
