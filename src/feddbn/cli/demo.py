"""``feddbn demo``: the whole way on one screen, from simulated sites to scores and a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feddbn.cli.options import Json
from feddbn.cli.terminal import print_json, progress, say

if TYPE_CHECKING:
    from feddbn.methods.simulation import SimulatedFederation

__all__ = ["demo", "simulate_demo"]

_FIRST = "fdbnl"


def simulate_demo(n_sites: int, seed: int) -> SimulatedFederation:
    """Return sites that measure the same 10 variables and hold 512 usable rows together."""
    from feddbn.methods.simulation import simulate

    return simulate(d=10, n_lags=1, n_sites=n_sites, n_samples=512, random_state=seed)


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Directory for data, truth, result and report.")
    ] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Another seed simulates another federation.")] = 0,
    as_json: Json = False,
) -> None:
    """Simulate ten sites, learn one network from sums over them, and compare it with the alternatives."""
    import numpy as np

    from feddbn.cli.compare import print_scores
    from feddbn.cli.simulate import FileFormat, write_sites
    from feddbn.data import read_sites
    from feddbn.methods.comparison import compare, default_methods
    from feddbn.methods.result import Result
    from feddbn.methods.truth import write_truth
    from feddbn.report import write_report

    federation = simulate_demo(n_sites=10, seed=seed)
    truth = federation.truth
    write_sites(federation, out / "data", FileFormat.csv)
    write_truth(federation, out / "truth.json")
    methods = sorted(default_methods(truth, personal=False), key=lambda method: method.name != _FIRST)
    sites = read_sites(out / "data")
    with progress("demo", total=len(methods)) as (watch, part):
        lines = list(compare(sites, methods, {"n_lags": 1}, truth, observer=watch, start=part))
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
            {
                "methods": [line.to_dict() for line in lines],
                "files": {k: str(v) for k, v in files.items()},
            }
        )
        return
    within, lagged = np.count_nonzero(truth.W), np.count_nonzero(truth.A)
    say("Simulated: ten sites that measure the same 10 variables and hold 512 usable rows together.")
    say(f"They follow one network with {within} contemporaneous edges (W) and {lagged} lagged ones (A).")
    say("FDBNL learned it from sums over the sites; Alldata is what pooling all rows would give.")
    print_scores(lines)
    learned = result.dbn
    within, lagged = np.count_nonzero(learned.W), np.count_nonzero(learned.A)
    say(f"FDBNL found {within} + {lagged} edges. The fit {result.status['message']}.")
    say(f"Data:   {out / 'data'}\nTruth:  {out / 'truth.json'}\nResult: {out / 'result.json'}")
    say(f"Report: {page}")
