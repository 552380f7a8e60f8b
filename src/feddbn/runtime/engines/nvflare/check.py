"""What can be checked at a site's NVFlare kit before it takes part: rights, certificate, clock, the way to the server."""

from __future__ import annotations

import json
import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path

from feddbn.federation.protocol.study import Study
from feddbn.runtime.deployed.check import Finding, check_settings
from feddbn.runtime.engines.nvflare.kit import ALLOWED_CLASSES

__all__ = ["check_site"]

EXPIRY_WARNING_DAYS = 30


def check_site(kit: Path, study: Study | None = None, timeout_s: float = 10.0) -> list[Finding]:
    """Return the findings for a site kit, and whether it could join `study` if one is given."""
    kit = Path(kit)
    findings = check_settings(kit / "local" / "feddbn_site.toml", study)
    return [*findings, *_check_rights(kit), *_check_certificate(kit), _check_server(kit, timeout_s)]


def _check_rights(kit: Path) -> list[Finding]:
    """A kit whose local files were loosened by hand must not go unnoticed."""
    try:
        rights = json.loads((kit / "local" / "authorization.json").read_text())["permissions"]
        resources = json.loads((kit / "local" / "resources.json").read_text())
    except (OSError, ValueError, KeyError):
        said = "local/authorization.json or local/resources.json is missing or unreadable"
        return [Finding("rights", False, said)]
    loose = [role for role, right in rights.items() if right == "any" or right.get("byoc", "none") != "none"]
    jobs = f"allowed for {', '.join(loose)}" if loose else "refused for every role"
    more = sorted(set(resources.get("class_allow_list", ["*"])) - set(ALLOWED_CLASSES))
    classes = f"also allows {', '.join(more)}" if more else "only those of feddbn"
    streaming = bool(resources.get("allow_log_streaming", True))
    logs = "are sent to the server" if streaming else "stay at this site"
    return [
        Finding("code in jobs", not loose, jobs),
        Finding("classes", not more, classes),
        Finding("logs", not streaming, logs),
    ]


def _check_certificate(kit: Path) -> list[Finding]:
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate((kit / "startup" / "client.crt").read_bytes())
    except (OSError, ValueError):
        return [Finding("certificate", False, "startup/client.crt is missing or unreadable")]
    now = datetime.now(UTC)
    days = (certificate.not_valid_after_utc - now).days
    clock = certificate.not_valid_before_utc <= now
    late = "" if clock else ", before the certificate begins"
    return [
        Finding("clock", clock, now.strftime("%Y-%m-%d %H:%M:%S UTC") + late),
        Finding("certificate", days > EXPIRY_WARNING_DAYS, f"valid for {days} more days"),
    ]


def _check_server(kit: Path, timeout_s: float) -> Finding:
    """Open a mutually authenticated connection to the server, as the site itself will."""
    startup = kit / "startup"
    try:
        servers = json.loads((startup / "fed_client.json").read_text())["servers"]
        target = servers[0]["service"]["target"]
        host, port = target.rsplit(":", 1)
    except (OSError, ValueError, KeyError, IndexError):
        return Finding("server", False, "startup/fed_client.json is missing or unreadable")
    try:
        context = ssl.create_default_context(cafile=str(startup / "rootCA.pem"))
        context.check_hostname = False
        context.load_cert_chain(str(startup / "client.crt"), str(startup / "client.key"))
        with (
            socket.create_connection((host, int(port)), timeout=timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            said = f"{target} answers with {secure.version()} and a certificate of this federation"
            return Finding("server", True, said)
    except ssl.SSLError as error:
        said = f"{target} answers, but not with this federation's certificate ({error.reason})"
    except OSError as error:
        said = f"{target} cannot be reached ({error.strerror or 'timeout'}); outbound TCP is needed"
    return Finding("server", False, said)
