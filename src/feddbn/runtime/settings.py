"""What an administrator writes on a site's or server's own machine; it never travels with a study.

``feddbn_site.toml`` and ``feddbn_server.toml`` are TOML; relative paths are relative to the file; unknown
keys are errors. `programs` names the installed modules that register methods and site programs: a study can
only name what these modules registered, and no message can add to the list.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, field_validator

from feddbn.data.layout import declared_kinds
from feddbn.errors import ParameterError, reading
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
        A file, or a directory of files, one recording each.
    state
        Directory for runs, results and logs; needs space for about ten times the statistics.
    variables
        Columns to use, in order; empty means all numeric columns.
    series, time, label
        Names of the columns that tell recordings apart, order the rows and label them, or empty.
    freq, sort, jitter, day_first
        How times are read, as in `feddbn.data.read_sites`.
    units
        Variable -> the unit it is measured in here, in words; compared with what a study declares.
    kinds
        Variable -> its kind or levels, as in `feddbn.data.read_sites`; compared with what a study declares.
    policy
        The site's policy file, or empty for the default policy.
    max_lags
        Studies with more lags are refused.
    identity, peers
        The site's secret signing key and the public keys of all sites, for secure aggregation.
    device
        Who multiplies large matrices here: "cpu", "auto" or "cuda", as in `FDBNL`; studies do not see it.
    """

    programs: tuple[str, ...] = ("feddbn.federation.programs",)
    name: str = Field(min_length=1)
    data: Path
    state: Path
    variables: tuple[str, ...] = ()
    series: str = ""
    time: str = ""
    label: str = ""
    freq: int | float | str | None = None
    sort: bool = False
    jitter: float | None = None
    day_first: bool | None = None
    units: dict[str, str] = Field(default_factory=dict)
    kinds: dict[str, Any] = Field(default_factory=dict)
    policy: Path | None = None
    max_lags: int = Field(default=10, ge=0)
    identity: Path | None = None
    peers: Path | None = None
    device: Literal["cpu", "auto", "cuda"] = "cpu"

    @field_validator("kinds")
    @classmethod
    def _known_kinds(cls, kinds: dict[str, Any]) -> dict[str, Any]:
        declared_kinds(kinds)
        return kinds

    @property
    def reading(self) -> dict[str, Any]:
        """The arguments of `feddbn.data.read_sites` that these settings give."""
        named = {"series": self.series, "time": self.time, "label": self.label, "variables": self.variables}
        times = {"freq": self.freq, "sort": self.sort, "jitter": self.jitter, "day_first": self.day_first}
        return {key: value or None for key, value in named.items()} | times | {"kinds": self.kinds or None}


class ServerSettings(_Settings):
    """The server: where journals and results of runs are kept."""

    programs: tuple[str, ...] = ("feddbn.analysis.studies",)
    runs: Path


def _read(path: Path, kind: type[S], paths: tuple[str, ...]) -> S:
    def beside(values: dict[str, Any]) -> None:
        for key in paths:
            if isinstance(values.get(key), str) and values[key]:
                values[key] = (Path(path).parent / values[key]).resolve()

    return read_table(kind, _text(path, "settings file"), f"the settings file {path}", beside)


def read_site_settings(path: Path) -> SiteSettings:
    """Return a site's settings."""
    return _read(path, SiteSettings, ("data", "state", "policy", "identity", "peers"))


def read_server_settings(path: Path) -> ServerSettings:
    """Return the server's settings."""
    return _read(path, ServerSettings, ("runs",))


_MOVED = {"feddbn.methods.studies": "feddbn.analysis.studies"}
"""Modules that settings of earlier versions name, and where they are now."""


def load_programs(modules: tuple[str, ...]) -> None:
    """Import the modules that register methods and site programs.

    Late binding by name: the runtime layer lies below the methods and may not import them.
    """
    for module in modules:
        try:
            importlib.import_module(_MOVED.get(module, module))
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
