"""Everything for which a site would refuse a study, found before it is sent; nothing leaves the site."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from feddbn._version import __version__
from feddbn.data.checks import check_sites, summary
from feddbn.errors import FeddbnError, SiteRefused
from feddbn.federation.protocol.goals import Compare
from feddbn.federation.protocol.greeting import agree, chosen_variables
from feddbn.federation.protocol.study import Study
from feddbn.method_table import find_method
from feddbn.privacy.audit import parse_entries
from feddbn.privacy.ledger import Ledger
from feddbn.privacy.policy import SitePolicy
from feddbn.runtime.deployed.masking import read_identity, read_peers
from feddbn.runtime.deployed.open_site import read_data, study_checks
from feddbn.runtime.deployed.settings import SiteSettings
from feddbn.runtime.deployed.store import AUDIT

__all__ = ["spent_epsilon", "study_remarks", "tasks_of", "why_refused"]

# What a method asks for only if the data or its other settings call for it.
_PERHAPS = ("agreement", "pairs", "residual-features", "spikes", "summary")
_OF_NETWORKS = ("unit-norms", "residual-features")
# Methods that act on what residuals say, and so look at them whatever is done to the rows.
_ACT_ON_RESIDUALS = ("oneshot",)
# The first look at the data, and what a study says if it wants none of it; every method looks by default.
_LOOK = ("survey", "spikes", "pairs")
_NO_LOOK = {"gains": "none", "spikes": "keep", "missing": "drop"}
# All that is asked for where noise is promised.
_WITH_NOISE = ("moments", "unit-norms")


def why_refused(
    settings: SiteSettings, policy: SitePolicy, variables: Sequence[str], study: Study
) -> list[str]:
    """Return one sentence for everything that would make this site refuse the study; none if it would take part."""
    own: list[Callable[[], None]] = [lambda: agree(study, settings.name, variables, __version__)]
    own += [lambda check=check: check(study) for check in study_checks(settings, policy)]  # type: ignore[misc]
    own += [
        lambda: _tasks(policy, study),
        lambda: _masking(settings, study),
        lambda: _budget(settings, policy, study),
        lambda: _rows(settings, variables, study),
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
    perhaps = _lacking(policy, study)
    if perhaps:
        yield f"it may ask for {', '.join(perhaps)}, which the policy does not list and this site would refuse then"
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


def tasks_of(study: Study) -> tuple[str, ...]:
    """Return the tasks that a study will ask for, as far as its method and parameters tell."""
    if study.goal == "compare":
        plain = study.model_copy(update={"goal": "network", "compare": Compare()})
        own = [tasks_of(plain.model_copy(update={"method": name})) for name in study.methods]
        return tuple(dict.fromkeys([*(task for tasks in own for task in tasks), "held-out-loss"]))
    method = find_method(study.method)
    if method is None:
        return ()
    given = study.parameters
    compares = given.get("on_disagreement", "ignore") != "ignore"
    left_out = set() if compares or _looks(given) else {*_LOOK}
    if not _checks_residuals(method.name, given):
        left_out.add("residual-checks")
    if study.goal == "confidence":
        left_out |= {*_OF_NETWORKS}
        return *(task for task in method.tasks if task not in left_out), "bootstrap-moments"
    if study.privacy.epsilon is not None:
        scales = ("deviation-shares",) if given.get("spikes") == "remove" else ()
        return *(task for task in method.tasks if task in _WITH_NOISE), *scales
    wanted = [task for task in method.tasks if task not in left_out]
    wanted += ["agreement"] if compares else []
    if method.selects and study.held_out:
        wanted += [task for task in method.further_tasks if task.startswith("held-out")]
    if given.get("n_clusters", 1) != 1 or "n_clusters" in study.select.grid:
        wanted += [task for task in method.further_tasks if task.startswith("cluster")]
    if given.get("features", "linear") != "linear":
        wanted += [task for task in method.further_tasks if task.startswith("feature")]
    if given.get("different_variables"):
        wanted += [task for task in method.further_tasks if task.startswith("entry")]
    return tuple(dict.fromkeys(wanted))


def _looks(parameters: Mapping[str, Any]) -> bool:
    """Whether a study of these parameters begins with a first look at the data."""
    is_given = parameters.get("period", "auto") != "auto"
    return not is_given or any(parameters.get(name) != value for name, value in _NO_LOOK.items())


def _checks_residuals(method: str, parameters: Mapping[str, Any]) -> bool:
    """Whether a study of these parameters looks at residuals after learning."""
    wanted = parameters.get("check_residuals", "auto")
    if wanted != "auto" or method in _ACT_ON_RESIDUALS:
        return bool(wanted)
    is_partial = parameters.get("different_variables") or parameters.get("site_lags")
    is_paper = parameters.get("schedule", "adaptive") == "paper"
    is_plain = parameters.get("detrend", "auto") == 0 and not parameters.get("period", "auto")
    is_settled = is_plain and parameters.get("center", "auto") != "auto" and not _looks(parameters)
    return not (is_partial or is_paper or is_settled)


def spent_epsilon(state: Path, delta: float) -> float:
    """Return what the site's audit logs say was spent so far."""
    released = [
        (entry.task, entry.noise_multiplier)
        for path in sorted((state / AUDIT).glob("*.jsonl"))
        for entry in parse_entries(path.read_text(encoding="utf-8").splitlines())
        if entry.event == "sent"
    ]
    return Ledger.replay(released).epsilon(delta)


def _tasks(policy: SitePolicy, study: Study) -> None:
    lacking = [task for task in _lacking(policy, study) if task not in _PERHAPS]
    if lacking:
        raise SiteRefused(
            f"the study will ask for the task{'s' if len(lacking) > 1 else ''} {', '.join(lacking)}, which this site's "
            "policy does not list; add to `tasks` there, or choose other parameters."
        )
    feature = study.parameters.get("features", "linear")
    if isinstance(feature, str) and feature not in ("auto", *policy.features):
        raise SiteRefused(
            f"the study sums {feature!r} features; this site's policy lists {', '.join(policy.features)}."
        )


def _lacking(policy: SitePolicy, study: Study) -> list[str]:
    """Tasks of the study that the policy does not list; norms of units are asked for only where noise is promised."""
    has_noise = study.privacy.epsilon is not None
    wanted = [task for task in tasks_of(study) if has_noise or task != "unit-norms"]
    return [task for task in wanted if task not in policy.tasks]


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
    spent = spent_epsilon(settings.state, policy.delta)
    if spent >= policy.max_epsilon or math.isinf(spent):
        raise SiteRefused(
            f"this site has spent epsilon {spent:.3g} of its budget of {policy.max_epsilon:g} for each {policy.unit}; no "
            "further study with noise can be answered."
        )


def _rows(settings: SiteSettings, variables: Sequence[str], study: Study) -> None:
    names = chosen_variables(study, variables)
    if names:
        check_sites({settings.name: read_data(settings, names)}, study.n_lags or 0)
