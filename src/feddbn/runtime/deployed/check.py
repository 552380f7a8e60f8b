"""What can be checked at a site on any engine before it takes part: settings, data, policy, place for its state."""

from __future__ import annotations

import json
import os
import re
import shutil
from ast import literal_eval
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feddbn.data.preflight import preflight
from feddbn.errors import FeddbnError
from feddbn.federation.protocol.study import Study
from feddbn.privacy.policy import SitePolicy
from feddbn.runtime.deployed.books import account_of
from feddbn.runtime.deployed.open_site import describe_data, read_data
from feddbn.runtime.deployed.owner import Owner
from feddbn.runtime.deployed.protection import describe_policy, read_policy
from feddbn.runtime.deployed.settings import SiteSettings, read_site_settings
from feddbn.runtime.deployed.study_check import study_remarks, why_refused

__all__ = ["Finding", "check_settings"]


@dataclass(frozen=True)
class Finding:
    """One line of the report; `ok` is None for information."""

    what: str
    ok: bool | None
    text: str


def check_settings(path: Path, study: Study | None = None) -> list[Finding]:
    """Return the findings for a site's settings file, and whether it could join `study` if one is given."""
    try:
        settings = read_site_settings(path)
    except FeddbnError as error:
        return [Finding("settings", False, str(error))]
    return [Finding("settings", True, f"site {settings.name!r}"), *_check_data(settings, study)]


def _check_data(settings: SiteSettings, study: Study | None) -> list[Finding]:
    out: list[Finding] = []
    try:
        data = read_data(settings)
        out.append(Finding("data", True, describe_data(data)))
        out += _preflight(settings, 1 if study is None or study.n_lags is None else study.n_lags)
        policy = read_policy(settings.policy)
        out.append(Finding("policy", None, describe_policy(policy)))
        if policy.max_epsilon is not None:
            account = account_of(settings)
            out.append(Finding("budget", False if account.doubt else None, account.words(policy)))
        if study is not None:
            out += _check_study(settings, policy, tuple(data.variables), study)
    except FeddbnError as error:
        out.append(Finding("study" if out else "data", False, str(error)))
        if len(out) == 1:
            out += _preflight(settings, 1)
    try:
        settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        free = shutil.disk_usage(settings.state).free / 2**30
        ok = os.access(settings.state, os.W_OK)
        out.append(Finding("state", ok, f"{settings.state}, {free:.1f} GiB free"))
    except OSError as error:
        out.append(Finding("state", False, f"{settings.state} cannot be used: {error.strerror}"))
    return out


def _check_study(
    settings: SiteSettings, policy: SitePolicy, variables: tuple[str, ...], study: Study
) -> list[Finding]:
    """Return every reason for which the site would refuse the study; if there is none, what its owner should know."""
    refused = why_refused(settings, policy, variables, study)
    if refused:
        return [Finding("study", False, sentence) for sentence in refused]
    remarks = [
        Finding("study: note", None, text) for text in study_remarks(settings, policy, variables, study)
    ]
    return [
        Finding("study", True, f"this site can join {study.name!r}"),
        *_approval(settings, policy, study),
        *remarks,
    ]


def _approval(settings: SiteSettings, policy: SitePolicy, study: Study) -> list[Finding]:
    """Say whether the owner has approved the study, where the policy asks for that."""
    if policy.approve_by_rule:
        return []
    try:
        found = Owner(settings).approvals.find(study)
    except FeddbnError as error:
        return [Finding("study: approval", False, str(error))]
    if found is not None and found[1] == "valid":
        approval = found[0]
        left = approval.runs - len(approval.used)
        return [
            Finding("study: approval", True, f"until {approval.expires}, {left} of {approval.runs} runs left")
        ]
    how = "none yet" if found is None else found[1]
    return [
        Finding(
            "study: approval", None, f"{how}; `feddbn site approve` approves it, before that it is refused"
        )
    ]


def _preflight(settings: SiteSettings, n_lags: int) -> list[Finding]:
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
        Finding(f"data: {one.what}", None, f"{one.severity}: {one.sentence} Cure: {_as_settings(one.cure)}.")
        for one in found
    ]


def _as_settings(cure: str) -> str:
    """Return a cure with arguments written as lines of the settings file."""
    cure = re.sub(r"\b(sort|day_first)=(True|False)", lambda found: f"{found[1]} = {found[2].lower()}", cure)
    cure = re.sub(r"\bMixedDBN\(kinds=(\{(?:[^{}]|\{[^{}]*\})*\})\)", _kinds_line, cure)
    cure = re.sub(r"\bjitter=(\d(?:\.\d+)?)", r"jitter = \1", cure)
    return re.sub(r"\b(series|time|label)=(?:'([^']*)'|([^\s,;.)]+))", _line, cure)


def _kinds_line(found: re.Match[str]) -> str:
    """Kinds as a TOML table in one line; of TOML's strings, lists and inline tables JSON has the first two."""
    said = [f"{json.dumps(name)} = {_toml(kind)}" for name, kind in literal_eval(found[1]).items()]
    return f"kinds = {{ {', '.join(said)} }} and a study of method mixed"


def _toml(said: Any) -> str:
    if isinstance(said, dict):
        return f"{{ {', '.join(f'{key} = {_toml(value)}' for key, value in said.items())} }}"
    return json.dumps(said)


def _line(found: re.Match[str]) -> str:
    return f'{found[1]} = "{found[2] or found[3]}"'
