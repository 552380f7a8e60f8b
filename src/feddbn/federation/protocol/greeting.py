"""What a site and a server agree on before any task: version, site, variables, units; names only, no data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from feddbn._version import __version__
from feddbn.core.kinds import Kind
from feddbn.errors import FeddbnError, SiteRefused
from feddbn.federation.protocol.messages import Request
from feddbn.federation.protocol.study import Study, study_from_json

__all__ = ["agree", "announcement", "chosen_variables", "greeted", "kind_differences", "unit_differences"]


def agree(study: Study, site: str, variables: Sequence[str], version: str) -> None:
    """Refuse a study this site cannot take part in; reads names only, no data.

    Raises
    ------
    SiteRefused
        If version, site or variables do not fit.
    """
    if version != __version__:
        raise SiteRefused(
            f"the server runs feddbn {version}, this site {__version__}; install the same version on both."
        )
    if site not in study.sites:
        raise SiteRefused(f"the study {study.name!r} does not name the site {site!r}.")
    if study.n_lags is not None and study.n_lags < 0:
        raise SiteRefused(f"the study asks for n_lags = {study.n_lags}; it must be 0 or more.")
    missing = [name for name in study.variables if name not in variables]
    if study.some_variables_may_be_missing and len(missing) < len(study.variables):
        return
    if missing:
        has = ", ".join(variables[:10]) + (", ..." if len(variables) > 10 else "")
        raise SiteRefused(
            f"the study {study.name!r} asks for variables that this site does not offer: {', '.join(missing)}; it has "
            f"{has}. Add the columns to the site's data (or to `variables` in its settings), rename them, or leave them "
            "out of the study."
        )


def chosen_variables(study: Study, variables: Sequence[str]) -> tuple[str, ...]:
    """Return the study's variables that a site has, in the study's order."""
    return tuple(name for name in study.variables if name in variables)


def unit_differences(study: Study, units: Mapping[str, str]) -> list[str]:
    """Return "variable: study's unit, site's unit" where both say one and they are not the same text."""
    return [
        f"{name} in {unit} instead of {units[name]}"
        for name, unit in study.units.items()
        if name in units and units[name].strip() != unit.strip()
    ]


def kind_differences(study: Study, site: str, own: Mapping[str, Kind]) -> list[str]:
    """Return in words where a study and a site mean other kinds or levels of a variable that the site may hold.

    Both may leave open what numbers are; but levels with names have to be declared by both, in one order, since nothing in a
    sum tells which of them is the first.
    """
    found = []
    may_lack = study.some_variables_may_be_missing and not study.held_by
    for name in study.variables_of(site):
        theirs, ours = study.kinds.get(name), own.get(name)
        if theirs == ours or (None in (theirs, ours) and not _has_names(theirs or ours)):
            continue
        if ours is None and may_lack:
            continue
        found.append(f"{name}: {_in_words(theirs)} in the study, {_in_words(ours)} here")
    return found


def _has_names(kind: Kind | None) -> bool:
    """Whether levels are called otherwise than by their positions."""
    return kind is not None and kind.levels != tuple(map(str, range(kind.n_levels)))


def _in_words(kind: Kind | None) -> str:
    if kind is None:
        return "not declared"
    return f"{kind.name} ({', '.join(kind.levels)})" if kind.levels else kind.name


def announcement(study: Study, variables: Sequence[str]) -> str:
    """Return what a study will do here, the end of a line for the people at the site."""
    how = "secure aggregation" if study.privacy.secure_aggregation else "plain sums"
    noise = "" if study.privacy.epsilon is None else f", epsilon {study.privacy.epsilon:g}"
    return (
        f"method {' and '.join(study.methods)} ({study.goal}), "
        f"{len(variables)} variables ({', '.join(variables[:8])}"
        f"{', ...' if len(variables) > 8 else ''}), {len(study.sites)} sites, {how}{noise}."
    )


def greeted(request: Request | None) -> Study | None:
    """Return the study of a greeting, if it is one."""
    if request is None or request.kind != "hello":
        return None
    try:
        return study_from_json(str(request.meta.get("study")))
    except FeddbnError:
        return None
