"""Every measurement of speed: one table each, ratios within this run, JSON and a plot under benchmarks/results.

python benchmarks/run.py --quick        about four minutes on a free machine
python benchmarks/run.py --full         everything, about an hour
python benchmarks/run.py --only scaling
python benchmarks/run.py --tiny         seconds; its numbers mean nothing
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

# Before numpy is loaded: ratios are of one thread against one thread.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

RESULTS = Path(__file__).parent / "results"
PARTS = ("scaling", "against_peers", "arena")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small sizes, one seed (default)")
    size.add_argument("--full", action="store_true", help="all sizes and seeds")
    size.add_argument("--tiny", action="store_true", help="only shows that everything runs: seconds")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the JSON file and the plot go")
    parser.add_argument(
        "--only", choices=PARTS, action="append", help="run this part; may be given more than once"
    )
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    chosen = "full" if options.full else "tiny" if options.tiny else "quick"
    started = time.perf_counter()
    found = []
    for part in options.only or PARTS:
        module = __import__(part)
        for table in module.tables(chosen):
            print(table.text(), flush=True)
            found.append({"part": part, **vars(table)})
            record = {
                "size": chosen,
                "python": platform.python_version(),
                "machine": platform.machine(),
                "seconds": time.perf_counter() - started,
                "tables": found,
            }
            (options.out / "bench.json").write_text(json.dumps(record, indent=1))
    plot(found, options.out / "bench.png")
    print(f"\nWrote bench.json and bench.png to {options.out} in {time.perf_counter() - started:.0f} s.")


def plot(found: list[dict], path: Path) -> None:
    """Seconds over each axis, log-log."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    curves = [t for t in found if t["title"].startswith("FDBNL over ")]
    if not curves:
        return
    figure, axes = plt.subplots(1, len(curves), figsize=(3.6 * len(curves), 3.2), squeeze=False)
    for ax, table in zip(axes[0], curves, strict=True):
        axis = table["title"].rsplit(" ", 1)[1]
        column = table["columns"].index(axis)
        ax.loglog([row[column] for row in table["rows"]], [row[4] for row in table["rows"]], "o-")
        ax.set_xlabel(axis)
        ax.set_ylabel("CPU seconds of a fit")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
