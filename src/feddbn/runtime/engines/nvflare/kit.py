"""Start-up kits for an NVFlare federation with safe settings, made by `nvflare provision`, and what can be checked of one.

What a kit gets beyond NVFlare's defaults, and why: no job may bring code (``byoc`` none for every role), only
the classes a study needs are allowed, no log leaves a site, no shell commands for anybody, job and
snapshot stores in a named directory instead of a temporary one, certificates with which only the server can be taken
for the server, no rights for other users of the machine, and the settings file of this package.

*Certificates.* NVFlare's sites accept every certificate of the federation's authority from whom they take for the server;
the name in it is not compared. A certificate that says it is for clients is refused there by the TLS library itself.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from feddbn.errors import FederationError, FileError, MissingExtra, reading
from feddbn.federation.protocol.study import Study
from feddbn.findings import Finding
from feddbn.runtime.engines.interface import FederationPlan
from feddbn.runtime.site.kit_files import kits_below, open_to_others, owner_only, write_site_files


def for_clients_only(state: Path, certificates: Mapping[str, Path]) -> None:
    """Have the authority whose `state` this is sign the certificates of these participants anew, for clients only."""
    stored, key = _load(state), _authority_key(state)
    for name, path in certificates.items():
        pem = _signed_for_clients(x509.load_pem_x509_certificate(path.read_bytes()), key)
        path.write_bytes(pem)
        stored[name]["cert"] = pem.decode()
    state.write_text(json.dumps(stored), encoding="utf-8")


def _authority_key(state: Path) -> rsa.RSAPrivateKey:
    key = serialization.load_pem_private_key(_load(state)["root_pri_key"].encode(), None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise FileError(
            f"{state} holds no RSA key of an authority; make the kits with the version of nvflare that is named."
        )
    return key


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


ALLOWED_CLASSES = (
    "feddbn.runtime.nvflare_server.FeddbnServer",
    "feddbn.runtime.nvflare_site.FeddbnSite",
    "nvflare.collab.runtime.controller.CollabController",
    "nvflare.collab.runtime.executor.CollabExecutor",
    "feddbn.adapters.nvflare_kit.KitController",
    "feddbn.adapters.nvflare_kit.KitExecutor",
)

_BUILDERS = "nvflare.lighter.impl"
_TERMINAL = "ext://sys.stderr"

# A site whose server is just starting can miss the answer to its registration, and NVFlare then ends the site:
# it is started again. A participant that ends by itself without an error stays down.
_KEEP_RUNNING = r"""
stop() { [ -n "$!" ] && kill -TERM "$!" 2>/dev/null && wait "$!"; exit 0; }
trap stop INT TERM
while true; do
  if [ -n "$2" ]; then bash "$1" --once >/dev/null & else bash "$1" --once & fi
  wait "$!" && exit 0
  echo "feddbn: the process ended with an error; it is started again." >&2
  sleep "${FEDDBN_RESTART_S:-5}" &
  wait "$!"
done
"""

_KEY = """
This directory holds a private key: nobody but its owner may have it. Scripts in startup are the engine's own and are
not run by hand; they would leave a process that nobody stops.
"""

# NVFlare's own text tells people to run start.sh, which leaves a loop behind.
_README = {
    "server": """The server of a federation.

  feddbn start --kit {name}      runs it in the foreground until it is stopped (Ctrl-C, or systemd)
"""
    + _KEY,
    "site": """The site {name} of a federation.

1. Put the data into data/: CSV or Parquet files, one column per variable, one file per recording. What else can be said
   about them (columns with times and recordings, units) goes into local/feddbn_site.toml.
2. Read local/policy.toml: what this site allows. Everything else is refused.
3. feddbn site check --kit {name}                       says what is wrong, before anything leaves
   feddbn site check --kit {name} --study study.toml    says what this site would refuse of a study
4. feddbn start --kit {name}                            runs it in the foreground until it is stopped (Ctrl-C, or systemd)
5. feddbn site approve study.toml --kit {name}          shows a study in plain words and approves it; others are refused
   feddbn site log --kit {name}                         says who asked what, and what left

Runs, results, approvals and the audit log of what left are kept in state/.
"""
    + _KEY,
    "lead": """The kit of a federation's lead.

  feddbn study status --kit {name}                       which sites are connected, which runs there are
  feddbn study submit study.toml --kit {name} --wait     sends a study and fetches its result
"""
    + _KEY,
}


def _project(plan: FederationPlan) -> dict[str, Any]:
    """Return NVFlare's project file."""
    org = plan.organisation
    server: dict[str, Any] = {"name": plan.server, "type": "server", "org": org}
    server.update({"fed_learn_port": plan.port, "admin_port": plan.admin_port})
    clients = [_client(site, org) for site in plan.sites]
    admin = {"name": plan.admin, "type": "admin", "org": org, "role": "lead"}
    # What all versions do by themselves is not said: NVFlare 2.8 does not know the argument.
    days = {} if plan.valid_days == FederationPlan.valid_days else {"root_valid_days": plan.valid_days}
    builders = [
        {"path": f"{_BUILDERS}.workspace.WorkspaceBuilder"},
        {
            "path": f"{_BUILDERS}.static_file.StaticFileBuilder",
            "args": {"config_folder": "config", "scheme": "tcp"},
        },
        {"path": f"{_BUILDERS}.cert.CertBuilder", "args": days},
        {"path": f"{_BUILDERS}.signature.SignatureBuilder"},
    ]
    people = [server, *clients, admin]
    return {"api_version": 3, "name": plan.name, "participants": people, "builders": builders}


def _client(name: str, org: str) -> dict[str, Any]:
    return {"name": name, "type": "client", "org": org, "allow_log_streaming": False}


OLDEST = (2, 8)
"""The first version with a list of allowed classes."""


def has_calls() -> bool:
    """Whether the installed NVFlare lets a server call its sites; otherwise sites fetch messages as tasks."""
    return find_spec("nvflare.collab") is not None


def check_version() -> None:
    """Refuse an NVFlare without a list of allowed classes: whoever sends jobs could start any class that is installed."""
    try:
        import nvflare
    except ImportError:
        raise MissingExtra("nvflare", "nvflare") from None
    found = re.match(r"(\d+)\.(\d+)", str(nvflare.__version__))
    if found and (int(found[1]), int(found[2])) < OLDEST:
        raise FederationError(
            f"nvflare {nvflare.__version__} is installed, which cannot keep a job from starting any installed class; install "
            "nvflare 2.8 or later (pip install 'feddbn[nvflare]').",
            code="old-nvflare",
        )


def engine_command(*arguments: str) -> list[str]:
    """Return the command line of the `nvflare` tool that belongs to this Python."""
    check_version()
    return [sys.executable, "-c", "import sys; from nvflare.cli import main; sys.exit(main())", *arguments]


def make_kits(plan: FederationPlan, directory: Path) -> dict[str, Path]:
    """Provision and harden one kit per participant below ``directory/kits``; return participant -> kit.

    The project's certificate authority stays in ``directory/authority``: keep it, adding a site later needs
    it.
    """
    root = kits_below(directory)
    authority = root.with_name("authority")
    authority.mkdir(parents=True, exist_ok=True, mode=0o700)
    roles = {plan.server: "server", **dict.fromkeys(plan.sites, "site"), plan.admin: "lead"}
    return _provisioned(_project(plan), roles, root, authority, None)


def make_more_kits(names: Sequence[str], directory: Path, others: Path) -> dict[str, Path]:
    """Provision kits for some more sites, with certificates of the same authority; the others' stay as they are."""
    root = Path(directory).resolve() / "kits"
    authority = root.with_name("authority")
    with reading(f"the project {authority / 'project.json'}", "JSON"):
        project = _load(authority / "project.json")
        org = next(one["org"] for one in project["participants"] if one["type"] == "server")
    project["participants"] += [_client(name, org) for name in names]
    return _provisioned(project, dict.fromkeys(names, "site"), root, authority, others)


def _provisioned(
    project: dict[str, Any], roles: Mapping[str, str], root: Path, authority: Path, others: Path | None
) -> dict[str, Path]:
    """Have NVFlare make what belongs to a project, and take over and harden the kits of those in `roles`."""
    # This needs a package that comes with NVFlare.
    command = engine_command("provision")

    # Every JSON text is YAML, so that no YAML writer is needed.
    _write(authority / "project.yml", project)
    home = {"HOME": str(authority), "PATH": os.environ.get("PATH", "")}
    command += ["-p", str(authority / "project.yml"), "-w", str(authority / "workspace")]
    if others is not None and _asks_before_more():
        command.append("--force")
    place = authority / "workspace" / project["name"]
    before = set(place.glob("prod_*"))
    done = subprocess.run(
        command, cwd=authority, env={**os.environ, **home}, capture_output=True, text=True, check=False
    )
    made = set(place.glob("prod_*")) - before
    if done.returncode != 0 or not made:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no message"]
        raise FileError(f"nvflare provision failed: {last[0]}")
    _write(authority / "project.json", project)
    kits = {name: root / name for name in roles}
    root.mkdir(mode=0o700, exist_ok=True)
    for name, kit in kits.items():
        shutil.copytree(max(made) / name, kit)
        kit.chmod(0o700)
    clients = {
        name: kits[name] / "startup" / "client.crt" for name, role in roles.items() if role != "server"
    }
    for_clients_only(place / "state" / "cert.json", clients)
    for name, role in roles.items():
        if role == "server":
            _harden_server(kits[name])
        elif role == "site":
            _harden_site(kits[name])
    sites = {name: kits[name] / "local" for name, role in roles.items() if role == "site"}
    peers = write_site_files(sites, above="../", others=others)
    (authority / "peers.toml").write_text(peers, encoding="utf-8")
    for name, kit in kits.items():
        for old in (kit / "readme.txt", kit / "startup" / "readme.txt"):
            old.unlink(missing_ok=True)
        (kit / "readme.txt").write_text(_README[roles[name]].format(name=name), encoding="utf-8")
        owner_only(kit)
    owner_only(authority)
    return kits


def _asks_before_more() -> bool:
    """Whether the installed NVFlare asks before it adds to a project; then it has an option for not asking."""
    found = find_spec("nvflare.lighter.provision")
    return (
        found is not None
        and found.origin is not None
        and '"--force"' in Path(found.origin).read_text(encoding="utf-8")
    )


def sign_note(statement: bytes, directory: Path) -> bytes:
    """Sign with the key of the federation's certificate authority."""
    project = _load(directory / "authority" / "project.json")["name"]
    state = directory / "authority" / "workspace" / project / "state" / "cert.json"
    with reading(f"the authority's key {state}", "JSON"):
        return _authority_key(state).sign(statement, _PADDING, hashes.SHA256())


def has_signed(kit: Path, statement: bytes, signature: bytes) -> bool:
    """Whether the certificate authority that a kit trusts has signed this."""
    path = Path(kit) / "startup" / "rootCA.pem"
    with reading(f"the certificate {path}", "PEM"):
        key = x509.load_pem_x509_certificate(path.read_bytes()).public_key()
    try:
        assert isinstance(key, rsa.RSAPublicKey)
        key.verify(signature, statement, _PADDING, hashes.SHA256())
    except InvalidSignature:
        return False
    return True


_PADDING = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.MAX_LENGTH)


def _load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _write(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def _permissions(local: Path) -> None:
    """Everybody may see and submit; nobody may bring code or open a shell."""
    values = _load(local / "authorization.json.default")
    lead = {
        "submit_job": "any",
        "clone_job": "none",
        "manage_job": "n:submitter",
        "download_job": "n:submitter",
    }
    lead.update({"view": "any", "operate": "none", "shell_commands": "none", "byoc": "none"})
    # A study tells its progress to whoever may see the job; it holds nothing but counts and residuals.
    lead.update({"server-predeployed-flwr": "none", "app_command": "any"})
    nothing = {**dict.fromkeys(lead, "none"), "view": "any"}
    values["permissions"] = {
        "project_admin": lead,
        "lead": lead,
        "org_admin": nothing,
        "member": {"view": "any"},
    }
    _write(local / "authorization.json", values)


def _harden_server(kit: Path) -> None:
    local = kit / "local"
    values = _load(local / "resources.json.default")
    values.update(class_allow_list=list(ALLOWED_CLASSES), class_list_enforcement_mode="enforce")
    values["components"] = [c for c in values["components"] if c["id"] != "log_receiver"]
    _start_warm(values, "feddbn.runtime.nvflare_launcher.WarmServerLauncher")
    values["components"].append({"id": "memory_tidy", "path": "feddbn.runtime.nvflare_tidy.MemoryTidy"})
    _write(local / "resources.json", values)
    place_stores(kit)
    _permissions(local)
    _quieten(local)
    (local / "feddbn_server.toml").write_text('runs = "../runs"\nkeep_days = 30\n', encoding="utf-8")


def place_stores(kit: Path) -> None:
    """Point a server's stores of jobs and snapshots below its kit, wherever it was unpacked; NVFlare wants whole paths."""
    path = Path(kit) / "local" / "resources.json"
    store = Path(kit).resolve() / "store"
    try:
        values = _load(path)
        values["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(store / "snapshots")
        for component in values["components"]:
            if component["id"] == "job_manager":
                component["args"]["uri_root"] = str(store / "jobs")
        is_as_it_was = values == _load(path)
    except (OSError, ValueError, KeyError, TypeError):
        raise FileError(f"{path} is missing or damaged; unpack the kit again.", code="damaged-kit") from None
    if not is_as_it_was:
        _write(path, values)


def _quieten(local: Path) -> None:
    """NVFlare writes two lines per call to three files; a study makes thousands of calls, our events say the same."""
    values = _load(local / "log_config.json.default")
    values["loggers"]["nvflare.collab.runtime.cell_dispatcher"] = {"level": "WARNING"}
    _write(local / "log_config.json", values)


def _say_studies_only(local: Path) -> None:
    """A site's terminal tells which study began and ended, what was refused, and warnings; log.txt has all the rest."""
    values = _load(local / "log_config.json.default")
    values["filters"]["studies"] = {"()": "feddbn.runtime.nvflare_terminal.StudiesOnly"}
    values["formatters"]["plain"] = {"format": "%(asctime)s  %(message)s", "datefmt": "%Y-%m-%d %H:%M:%S"}
    terminal = {"filters": ["studies"], "formatter": "plain", "stream": _TERMINAL}
    values["handlers"]["consoleHandler"].update(terminal)
    _write(local / "log_config.json", values)


def _harden_site(kit: Path) -> None:
    local = kit / "local"
    values = _load(local / "resources.json.default")
    values.update(class_allow_list=list(ALLOWED_CLASSES), class_list_enforcement_mode="enforce")
    values["allow_log_streaming"] = False
    values["components"] = [c for c in values["components"] if c["id"] != "site_log_streamer"]
    _start_warm(values, "feddbn.runtime.nvflare_launcher.WarmSiteLauncher")
    _write(local / "resources.json", values)
    _permissions(local)
    _say_studies_only(local)


def _start_warm(values: dict[str, Any], launcher: str) -> None:
    """Jobs are forked from a process that has imported what they need; a fresh interpreter takes 4 CPU seconds."""
    for component in values["components"]:
        if component["id"] == "process_launcher":
            component["path"] = launcher


def start_environment() -> dict[str, str]:
    """Return the environment in which a kit is started.

    The kit's script calls ``python3``: it must be this one. A job whose site has died is held open for 15
    minutes by default after the study itself has ended; 15 seconds are enough for a site that lives. On a busy
    machine a job's processes start slowly: a site waits longer than NVFlare's 60 s for the server's, and longer
    than 5 s for its own connection, before the whole job fails. The server answers with many threads, and glibc keeps
    freed memory apart for each of them unless told not to. Importing pandas imports pyarrow, whose allocator would start
    a thread, and jobs can be forked only from a process that has none.
    """
    here = str(Path(sys.executable).parent)
    values = {**os.environ, "PATH": f"{here}{os.pathsep}{os.environ.get('PATH', '')}"}
    values.setdefault("NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT", "15")
    values.setdefault("NVFLARE_MAX_RUNNER_SYNC_TIMEOUT", "180")
    values.setdefault("NVFLARE_CELL_WAIT_TIMEOUT", "30")
    values.setdefault("OMP_NUM_THREADS", "1")
    values.setdefault("MALLOC_ARENA_MAX", "2")
    values.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    return values


def start_command(kit: Path) -> Sequence[str]:
    """Return the command that runs a server or site kit in the foreground and starts it again after a failure."""
    script = Path(kit) / "startup" / "sub_start.sh"
    if not script.exists():
        raise FileError(
            f"{kit} is not the kit of a server or a site: startup/sub_start.sh is missing.", code="no-kit"
        )
    settings = script.parents[1] / "local" / "log_config.json"
    # What the kit's scripts print on the way is the engine's business, if the log has a stream of its own.
    is_quiet = settings.exists() and _TERMINAL in settings.read_text(encoding="utf-8")
    return ["bash", "-c", _KEEP_RUNNING, "feddbn", str(script), "quiet" if is_quiet else ""]


EXPIRY_WARNING_DAYS = 30


def check_site(kit: Path, study: Study | None = None, timeout_s: float = 10.0) -> list[Finding]:
    """Return the findings for a site kit, and whether it could join `study` if one is given."""
    # Imported here: it reads data, which a lead's session never does.
    from feddbn.runtime.site.check import check_settings

    kit = Path(kit)
    found = check_settings(kit / "local" / "feddbn_site.toml", study)
    site = next((one.values["site"] for one in found if one.code == "settings-read"), None)
    return [
        *found,
        *_check_rights(kit),
        _check_files(kit),
        *_check_certificate(kit, site),
        _check_server(kit, timeout_s),
    ]


def _check_rights(kit: Path) -> list[Finding]:
    """A kit whose local files were loosened by hand must not go unnoticed."""
    try:
        rights = json.loads((kit / "local" / "authorization.json").read_text())["permissions"]
        resources = json.loads((kit / "local" / "resources.json").read_text())
    except (OSError, ValueError, KeyError):
        return [
            Finding("rights-unreadable", "error", about=("local/authorization.json or local/resources.json",))
        ]
    loose = tuple(
        role for role, right in rights.items() if right == "any" or right.get("byoc", "none") != "none"
    )
    more = tuple(sorted(set(resources.get("class_allow_list", ["*"])) - set(ALLOWED_CLASSES)))
    if resources.get("class_list_enforcement_mode", "enforce") != "enforce":
        more = (*more, "any class")
    streams = bool(resources.get("allow_log_streaming", True))
    return [
        Finding("code-allowed", "error", about=loose) if loose else Finding("code-refused", "good"),
        Finding("classes-more", "error", about=more) if more else Finding("classes-ours", "good"),
        Finding("logs-sent", "error") if streams else Finding("logs-stay", "good"),
    ]


def _check_files(kit: Path) -> Finding:
    """Private keys that other users of the machine can read are theirs, too."""
    readable = tuple(open_to_others(kit))
    if readable:
        return Finding("keys-readable", "error", {"kit": str(kit)}, readable)
    return Finding("keys-private", "good")


def _check_certificate(kit: Path, site: str | None) -> list[Finding]:
    try:
        certificate = x509.load_pem_x509_certificate((kit / "startup" / "client.crt").read_bytes())
    except (OSError, ValueError):
        return [Finding("certificate-unreadable", "error")]
    now = datetime.now(UTC)
    values = {"now": now.strftime("%Y-%m-%d %H:%M:%S UTC")}
    clock = Finding("clock-right", "good", values)
    if certificate.not_valid_before_utc > now:
        clock = Finding("clock-behind", "error", values)
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    named = str(names[0].value) if names else ""
    if site is not None and named != site:
        return [clock, Finding("certificate-other", "error", {"named": named, "site": site})]
    days = (certificate.not_valid_after_utc - now).days
    return [clock, Finding("certificate", "good" if days > EXPIRY_WARNING_DAYS else "error", {"days": days})]


def _check_server(kit: Path, timeout_s: float) -> Finding:
    """Open a mutually authenticated connection to the server, as the site itself will."""
    startup = kit / "startup"
    try:
        server = json.loads((startup / "fed_client.json").read_text())["servers"][0]
        target = server["service"]["target"]
        host, port = target.rsplit(":", 1)
        wanted = str(server.get("identity") or host)
    except (OSError, ValueError, KeyError, IndexError, AttributeError):
        return Finding("server-unnamed", "error")
    values = {"target": target, "server": wanted}
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
                return Finding(
                    "server-posed", "error", values, tuple(map(repr, sorted(names))) or ("nobody",)
                )
            return Finding("server-answers", "good", {**values, "protocol": secure.version()})
    except ssl.SSLError as error:
        return Finding("server-other", "error", {**values, "why": error.reason})
    except OSError as error:
        return Finding("server-unreachable", "error", {**values, "why": error.strerror or "timeout"})


def _peer_names(secure: ssl.SSLSocket) -> set[str]:
    """Return the names in the certificate of the other end."""
    said = secure.getpeercert() or {}
    subject: Any = said.get("subject", ())
    names = {str(value) for part in subject for key, value in part if key == "commonName"}
    alternatives: Any = said.get("subjectAltName", ())
    return names | {str(value) for _, value in alternatives}
