"""The machines of a federation: ``feddbn federation init | try``, ``feddbn start``, ``feddbn console``.

Whose kit it is, a server's, a site's or a lead's, is in the kit; nobody has to say it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn.cli.options import Json
from feddbn.cli.terminal import print_json, print_table, remark, say, tell
from feddbn.errors import ParameterError
from feddbn.runtime.engines.interface import DEFAULT_ENGINE, Process, engine_names, engine_of
from feddbn.runtime.engines.interface import engine as find_engine

if TYPE_CHECKING:
    from feddbn.console.gate import Keys
    from feddbn.runtime.engines.local import LocalFederation

__all__ = ["console", "federation_app", "start"]

federation_app = typer.Typer(help="Set up a federation of sites on their own machines.", no_args_is_help=True)


@federation_app.command("init")
def init(
    directory: Annotated[
        Path,
        typer.Argument(help="New directory for the kits (one folder per participant) and the signing keys."),
    ],
    site: Annotated[list[str], typer.Option(help="Name of a site; repeat for each.")],
    server: Annotated[
        str,
        typer.Option(
            help="Host name under which sites reach the server; not used with --engine files.",
            show_default=False,
        ),
    ] = "",
    keeper: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a keeper: two keepers together open sums. Repeat for each. Only with --engine files.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the federation.")] = "feddbn",
    port: Annotated[int, typer.Option(help="Port the sites connect to.")] = 8002,
    admin_port: Annotated[int, typer.Option(help="Port for the lead, who submits studies.")] = 8003,
    lead: Annotated[
        str, typer.Option(help="E-mail address of the lead, who submits studies.")
    ] = "lead@example.org",
    engine: Annotated[
        str, typer.Option(help=f"How messages travel: {' or '.join(engine_names())}.")
    ] = DEFAULT_ENGINE,
    as_json: Json = False,
) -> None:
    """Write one kit per participant: a folder with certificates, safe settings and a start script."""
    from feddbn.runtime.engines.interface import NO_SERVER, FederationPlan

    found = find_engine(engine)
    if found.has_server != bool(server):
        how = "is missing; give the host name of the server" if found.has_server else "is not used"
        raise ParameterError(f"--server {how} with --engine {engine}.", code="server")
    if keeper and not found.has_keepers:
        raise ParameterError(
            f"--keeper is not used with --engine {engine}; use --engine files.", code="keeper"
        )
    plan = FederationPlan(
        name, server or NO_SERVER, tuple(site), port, admin_port, lead, keepers=tuple(keeper or ())
    )
    kits = found.make_kits(plan, directory)
    rows = [(participant, str(kit)) for participant, kit in kits.items()]
    if as_json:
        print_json({"federation": name, "kits": dict(rows)})
        return
    print_table(("participant", "kit"), rows, f"Federation {name!r}", n_text=2)
    say("Each kit holds a private key: hand it to its owner only.")
    say("Keep the authority directory offline: whoever has it can add sites.")


@federation_app.command("add")
def add(
    directory: Annotated[Path, typer.Argument(help="The directory of `feddbn federation init`.")],
    site: Annotated[list[str], typer.Option(help="Name of a new site; repeat for each.")],
    as_json: Json = False,
) -> None:
    """Add sites to a federation: write a kit for each, and a signed note for everybody else."""
    from feddbn.runtime.engines.growing import add_sites

    grown = add_sites(site, directory)
    rows = [(name, str(kit)) for name, kit in grown.kits.items()]
    if as_json:
        print_json({"kits": dict(rows), "note": str(grown.note)})
        return
    print_table(("new site", "kit"), rows, n_text=2)
    say("Each kit holds a private key: hand it to its owner only.")
    say(
        f"Send {grown.note} to everybody else; each runs `feddbn federation admit {grown.note.name} --kit KIT`."
    )
    if grown.authority:
        remark(f"It was signed with the key {grown.authority}.")


@federation_app.command("admit")
def admit(
    note: Annotated[Path, typer.Argument(help="The note on new sites, as `feddbn federation add` wrote it.")],
    kit: Annotated[Path, typer.Option("--kit", envvar="FEDDBN_KIT", help="The kit to add them to.")],
    authority: Annotated[
        str,
        typer.Option(
            help="First digits of the key that signed the note; only for kits without that key.",
            show_default=False,
        ),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Add new sites of the federation to a kit.

    Studies with these sites still need the owner's approval.
    """
    from feddbn.runtime.engines.growing import look_at_note

    found = look_at_note(note, kit, authority)
    n_known = len(found.known)
    told = {"known": n_known, "new": list(found.new)}
    if not found.new:
        tell(as_json, told, f"This kit already has all {n_known} sites of the note; nothing was changed.")
        return
    rows = [
        (name, "new" if name in found.new else "", key[:16]) for name, key in sorted(found.note.sites.items())
    ]
    if not as_json:
        print_table(("site", "", "key"), rows, f"Federation {found.note.federation!r}", n_text=3)
        say(f"The federation grows from {n_known} to {n_known + len(found.new)} sites.")
        say("The new sites take part only in studies that the owner of this site approves.")
    if not yes:
        typer.confirm(f"Admit {', '.join(found.new)}?", abort=True, err=True)
    found.take()
    tell(as_json, told, f"{kit} now has {', '.join(found.new)}.")


DEFAULT_PORT = 8764
Kit = Annotated[Path, typer.Option("--kit", envvar="FEDDBN_KIT", help="The kit of the server or of a site.")]


def start(kit: Kit) -> None:
    """Run a server, a site or a keeper until it is stopped; its kit says which it is."""
    engine = engine_of(kit)
    answers = engine.site_settings(kit).exists() or (kit / "feddbn_keeper.toml").exists()
    (engine.site_process if answers else engine.server_process)(kit).become()


def console(
    kit: Annotated[
        Path, typer.Option("--kit", envvar="FEDDBN_KIT", help="The kit of a site or of the lead.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for a lead's results; by default `results` in the kit."),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on this machine; 0 takes any free port.")
    ] = DEFAULT_PORT,
    host: Annotated[str, typer.Option(help="A loopback address; no other is accepted.")] = "127.0.0.1",
) -> None:
    """Show web pages for the owner of a site or for the lead, on this machine only.

    With a site's kit: waiting studies, approvals, the data check and the log. With the lead's kit: write, check and send a
    study; watch, stop and resume runs; read and compare results.
    """
    from feddbn.cli.study import check_study

    engine = engine_of(kit)
    with contextlib.ExitStack() as at_end:
        if engine.site_settings(kit).exists():

            def make(keys: Keys) -> Any:
                from feddbn.console.site_pages import site_app

                return site_app(kit, check_study, keys)

        else:
            session = engine.session(kit)

            def make(keys: Keys) -> Any:
                from feddbn.console.lead_pages import lead_app
                from feddbn.console.lead_results import LeadResults
                from feddbn.console.lead_watch import LeadWatch

                results = LeadResults(out or kit / "results", kit)
                watch = LeadWatch(session, results)
                at_end.callback(watch.stop)
                return lead_app(session, watch.start(), results, check_study, keys)

        _serve(make, host, port)


def _serve(make: Callable[[Keys], Any], host: str, port: int) -> None:
    from feddbn.console.gate import serve

    def tell(address: str) -> None:
        say(f"Open {address}")
        remark("Anybody with this address can decide for you: keep it secret. Ctrl-C closes the console.")

    try:
        serve(make, host, port, tell)
    except KeyboardInterrupt:
        remark("the console is closed.")


_SITES = ("north", "south", "west")
_RUN = "first-run"
_STUDY = """\
name = "try"
lead = "{lead}"
method = "{method}"
variables = [{variables}]
sites = [{sites}]

[about]
purpose = "to see how a federation works, with simulated data"
contact = "{lead}"
retention = "until this trial is deleted"

[parameters]
n_lags = 1

[privacy]
secure_aggregation = true
min_sites = {n_sites}

[attendance]
timeout_s = 60
when_missing = "wait"
max_wait_s = 120
"""


@federation_app.command("try")
def try_it(
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep",
            metavar="DIR",
            help="Keep all files in this new directory; by default they are deleted.",
            show_default=False,
        ),
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the report in a browser, and wait for Enter.")
    ] = True,
    console: Annotated[
        bool, typer.Option("--console", help="Also open the web consoles of the lead and of one site.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Another seed gives other simulated data.")] = 0,
    as_json: Json = False,
) -> None:
    """Try a federation on this machine: a server and three sites that approve and run a masked study.

    The sites hold simulated data and talk to the server over TLS on loopback, as they would between institutions. When it is
    over, or after Ctrl-C, all processes end and all files are deleted.
    """
    # What is said meanwhile is progress where a program reads along.
    quiet = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    with _ends_in_order(), _directory(keep) as root:
        with quiet:
            _try(root, seed, open_page and not as_json, console, is_kept=keep is not None)
        if as_json:
            result = json.loads((root / "result" / "result.json").read_text(encoding="utf-8"))
            print_json({"directory": None if keep is None else str(root), "result": result})


def _try(root: Path, seed: int, open_page: bool, console: bool, is_kept: bool) -> None:
    from feddbn.analysis.truth import write_truth
    from feddbn.cli.data import simulate_demo
    from feddbn.cli.learn import score
    from feddbn.cli.printed import print_result
    from feddbn.cli.study import submit
    from feddbn.cli.use import report
    from feddbn.results.result import Result
    from feddbn.runtime.engines.local import LocalFederation

    begun = time.monotonic()
    step = _Steps(6)
    drawn = simulate_demo(n_sites=len(_SITES), seed=seed)
    truth = drawn.truth
    step(f"Simulating {len(_SITES)} sites with {truth.d} variables each: {', '.join(_SITES)}.")
    write_truth(drawn, root / "truth.json")
    step("Making a kit for each participant: certificate, key, settings with safe defaults.")
    with LocalFederation(find_engine(), _SITES, root) as federation, _then_undisturbed():
        for site, recordings in zip(_SITES, drawn.sites.values(), strict=True):
            data = federation.kits[site] / "data"
            data.mkdir(mode=0o700)
            recordings[0].to_csv(data / "recording.csv", index=False)
        study = _write_study(root / "study.toml", federation.plan.admin, truth.variables)
        ports = f"ports {federation.plan.port} and {federation.plan.admin_port}"
        step(f"Starting the server and the sites on this machine ({ports}).")
        federation.start()
        federation.wait_until_up(arrived=lambda site: remark(f"      {site} is connected."))
        step("Each site's owner reads this study and approves it; other studies are refused.")
        _approve(study, federation)
        if console:
            _start_console(federation, open_page)
        step("Running the study with masks: the server can open only sums over all sites.")
        submit(study, federation.lead_kit, run=_RUN, wait=True, out=root / "result")
        step("Writing the report.")
        result = root / "result" / "result.json"
        page = root / "result" / "report.html"
        print_result(Result.load(result))
        score(root / "truth.json", result)
        report(result, page, truth=root / "truth.json", title="feddbn federation try")
        took = time.monotonic() - begun
        if open_page:
            _show(page, is_kept)
        elif console and sys.stdin.isatty():
            _wait_for_enter()
        remark("Stopping the server and the sites.")
    used = federation.seconds_used + time.process_time()
    remark(f"Time until the report: {took:.0f} s; processor time of all processes: {used:.0f} s.")
    if not is_kept:
        remark("All processes have ended; all files are deleted.")
    else:
        say(f"Kits, data, study, result and logs are in {root}.")
        kit = federation.lead_kit
        remark(f"Next steps: feddbn start --kit {federation.kits[federation.plan.server]}")
        remark(f"            feddbn start --kit {federation.kits[_SITES[0]]}   (and the others)")
        remark(f"            feddbn study status --kit {kit}")


class _Steps:
    """Says at which of so many steps we are."""

    def __init__(self, n_steps: int) -> None:
        self._n_steps, self._now = n_steps, 0

    def __call__(self, sentence: str) -> None:
        self._now += 1
        remark(f"[{self._now}/{self._n_steps}] {sentence}")


_ENDINGS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextlib.contextmanager
def _ends_in_order() -> Iterator[None]:
    """Treat a request to end and a closed terminal like Ctrl-C, so that nothing is left behind."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = {ending: signal.signal(ending, interrupt) for ending in _ENDINGS}
    try:
        yield
    except KeyboardInterrupt:
        remark("The federation and its run were stopped.")
        raise
    finally:
        for ending, handler in before.items():
            signal.signal(ending, handler)


@contextlib.contextmanager
def _then_undisturbed() -> Iterator[None]:
    """Let nothing interrupt what follows the block; whoever presses Ctrl-C twice leaves nothing behind either."""
    try:
        yield
    finally:
        for ending in _ENDINGS:
            signal.signal(ending, signal.SIG_IGN)


@contextlib.contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="feddbn-try-") as name:
            yield Path(name)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise ParameterError(
            f"--keep {str(keep)!r} exists and is not an empty directory; choose another name."
        )
    keep.mkdir(parents=True, exist_ok=True, mode=0o700)
    yield keep.resolve()


def _write_study(path: Path, lead: str, variables: tuple[str, ...]) -> Path:
    from feddbn.method_table import default_method

    def listed(names: tuple[str, ...]) -> str:
        return ", ".join(f'"{name}"' for name in names)

    text = _STUDY.format(
        lead=lead,
        method=default_method(),
        variables=listed(variables),
        sites=listed(_SITES),
        n_sites=len(_SITES),
    )
    path.write_text(text, encoding="utf-8")
    return path


def _approve(study: Path, federation: LocalFederation) -> None:
    """The first owner reads the study aloud; the others approve the same text."""
    from feddbn.cli.site import approve, facts_of
    from feddbn.cli.study import read_study

    first, *others = federation.plan.sites
    approve(study, federation.kits[first], yes=True)
    plan = read_study(study)
    for site in others:
        facts_of(federation.kits[site]).owner.approve(plan, days=30.0, runs=1, epsilon=None)
    remark(f"      {', '.join(federation.plan.sites)} have approved it, each with its own key.")


def _show(page: Path, is_kept: bool) -> None:
    """Open the page; where it will be deleted, only as long as somebody is there to say when."""
    import webbrowser

    if not is_kept and not sys.stdin.isatty():
        remark(
            "note: no page is opened, because this is not an interactive terminal; --keep DIR keeps the report."
        )
        return
    if not webbrowser.open(page.as_uri()):
        remark(f"note: no browser could be opened; open this file: {page}")
    _wait_for_enter()


def _wait_for_enter() -> None:
    if sys.stdin.isatty():
        remark("Press Enter to end the federation.")
        with contextlib.suppress(EOFError):
            input()


def _start_console(federation: LocalFederation, open_page: bool) -> None:
    """Run ``feddbn console`` for the lead and for one site; they end with the federation."""
    import webbrowser

    for who, kit in (("lead", federation.lead_kit), ("site", federation.kits[_SITES[0]])):
        name = f"{who}-console"
        command = [sys.executable, "-m", "feddbn", "console", "--kit", str(kit), "--port", "0"]
        federation.run(name, Process(command, os.environ))
        found = _last_said(federation.log(name))
        remark(f"      The console of the {who}: {found}")
        if open_page and found.startswith("http"):
            webbrowser.open(found)


def _last_said(log: Path, timeout_s: float = 60.0) -> str:
    """Return the address that a console prints, or why it has none."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            for sign in ("Open ", "feddbn: "):
                if line.startswith(sign):
                    return line.removeprefix(sign)
        time.sleep(0.1)
    return "it did not start in time."
