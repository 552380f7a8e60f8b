"""The participants of a federation: ``feddbn federation init | try``, ``feddbn start``, ``feddbn console``."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from feddbn.cli.options import Json
from feddbn.cli.terminal import print_json, print_table, remark, say
from feddbn.errors import FederationError, ParameterError

__all__ = ["console", "federation_app", "start"]

federation_app = typer.Typer(help="Set up a federation of sites on their own machines.", no_args_is_help=True)


@federation_app.command("init")
def init(
    directory: Annotated[
        Path,
        typer.Argument(help="New directory for the kits (one folder per participant) and the signing keys."),
    ],
    site: Annotated[list[str], typer.Option(help="Name of a site; repeat for each.")],
    name: Annotated[str, typer.Option(help="Name of the federation.")] = "feddbn",
    lead: Annotated[
        str, typer.Option(help="E-mail address of the lead, who sends studies.")
    ] = "lead@example.org",
    as_json: Json = False,
) -> None:
    """Write one kit per participant: a folder with keys and safe settings, for files and for every platform."""
    from feddbn.runtime.files.kit import make_kits

    kits = make_kits(directory, site, lead, name)
    rows = [(participant, str(kit)) for participant, kit in kits.items()]
    if as_json:
        print_json({"federation": name, "kits": dict(rows)})
        return
    print_table(("participant", "kit"), rows, f"Federation {name!r}", n_text=2)
    say("Each kit holds a private key: hand it to its owner only.")


@federation_app.command("add")
def add(
    directory: Annotated[Path, typer.Argument(help="Where to write the new kits, one folder for each.")],
    site: Annotated[list[str], typer.Option(help="Name of a new site; repeat for each.")],
    kit: Annotated[Path, typer.Option("--kit", envvar="FEDDBN_KIT", help="The lead's kit.")],
    as_json: Json = False,
) -> None:
    """Make kits for new sites of a federation; the owner of each other site admits them."""
    from feddbn.runtime.files.kit import make_more_kits
    from feddbn.runtime.site.kit_files import PEERS, read_peers

    kits = make_more_kits(site, directory, kit)
    keys = {name: key.hex() for name, key in read_peers(kit / PEERS).items() if name in kits}
    if as_json:
        print_json({"kits": {name: str(one) for name, one in kits.items()}, "keys": keys})
        return
    print_table(("new site", "kit"), [(name, str(one)) for name, one in kits.items()], n_text=2)
    say("Each kit holds a private key: hand it to its owner only.")
    say("The owner of each other site types, with the kit's folder for KIT:")
    for name, key in keys.items():
        say(f"feddbn site admit {name} {key} --kit KIT")


DEFAULT_PORT = 8764
Kit = Annotated[Path, typer.Option("--kit", envvar="FEDDBN_KIT", help="The kit of a site.")]


def start(kit: Kit) -> None:
    """Answer the questions in the folder that a site shares with its lead, until it is stopped."""
    from feddbn.runtime.files.site import watch

    # What it writes is for its owner only.
    os.umask(0o077)
    with contextlib.suppress(KeyboardInterrupt):
        watch(kit)


def console(
    kit: Annotated[Path, typer.Option("--kit", envvar="FEDDBN_KIT", help="The kit of a site.")],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on this machine; 0 takes any free port.")
    ] = DEFAULT_PORT,
    host: Annotated[str, typer.Option(help="A loopback address; no other is accepted.")] = "127.0.0.1",
) -> None:
    """Show web pages for the owner of a site, on this machine only: waiting studies, approvals, the data check, the log."""
    from feddbn.cli.study import check_study
    from feddbn.console.gate import serve
    from feddbn.console.site_pages import site_app
    from feddbn.runtime.site.kit_files import SITE_SETTINGS

    if not (kit / SITE_SETTINGS).exists():
        raise ParameterError(f"--kit {str(kit)!r} is not the kit of a site.", code="not-a-site")

    def tell_address(address: str) -> None:
        say(f"Open {address}")
        remark("Anybody with this address can decide for you: keep it secret. Ctrl-C closes the console.")

    try:
        serve(lambda keys: site_app(kit, check_study, keys), host, port, tell_address)
    except KeyboardInterrupt:
        remark("the console is closed.")


_SITES = ("north", "south", "west")
_RUN = "first-run"
_LEAD = "lead@example.org"
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
    seed: Annotated[int, typer.Option(help="Another seed gives other simulated data.")] = 0,
    as_json: Json = False,
) -> None:
    """Try a federation on this machine: a lead and three sites whose owners approve a masked study.

    The sites are processes with simulated data. Signed files in a shared folder carry questions and answers, as they would
    between institutions. When it is over, or after Ctrl-C, all processes end and all files are deleted.
    """
    # What is said meanwhile is progress where a program reads along.
    quiet = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    with _ends_in_order(), _directory(keep) as root:
        with quiet:
            _try(root, seed, open_page and not as_json, is_kept=keep is not None)
        if as_json:
            result = json.loads((root / "result" / "result.json").read_text(encoding="utf-8"))
            print_json({"directory": None if keep is None else str(root), "result": result})


def _try(root: Path, seed: int, open_page: bool, is_kept: bool) -> None:
    from feddbn.analysis.truth import write_truth
    from feddbn.cli.data import simulate_demo
    from feddbn.cli.learn import score
    from feddbn.cli.printed import print_result
    from feddbn.cli.study import step as study_step
    from feddbn.cli.use import report
    from feddbn.results.result import Result
    from feddbn.runtime.files.kit import MARK, make_kits

    begun = time.monotonic()
    step = _Steps(6)
    drawn = simulate_demo(n_sites=len(_SITES), seed=seed)
    truth = drawn.truth
    step(f"Simulating {len(_SITES)} sites with {truth.d} variables each: {', '.join(_SITES)}.")
    write_truth(drawn, root / "truth.json")
    step("Making a kit for each participant: a key, settings with safe defaults.")
    kits = make_kits(root, _SITES, _LEAD, federation="try")
    run = root / "shared" / _RUN
    run.mkdir(parents=True)
    for site, recordings in zip(_SITES, drawn.sites.values(), strict=True):
        recordings[0].to_csv(kits[site] / "data" / "recording.csv", index=False)
        with open(kits[site] / MARK, "a", encoding="utf-8") as file:
            file.write(f"folder = {json.dumps(str(run.parent))}\n")
    study = _write_study(run / "study.toml", truth.variables)
    step("Starting each site: a process that answers signed questions in a folder.")
    with _answering({site: kits[site] for site in _SITES}, root / "logs"), _then_undisturbed():
        step("Each site's owner reads this study and approves it; other studies are refused.")
        _approve(study, kits)
        step("Running the study with masks: the lead can open only sums over all sites.")
        study_step(run, kits[_LEAD], wait=True, out=root / "result")
        step("Writing the report.")
        result = root / "result" / "result.json"
        page = root / "result" / "report.html"
        print_result(Result.load(result))
        score(root / "truth.json", result)
        report(result, page, truth=root / "truth.json", title="feddbn federation try")
        took = time.monotonic() - begun
        if open_page:
            _show(page, is_kept)
        remark("Stopping the sites.")
    remark(f"Time until the report: {took:.0f} s.")
    if not is_kept:
        remark("All processes have ended; all files are deleted.")
    else:
        say(f"Kits, data, study, questions, answers, result and logs are in {root}.")
        remark(f"Next steps: feddbn site log --kit {kits[_SITES[0]]}       (what left a site)")
        remark(f"            feddbn console --kit {kits[_SITES[0]]}        (its owner's pages)")
        remark(f"            feddbn study status --kit {kits[_LEAD]}")


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
    """Treat a request to end and a closed terminal like Ctrl-C, so that nothing is left behind.

    The first one counts: whoever presses Ctrl-C twice must not interrupt the ending itself.
    """

    def interrupt(number: int, frame: Any) -> None:
        _ignore_endings()
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
    """Let nothing interrupt what follows the block: it ends processes and deletes files."""
    try:
        yield
    finally:
        _ignore_endings()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let a request to end wait for the block: a process that is being started is known when it is done."""
    asked: list[int] = []
    before = {
        ending: signal.signal(ending, lambda number, frame: asked.append(number)) for ending in _ENDINGS
    }
    try:
        yield
    finally:
        for ending, handler in before.items():
            signal.signal(ending, handler)
    if asked:
        signal.raise_signal(asked[0])


def _ignore_endings() -> None:
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


def _write_study(path: Path, variables: tuple[str, ...]) -> Path:
    from feddbn.method_table import default_method

    def listed(names: tuple[str, ...]) -> str:
        return ", ".join(f'"{name}"' for name in names)

    text = _STUDY.format(
        lead=_LEAD,
        method=default_method(),
        variables=listed(variables),
        sites=listed(_SITES),
        n_sites=len(_SITES),
    )
    path.write_text(text, encoding="utf-8")
    return path


@contextlib.contextmanager
def _answering(kits: Mapping[str, Path], logs: Path) -> Iterator[None]:
    """Run ``feddbn start`` for each site; the processes end with the block."""
    logs.mkdir(mode=0o700)
    running: list[subprocess.Popen[bytes]] = []
    try:
        for site, kit in kits.items():
            command = [sys.executable, "-m", "feddbn", "start", "--kit", str(kit)]
            with open(logs / f"{site}.log", "wb") as log, _uninterrupted():
                running.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        # Ctrl-C at the terminal is for us, who then end them in order.
                        start_new_session=True,
                    )
                )
        for site, process in zip(kits, running, strict=True):
            while b"watching" not in (said := (logs / f"{site}.log").read_bytes()):
                if process.poll() is not None:
                    last = said.decode(errors="replace").strip().split("\n")[-1]
                    raise FederationError(f"the process of {site} has ended: {last}")
                time.sleep(0.1)
            remark(f"      {site} is there.")
        yield
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


def _approve(study: Path, kits: Mapping[str, Path]) -> None:
    """The first owner reads the study aloud; the others approve the same text."""
    from feddbn.cli.site import approve, facts_of
    from feddbn.cli.study import read_study

    first, *others = _SITES
    approve(study, kits[first], yes=True)
    plan = read_study(study)
    for site in others:
        facts_of(kits[site]).owner.approve(plan, days=30.0, runs=1, epsilon=None)
    remark(f"      {', '.join(_SITES)} have approved it, each with its own key.")


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
    if sys.stdin.isatty():
        remark("Press Enter to end the federation.")
        with contextlib.suppress(EOFError):
            input()
