"""What an administrator writes on a site's own machine; it never travels with a study.

``feddbn_site.toml`` is TOML; relative paths are relative to the file; unknown keys are errors.
`programs` names the installed modules that register methods and site programs: a study can only name
what these modules registered, and no message can add to the list.
"""

from __future__ import annotations

import importlib
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, InstanceOf, model_validator

from feddbn.data import SqlTable
from feddbn.data.described import described, located
from feddbn.data.layout import Layout
from feddbn.errors import Given, ParameterError, reading
from feddbn.findings import Finding
from feddbn.privacy.policy import SitePolicy, Table, policy_from_toml, read_table

S = TypeVar("S", bound="_Settings")


class _Settings(Table):
    keep_days: float = Field(default=30.0, gt=0)
    max_message_mb: int = Field(default=64, ge=1)


class SiteSettings(_Settings):
    """One site: where its data and state are, and what it agrees to.

    Attributes
    ----------
    name
        The site's name in the federation.
    data
        A file, or a directory of files, one recording each; or the answer to a query, in the file
        ``data = {sql = "SELECT ...", database = "icu.duckdb"}``, as in `feddbn.data.SqlTable`; or a TOML file that says where
        data are and how they are read, which is then said here, too.
    state
        Directory for runs, results and logs; needs space for about ten times the statistics.
    layout
        How the table is read: in the file every field of `feddbn.Layout` but `site` and `missing` is a key of its own.
    policy
        The site's policy file, or empty for the default policy.
    max_lags
        Studies with more lags are refused.
    identity, peers
        The site's secret signing key and the public keys of all sites, for secure aggregation.
    """

    programs: tuple[str, ...] = ("feddbn.federation.programs",)
    name: str = Field(min_length=1)
    data: Path | InstanceOf[SqlTable]
    state: Path
    layout: InstanceOf[Layout] = Layout()
    policy: Path | None = None
    max_lags: int = Field(default=10, ge=0)
    identity: Path | None = None
    peers: Path | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_layout(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Put the keys that say how a table is read together; what is empty is not said."""
        of_layout = {one.name for one in fields(Layout)} - {"site", "missing"}
        said = {key: value for key, value in values.items() if key in of_layout and value not in ("", [], {})}
        rest = {key: value for key, value in values.items() if key not in of_layout}
        data, layout = described(values.get("data"), Layout.of(values.get("layout"), said))
        if layout.site is not None:
            raise ParameterError(
                f"{Given('site', layout.site)} is for a table of several sites; this is one of them."
            )
        return {**rest, **({} if data is None else {"data": data}), "layout": layout}

    @property
    def units(self) -> dict[str, str]:
        """Variable -> the unit it is read in, in words; compared with what a study declares."""
        return {name: change.to for name, change in self.layout.units.items() if change.to}


def _read(path: Path, kind: type[S], paths: tuple[str, ...]) -> S:
    def beside(values: dict[str, Any]) -> None:
        folder = Path(path).parent.resolve()
        if "data" in paths and "data" in values:
            values["data"] = located(values["data"], folder, f"the settings file {path}")
        for key in paths:
            if isinstance(values.get(key), str) and values[key]:
                values[key] = (folder / values[key]).resolve()

    return read_table(kind, _text(path, "settings file"), f"the settings file {path}", beside)


def read_site_settings(path: Path) -> SiteSettings:
    """Return a site's settings."""
    return _read(path, SiteSettings, ("data", "state", "policy", "identity", "peers"))


def load_programs(modules: tuple[str, ...]) -> None:
    """Import the modules that register methods and site programs.

    Late binding by name: the runtime layer lies below the methods and may not import them.
    """
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ParameterError(
                f"programs names the module {module!r}, which cannot be imported: {error}.", code="no-program"
            ) from None


def read_policy(path: Path | None) -> SitePolicy:
    """Return the policy in a file; without one, the strict default."""
    if path is None:
        return SitePolicy()
    return policy_from_toml(_text(path, "policy"))


def _text(path: Path, what: str) -> str:
    with reading(f"the {what} {path}"):
        return Path(path).read_text(encoding="utf-8")


def about_policy(policy: SitePolicy) -> Finding:
    """Return what a policy allows."""
    values = {
        "methods": list(policy.methods),
        "masks": policy.require_masking,
        "min_sites": policy.min_sites,
        "max_epsilon": policy.max_epsilon,
        "max_rounds": policy.max_rounds,
        "by_rule": policy.approve_by_rule,
    }
    return Finding("site-policy", "note", values)
