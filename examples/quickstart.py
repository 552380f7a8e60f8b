"""Ten sites, one network: simulate, learn, score, report. Run: python examples/quickstart.py [folder]."""

from __future__ import annotations

import sys
from pathlib import Path

import feddbn
from feddbn import FDBNL, OneShotDBN
from feddbn.report import plot_truth_and_estimate, write_report


def main(folder: Path) -> dict[str, int]:
    fed = feddbn.simulate(d=6, n_lags=1, n_sites=10, n_samples=1000, mean_degree=2, random_state=0)

    wrong = {}
    for method in (FDBNL(n_lags=1, lambda_w=0.05, lambda_a=0.05), OneShotDBN(n_lags=1)):
        model = method.fit(fed.sites)
        scores = feddbn.score(fed.truth, model.dbn_)
        name = type(model).__name__
        wrong[name] = scores["W"]["shd"] + scores["A"]["shd"]
        print(f"{name}: {wrong[name]} edges wrong after {model.n_rounds_} round(s)")

    folder.mkdir(parents=True, exist_ok=True)
    plot_truth_and_estimate(fed.truth, model.dbn_).figure.savefig(folder / "estimate.png", dpi=120)
    print(write_report(model, folder / "report.html", truth=fed.truth))
    return wrong


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/quickstart"))
