"""Certificates with which a site or a lead cannot pose as the server.

NVFlare's sites accept every certificate of the federation's authority from whom they take for the server; the name in it
is not compared. A certificate that says it is for clients is refused there by the TLS library itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from feddbn.errors import FileError

__all__ = ["for_clients_only", "name_in"]


def for_clients_only(state: Path, certificates: Mapping[str, Path]) -> None:
    """Have the authority whose `state` this is sign the certificates of these participants anew, for clients only."""
    stored = json.loads(state.read_text(encoding="utf-8"))
    key = serialization.load_pem_private_key(stored["root_pri_key"].encode(), None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise FileError(
            f"{state} holds no RSA key of an authority; make the kits with the version of nvflare that is named."
        )
    for name, path in certificates.items():
        pem = _signed_for_clients(x509.load_pem_x509_certificate(path.read_bytes()), key)
        path.write_bytes(pem)
        stored[name]["cert"] = pem.decode()
    state.write_text(json.dumps(stored), encoding="utf-8")


def _signed_for_clients(old: x509.Certificate, key: rsa.RSAPrivateKey) -> bytes:
    builder = (
        x509.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(old.issuer)
        .public_key(old.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(old.not_valid_before_utc)
        .not_valid_after(old.not_valid_after_utc)
    )
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=True)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def name_in(certificate: x509.Certificate) -> str:
    """Return whose certificate it is."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""
