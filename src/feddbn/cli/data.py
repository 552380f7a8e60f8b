"""Data: ``feddbn demo``, ``simulate``, ``check``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn.cli.options import Data, Json, Reading, parse_kinds, reads_data
from feddbn.cli.printed import warnings_at_end
from feddbn.cli.terminal import print_json, print_table, progress, say, tell
from feddbn.errors import FileError, MissingExtra, ParameterError, reading
from feddbn.findings import Finding, Findings
from feddbn.words import Audience, card, counted
from feddbn.words.tables import findings_table

if TYPE_CHECKING:
    from feddbn.sim.simulation import SimulatedFederation


__all__ = [
    "FileFormat",
    "check",
    "demo",
    "findings_of",
    "print_findings",
    "read_findings",
    "simulate",
    "simulate_demo",
    "write_sites",
]


class FileFormat(StrEnum):
    """How recordings are stored."""

    csv = "csv"
    parquet = "parquet"


def simulate(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory to write to.")],
    d: Annotated[int, typer.Option("--d", "-d", help="Number of variables.")] = 10,
    n_lags: Annotated[int, typer.Option(help="Number of lags; 0 for a static network.")] = 1,
    n_sites: Annotated[int, typer.Option(help="Number of sites.")] = 10,
    n_samples: Annotated[int, typer.Option(help="Usable rows of all sites together.")] = 512,
    mean_degree: Annotated[
        float, typer.Option(help="Mean number of contemporaneous edges per variable.")
    ] = 4,
    lag_degree: Annotated[
        float, typer.Option(help="Mean number of outgoing edges per variable and lag.")
    ] = 1,
    w_range: Annotated[tuple[float, float], typer.Option(help="Smallest and largest weight.")] = (0.3, 0.5),
    decay: Annotated[float, typer.Option(help="Weights at lag l are divided by decay**(l-1).")] = 1.5,
    heterogeneity: Annotated[
        str, typer.Option(help="Share of edges that differ between sites, or independent.")
    ] = "0",
    noise: Annotated[
        str, typer.Option(help="gaussian, exponential, gumbel, laplace or uniform.")
    ] = "gaussian",
    noise_scale: Annotated[float, typer.Option(help="Standard deviation of the noise.")] = 1.0,
    site_sizes: Annotated[
        str | None, typer.Option(help="Usable rows of each site, separated by commas; replaces n-samples.")
    ] = None,
    n_recordings: Annotated[int, typer.Option(help="Recordings per site.")] = 1,
    effects: Annotated[
        str,
        typer.Option(help="Shape of the effects: linear, or gp, random smooth functions."),
    ] = "linear",
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            help="Kind of a variable: x1=count, x2=categorical:4, x3=ordinal:no,some,bad; repeat for more. Or a list that"
            " is used in turn: continuous,binary,count.",
            metavar="VARIABLE=KIND",
        ),
    ] = None,
    corruptions: Annotated[
        list[str] | None,
        typer.Option(
            "--corruption",
            help="Data problems to add at the sites: a name such as offsets, or name=strength such as spikes=0.02; repeat "
            "for more. An unknown name prints all names.",
            metavar="NAME[=STRENGTH]",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same data.")] = 0,
    file_format: Annotated[FileFormat, typer.Option("--format", help="csv or parquet.")] = FileFormat.csv,
    as_json: Json = False,
) -> None:
    """Write simulated data, one file (or folder of recordings) per site, and the true network, truth.json.

    Afterwards: feddbn fit DIR -o result.json, then feddbn score DIR/truth.json result.json.
    """
    from feddbn.analysis.truth import write_truth
    from feddbn.sim.simulation import simulate as draw

    # Options have the names of its arguments; those that are text here become what it takes.
    asked = {name: value for name, value in context.params.items() if name not in _OF_FILES}
    asked |= {"heterogeneity": _share(heterogeneity), "site_sizes": _sizes(site_sizes)}
    asked |= {"corruptions": _strengths(corruptions), "kinds": _kinds_or_turns(kinds)}
    federation = draw(random_state=seed, **asked)
    files = write_sites(federation, out, file_format)
    truth = write_truth(federation, out / "truth.json")
    variables = next(iter(federation.truths.values())).variables
    same = "one network" if federation.is_homogeneous else "networks that differ between sites"
    tell(
        as_json,
        {"files": [str(file) for file in files], "truth": str(truth), "sites": list(federation.sites)},
        f"Wrote {len(files)} files of {n_sites} sites ({len(variables)} variables, {same}) to {out}",
        f"The true network is in {truth}",
    )


def write_sites(federation: SimulatedFederation, directory: Path, kind: FileFormat) -> list[Path]:
    """Write every recording and return the paths; old files of the same names are replaced."""
    files = []
    for site, recordings in federation.sites.items():
        for k, frame in enumerate(recordings):
            stem = directory / site if len(recordings) == 1 else directory / site / f"recording-{k}"
            path = stem.with_name(f"{stem.name}.{kind.value}")
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind is FileFormat.csv:
                frame.to_csv(path, index=False)
            else:
                try:
                    frame.to_parquet(path, index=False)
                except ImportError:
                    raise MissingExtra("pyarrow", "parquet") from None
            files.append(path)
    return files


_OF_FILES = frozenset({"out", "seed", "file_format", "as_json"})


def _share(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _strengths(texts: list[str] | None) -> dict[str, float | None] | None:
    strengths: dict[str, float | None] = {}
    for text in texts or []:
        name, _, strength = text.partition("=")
        try:
            number = float(strength) if "=" in text else None
        except ValueError:
            raise ParameterError(
                f"corruption={text!r} must be a name or name=number, such as spikes=0.02."
            ) from None
        strengths[name.strip()] = int(number) if number is not None and number.is_integer() else number
    return strengths or None


def _kinds_or_turns(texts: list[str] | None) -> dict[str, object] | list[str] | None:
    """Kinds by variable as everywhere, or a list of kinds that is given out in turn."""
    if texts and not any("=" in text or text.endswith((".toml", ".json")) for text in texts):
        return [part.strip() for text in texts for part in text.split(",")]
    return parse_kinds(texts)


def _sizes(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(size) for size in text.split(",")]
    except ValueError:
        raise ParameterError(
            f"site_sizes={text!r} must be whole numbers separated by commas, such as 100,80,20."
        ) from None


@reads_data()
def check(
    data: Data,
    n_lags: Annotated[int, typer.Option(min=0, help="Number of lags of the planned model.")] = 1,
    as_json: Json = False,
    *,
    read: Reading,
) -> None:
    """Look for problems that would make a network wrong, and say how to correct them.

    Nothing is learned or written. DATA may also be findings.json of a study that checked the data of all sites.

    Exit code 0: no error was found. 1: an error was found; a fit is refused or would be wrong. 2: the data cannot be
    opened.
    """
    from feddbn.analysis.data_check import check as check_files

    of_study = isinstance(data, Path) and data.suffix == ".json"
    findings = read_findings(data) if of_study else check_files(data, n_lags, layout=read.with_kinds())
    audience: Audience = "lead" if of_study else "cli"
    if as_json:
        said = ((one, card(one, audience)) for one in findings)
        print_json(
            [{**one.to_dict(), "finding": words.detail, "advice": words.advice} for one, words in said]
        )
    else:
        print_findings(findings, audience)
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)


def read_findings(path: Path) -> Findings:
    """Return the findings in ``findings.json`` of a study that checked the data."""
    where = f"file {str(path)!r}"
    with reading(where, "JSON"):
        values = json.loads(path.read_text(encoding="utf-8"))
    return findings_of(values, where)


def findings_of(values: Any, where: str) -> Findings:
    """Return findings from plain values; refuse what are none."""
    try:
        return Findings(map(Finding.from_dict, values))
    except (TypeError, KeyError, ValueError, AttributeError):
        raise FileError(
            f"{where} holds no findings; a study with goal = 'check' writes them to findings.json."
        ) from None


def print_findings(findings: Sequence[Finding], audience: Audience = "cli") -> None:
    """One row for each kind of finding; sites that share it stand together."""
    if not findings:
        say("Nothing was found that would make a network wrong.")
        return
    table = findings_table(findings, audience).rows
    rows = [(level, site, "\n".join(filter(None, [found, cure]))) for level, site, found, cure in table]
    print_table(["level", "site", "finding and cure"], rows, n_text=3)
    counts = {level: sum(row[0] == level for row in rows) for level in ("error", "warning", "note")}
    say(", ".join(counted(n, level) for level, n in counts.items() if n) + ".")


_FIRST = "fdbnl"


def simulate_demo(n_sites: int, seed: int) -> SimulatedFederation:
    """Return sites that measure the same 10 variables and hold 512 usable rows together."""
    from feddbn.sim.simulation import simulate

    return simulate(d=10, n_lags=1, n_sites=n_sites, n_samples=512, random_state=seed)


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Directory for data, truth, result and report.")
    ] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Another seed gives other simulated data.")] = 0,
    as_json: Json = False,
) -> None:
    """Simulate ten sites, learn one network from sums over sites, and compare several methods."""
    import numpy as np

    from feddbn.analysis.comparison import compare, default_methods
    from feddbn.analysis.truth import write_truth
    from feddbn.cli.data import FileFormat, write_sites
    from feddbn.cli.learn import print_scores
    from feddbn.data import read_sites
    from feddbn.report import write_report
    from feddbn.results.result import Result

    federation = simulate_demo(n_sites=10, seed=seed)
    truth = federation.truth
    write_sites(federation, out / "data", FileFormat.csv)
    write_truth(federation, out / "truth.json")
    methods = sorted(default_methods(personal=False), key=lambda method: method.name != _FIRST)
    sites = read_sites(out / "data")
    with progress("demo", total=len(methods)) as (watch, part), warnings_at_end() as found_by:
        lines = list(compare(sites, methods, {"n_lags": 1}, truth, observer=watch, start=part))
        found_by.update({line.method.label: line.estimator.findings_ for line in lines})
    result = Result.from_estimator(lines[0].estimator, truth=truth)
    result.save(out / "result.json")
    page = write_report(result.to_dict(), out / "report.html", audience="cli")
    if as_json:
        files = {
            "data": out / "data",
            "truth": out / "truth.json",
            "result": out / "result.json",
            "report": page,
        }
        print_json(
            {"methods": [line.to_dict() for line in lines], "files": {k: str(v) for k, v in files.items()}}
        )
        return
    within, lagged = np.count_nonzero(truth.W), np.count_nonzero(truth.A)
    say("Simulated: ten sites that measure the same 10 variables and hold 512 usable rows together.")
    say(f"They follow one network with {within} contemporaneous edges (W) and {lagged} lagged ones (A).")
    say("FDBNL learned it from sums over the sites. Alldata pools all rows, for comparison.")
    print_scores(lines)
    learned = result.dbn
    within, lagged = np.count_nonzero(learned.W), np.count_nonzero(learned.A)
    say(f"FDBNL found {within} + {lagged} edges. The fit {result.status['message']}.")
    say(f"Data:   {out / 'data'}\nTruth:  {out / 'truth.json'}\nResult: {out / 'result.json'}")
    say(f"Report: {page}")
