"""Files for a Flower federation: certificates, site keys, settings and the app of a study."""

from __future__ import annotations

import datetime
import ipaddress
import json
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from feddbn.errors import FileError
from feddbn.federation.protocol.messages import check_run_id
from feddbn.federation.protocol.study import Study
from feddbn.runtime.deployed.kit_files import kits_below, write_secret, write_site_files
from feddbn.runtime.engines.plan import FederationPlan

__all__ = ["make_flower_kits", "write_flower_app"]


def make_flower_kits(plan: FederationPlan, directory: Path) -> dict[str, Path]:
    """Write certificates for the server and a key pair per site below ``directory/kits``; return name -> kit.

    Site keys are elliptic-curve keys in OpenSSH format: Flower refuses others.
    """
    server, sites, valid_days = plan.server, plan.sites, plan.valid_days
    root = kits_below(directory)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate(
        "feddbn authority", authority_key.public_key(), None, authority_key, valid_days, server
    )
    server_key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate(server, server_key.public_key(), authority, authority_key, valid_days, server)
    ca = authority.public_bytes(serialization.Encoding.PEM)
    kits: dict[str, Path] = {}
    for name in (server, *sites):
        kit = root / name
        kit.mkdir(parents=True, mode=0o700)
        (kit / "ca.pem").write_bytes(ca)
        kits[name] = kit
    (kits[server] / "server.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    write_secret(kits[server] / "server.key", _private(server_key, serialization.PrivateFormat.PKCS8))
    (kits[server] / "feddbn_server.toml").write_text('runs = "runs"\nkeep_days = 30\n', encoding="utf-8")
    for site in sites:
        key = ec.generate_private_key(ec.SECP256R1())
        write_secret(kits[site] / "site.key", _private(key, serialization.PrivateFormat.OpenSSH))
        public = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        (kits[site] / "site.key.pub").write_bytes(public + b"\n")
    write_site_files({site: kits[site] for site in sites})
    return kits


def write_flower_app(study: Study, run_id: str, directory: Path) -> Path:
    """Write the Flower app of a study: a project file that names installed modules; no code travels."""
    app = Path(directory) / check_run_id(run_id)
    try:
        app.mkdir(parents=True)
    except FileExistsError:
        raise FileError(f"{app} exists; to resume a run, run the same app again.") from None
    # JSON strings are TOML basic strings.
    lines = [
        "[project]",
        'name = "feddbn-study"',
        'version = "1.0.0"',
        "dependencies = []",
        "[tool.flwr.app]",
        'publisher = "feddbn"',
        "[tool.flwr.app.components]",
        'serverapp = "feddbn.runtime.flower_server:app"',
        'clientapp = "feddbn.runtime.flower_site:app"',
        "[tool.flwr.app.config]",
        f"study = {json.dumps(study.to_json())}",
        f"run-id = {json.dumps(run_id)}",
    ]
    (app / "pyproject.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return app


def _private(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _certificate(
    name: str,
    key: ec.EllipticCurvePublicKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
    valid_days: int,
    host: str,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=valid_days))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer is not None:
        names: list[x509.GeneralName] = [x509.DNSName(host), x509.DNSName("localhost")]
        names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())
