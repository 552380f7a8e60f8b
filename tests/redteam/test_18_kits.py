"""Kits: who poses as the server with a site's certificate, who uses another site's kit, who reads keys on the machine."""

import json
import os
import socket
import ssl
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("nvflare")
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID
from nvflare.fuel.f3.drivers.net_utils import get_ssl_context

from feddbn.runtime.engines.interface import FederationPlan
from feddbn.runtime.engines.nvflare.kit import _check_certificate, _check_files, _check_server, make_kits
from feddbn.runtime.site.kit_files import open_to_others, owner_only


@pytest.fixture(scope="module")
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def federation(tmp_path_factory, port):
    place = tmp_path_factory.mktemp("federation")
    old = os.umask(0o022)
    try:
        plan = FederationPlan("demo", "localhost", ("north", "south"), port, port + 1, "lead@example.org")
        make_kits(plan, place / "fed")
    finally:
        os.umask(old)
    return place / "fed"


@pytest.fixture
def posing(federation, port):
    """Listens where sites expect their server, with a certificate and key of one's choice."""
    listeners = []

    def listen(certificate, key):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(federation / "kits" / "north" / "startup" / "rootCA.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        listener = socket.create_server(("127.0.0.1", port))
        listeners.append(listener)

        def answer():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                try:
                    with connection, context.wrap_socket(connection, server_side=True) as secure:
                        secure.settimeout(5.0)
                        secure.recv(1)
                except OSError:
                    continue

        threading.Thread(target=answer, daemon=True).start()

    yield listen
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def connects(kit, port):
    """Whether NVFlare's own client, with a site's kit, accepts who answers."""
    startup = kit / "startup"
    files = {"ca_cert": "rootCA.pem", "client_cert": "client.crt", "client_key": "client.key"}
    parameters = {
        "scheme": "stcp",
        "secure": True,
        **{key: str(startup / name) for key, name in files.items()},
    }
    context = get_ssl_context(parameters, False)
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=300) as plain,
            context.wrap_socket(plain, server_hostname="localhost"),
        ):
            return True
    except ssl.SSLError:
        return False


def without_purpose(federation, tmp_path):
    """South's certificate as kits of the previous version have it: nothing says that it is for clients."""
    state = next((federation / "authority" / "workspace" / "demo" / "state").glob("cert.json"))
    key = serialization.load_pem_private_key(json.loads(state.read_text())["root_pri_key"].encode(), None)
    old = x509.load_pem_x509_certificate(
        (federation / "kits" / "south" / "startup" / "client.crt").read_bytes()
    )
    builder = x509.CertificateBuilder(old.issuer, old.subject, old.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(old.not_valid_before_utc).not_valid_after(old.not_valid_after_utc)
    for extension in old.extensions:
        if not isinstance(extension.value, x509.ExtendedKeyUsage):
            builder = builder.add_extension(extension.value, extension.critical)
    path = tmp_path / "previous.crt"
    path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return path


def test_the_real_server_is_accepted(federation, port, posing):
    startup = federation / "kits" / "localhost" / "startup"
    posing(startup / "server.crt", startup / "server.key")
    north = federation / "kits" / "north"
    assert connects(north, port)
    found = _check_server(north, 10.0)
    assert (found.code, found.values["server"]) == ("server-answers", "localhost")


def test_a_site_that_poses_as_the_server_is_refused_by_the_transport_itself(federation, port, posing):
    south = federation / "kits" / "south" / "startup"
    posing(south / "client.crt", south / "client.key")
    north = federation / "kits" / "north"
    assert not connects(north, port)
    assert _check_server(north, 10.0).level == "error"


def test_with_certificates_of_earlier_kits_the_check_tells_who_poses_as_the_server(
    federation, port, posing, tmp_path
):
    south = federation / "kits" / "south" / "startup"
    posing(without_purpose(federation, tmp_path), south / "client.key")
    north = federation / "kits" / "north"
    # NVFlare does not look at the name.
    assert connects(north, port)
    found = _check_server(north, 10.0)
    assert (found.code, found.about) == ("server-posed", ("'south'",))


def test_every_certificate_but_the_servers_is_for_clients_and_of_the_authority(federation):
    root = x509.load_pem_x509_certificate((federation / "kits/north/startup/rootCA.pem").read_bytes())
    for name in ("north", "south", "lead@example.org"):
        path = federation / "kits" / name / "startup" / "client.crt"
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        certificate.verify_directly_issued_by(root)
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
        assert list(usage.value) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_the_check_refuses_a_kit_with_another_sites_certificate(federation, tmp_path):
    kit = tmp_path / "north"
    subprocess.run(["cp", "-r", federation / "kits" / "north", kit], check=True)
    for name in ("client.crt", "client.key"):
        (kit / "startup" / name).write_bytes((federation / "kits" / "south" / "startup" / name).read_bytes())
    _, found = _check_certificate(kit, "north")
    assert (found.code, found.values) == ("certificate-other", {"named": "south", "site": "north"})
    _, found = _check_certificate(federation / "kits" / "north", "north")
    assert (found.code, found.level) == ("certificate", "good")


def others(path):
    return stat.S_IMODE(path.lstat().st_mode) & 0o077


def test_nothing_in_kits_and_authority_is_for_other_users(federation):
    everything = [federation / "kits", federation / "authority"]
    everything += [path for top in list(everything) for path in top.rglob("*")]
    assert len(everything) > 50
    assert [path for path in everything if others(path)] == []
    assert os.access(federation / "kits" / "north" / "startup" / "sub_start.sh", os.X_OK)


def test_archives_made_as_the_guide_says_are_for_their_owner_and_unpack_so(federation, tmp_path):
    guide = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text()
    (step,) = [part.split("```")[0] for part in guide.split("```sh\n") if "tar -C federation/kits" in part]
    step = step.replace("server.example.org", "localhost").replace(" west", "")
    (tmp_path / "federation").symlink_to(federation)
    subprocess.run(["bash", "-c", f"umask 022; {step}"], cwd=tmp_path, check=True)
    archives = sorted(tmp_path.glob("*.tgz"))
    assert len(archives) == 4
    assert [path for path in archives if others(path)] == []
    subprocess.run(["bash", "-c", "umask 022; tar -xzf north.tgz"], cwd=tmp_path, check=True)
    assert open_to_others(tmp_path / "north") == []


def test_the_check_names_keys_that_others_can_read(federation, tmp_path):
    kit = tmp_path / "north"
    subprocess.run(["cp", "-r", federation / "kits" / "north", kit], check=True)
    assert _check_files(kit).code == "keys-private"
    (kit / "local" / "identity.key").chmod(0o640)
    found = _check_files(kit)
    assert (found.code, found.about) == ("keys-readable", ("local/identity.key",))
    owner_only(kit)
    assert _check_files(kit).code == "keys-private"


def test_what_a_site_writes_is_for_its_owner_only(tmp_path):
    program = (
        "import os, sys; from feddbn.runtime.engines.interface import Process; os.umask(0o022); "
        "Process(['touch', sys.argv[1]], dict(os.environ)).become()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
    subprocess.run([sys.executable, "-c", program, tmp_path / "state"], check=True, env=environment)
    assert others(tmp_path / "state") == 0
