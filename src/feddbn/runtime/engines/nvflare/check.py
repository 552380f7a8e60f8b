"""What can be checked at a site's NVFlare kit before it takes part: rights, certificate, clock, the way to the server."""

from __future__ import annotations

import json
import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from feddbn.errors import FeddbnError
from feddbn.federation.protocol.study import Study
from feddbn.runtime.deployed.check import Finding, check_settings
from feddbn.runtime.deployed.kit_files import open_to_others
from feddbn.runtime.deployed.settings import read_site_settings
from feddbn.runtime.engines.nvflare.kit import ALLOWED_CLASSES

__all__ = ["check_site"]

EXPIRY_WARNING_DAYS = 30


def check_site(kit: Path, study: Study | None = None, timeout_s: float = 10.0) -> list[Finding]:
    """Return the findings for a site kit, and whether it could join `study` if one is given."""
    kit = Path(kit)
    findings = check_settings(kit / "local" / "feddbn_site.toml", study)
    return [
        *findings,
        *_check_rights(kit),
        _check_files(kit),
        *_check_certificate(kit),
        _check_server(kit, timeout_s),
    ]


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


def _check_files(kit: Path) -> Finding:
    """Private keys that other users of the machine can read are theirs, too."""
    readable = open_to_others(kit)
    if readable:
        said = f"others can read {', '.join(readable)}; run `chmod -R go= {kit}`, and ask for a new kit if it may be too late"
        return Finding("private keys", False, said)
    return Finding("private keys", True, "only their owner can read them")


def _check_certificate(kit: Path) -> list[Finding]:
    from cryptography import x509

    from feddbn.runtime.engines.nvflare.certificates import name_in

    try:
        certificate = x509.load_pem_x509_certificate((kit / "startup" / "client.crt").read_bytes())
    except (OSError, ValueError):
        return [Finding("certificate", False, "startup/client.crt is missing or unreadable")]
    now = datetime.now(UTC)
    days = (certificate.not_valid_after_utc - now).days
    clock = certificate.not_valid_before_utc <= now
    late = "" if clock else ", before the certificate begins"
    said = Finding("certificate", days > EXPIRY_WARNING_DAYS, f"valid for {days} more days")
    own, named = _site_name(kit), name_in(certificate)
    if own is not None and named != own:
        text = f"startup/client.crt is that of {named!r}, but this site is {own!r}; use the kit that was made for it"
        said = Finding("certificate", False, text)
    return [Finding("clock", clock, now.strftime("%Y-%m-%d %H:%M:%S UTC") + late), said]


def _site_name(kit: Path) -> str | None:
    try:
        return read_site_settings(kit / "local" / "feddbn_site.toml").name
    except FeddbnError:
        # What is wrong with the settings is a finding of its own.
        return None


def _check_server(kit: Path, timeout_s: float) -> Finding:
    """Open a mutually authenticated connection to the server, as the site itself will."""
    startup = kit / "startup"
    try:
        server = json.loads((startup / "fed_client.json").read_text())["servers"][0]
        target = server["service"]["target"]
        host, port = target.rsplit(":", 1)
        wanted = str(server.get("identity") or host)
    except (OSError, ValueError, KeyError, IndexError, AttributeError):
        return Finding("server", False, "startup/fed_client.json is missing or unreadable")
    try:
        context = ssl.create_default_context(cafile=str(startup / "rootCA.pem"))
        context.check_hostname = False
        context.load_cert_chain(str(startup / "client.crt"), str(startup / "client.key"))
        with (
            socket.create_connection((host, int(port)), timeout=timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            names = _peer_names(secure)
            if wanted not in names:
                shown = ", ".join(map(repr, sorted(names))) or "nobody"
                said = f"{target} answers with the certificate of {shown}, not of {wanted!r}: somebody poses as the server"
                return Finding("server", False, said)
            said = f"{target} answers with {secure.version()} and the certificate of {wanted!r} in this federation"
            return Finding("server", True, said)
    except ssl.SSLError as error:
        said = f"{target} answers, but not with this federation's certificate ({error.reason})"
    except OSError as error:
        said = f"{target} cannot be reached ({error.strerror or 'timeout'}); outbound TCP is needed"
    return Finding("server", False, said)


def _peer_names(secure: ssl.SSLSocket) -> set[str]:
    """Return the names in the certificate of the other end."""
    said = secure.getpeercert() or {}
    subject: Any = said.get("subject", ())
    names = {str(value) for part in subject for key, value in part if key == "commonName"}
    alternatives: Any = said.get("subjectAltName", ())
    return names | {str(value) for _, value in alternatives}
