"""What a site and a server agree on before any task: version, site, variables, units; names only, no data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from feddbn._version import __version__
from feddbn.errors import FeddbnError, SiteRefused
from feddbn.federation.protocol.messages import Request
from feddbn.federation.protocol.study import Study, study_from_json

__all__ = ["agree", "announcement", "chosen_variables", "greeted", "unit_differences"]


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


def announcement(study: Study, variables: Sequence[str]) -> str:
    """Return what a study will do here, in one line for the people at the site."""
    how = "secure aggregation" if study.privacy.secure_aggregation else "plain sums"
    noise = "" if study.privacy.epsilon is None else f", epsilon {study.privacy.epsilon:g}"
    return (
        f"study {study.name!r}, method {' and '.join(study.methods)} ({study.goal}), "
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
