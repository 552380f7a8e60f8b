"""Who takes part in a federation and where its server listens, whichever engine carries it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from feddbn.errors import ParameterError

__all__ = ["FederationPlan"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True)
class FederationPlan:
    """Who takes part and where the server listens."""

    name: str
    server: str
    sites: tuple[str, ...]
    port: int = 8002
    admin_port: int = 8003
    admin: str = "lead@example.org"
    organisation: str = "feddbn"
    valid_days: int = 360

    def __post_init__(self) -> None:
        for what, value in (("name", self.name), *(("sites", site) for site in self.sites)):
            if not _NAME.fullmatch(value):
                raise ParameterError(
                    f"{what} has {value!r}; use letters, digits, '-' and '_', a letter or digit first."
                )
        if not _HOST.fullmatch(self.server):
            raise ParameterError(f"server has {self.server!r}; give the host name that the sites can reach.")
        twice = sorted({site for site in self.sites if self.sites.count(site) > 1})
        if twice or not self.sites:
            said = f"sites has {twice[0]!r} twice" if twice else "sites is empty"
            raise ParameterError(f"{said}; give at least one name and no name twice.")
        if self.server in self.sites or "server" in self.sites:
            raise ParameterError("a site cannot have the server's name.")
        if not re.fullmatch(r"[^@\s]+@[^@\s]+", self.admin):
            raise ParameterError(f"lead must look like an e-mail address, got {self.admin!r}.")
        for what, port in (("port", self.port), ("admin_port", self.admin_port)):
            if not 0 < port < 65536:
                raise ParameterError(f"{what} must be between 1 and 65535, got {port}.")
