"""What it takes to read a large file in batches: feddbn's tables, of files, queries and lazy frames, against pyarrow.dataset.

``python benchmarks/file_scan.py [ROWS]`` writes a CSV and a Parquet file of 20 columns into a temporary folder and reads each
by each reader, in a process of its own: seconds of CPU time and peak memory.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

NAMES = [f"v{k}" for k in range(20)]
BATCH = 65_536


def write(folder: Path, n_rows: int) -> None:
    import pyarrow as pa
    import pyarrow.csv

    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((n_rows, len(NAMES))), columns=NAMES)
    frame.to_parquet(folder / "rows.parquet", row_group_size=100_000)
    pyarrow.csv.write_csv(pa.Table.from_pandas(frame), folder / "rows.csv")


def scan(reader: str, path: Path) -> None:
    """Add up all columns, and print what that took."""
    before, total = time.process_time(), np.zeros(len(NAMES))
    if reader.startswith("feddbn"):
        from feddbn.data.tables import SqlTable, table_of

        source: object = path
        if reader == "feddbn, query":
            source = SqlTable(f"SELECT * FROM '{path}'")
        elif reader == "feddbn, Polars":
            import polars as pl

            source = pl.scan_csv(path) if path.suffix == ".csv" else pl.scan_parquet(path)
        frames = table_of(source).frames(NAMES, 0, BATCH)[1]
    else:
        from pyarrow.dataset import dataset

        scanned = dataset(path, format=path.suffix[1:])
        options = {"use_threads": False, "batch_readahead": 1, "fragment_readahead": 1}
        frames = (one.to_pandas() for one in scanned.to_batches(columns=NAMES, batch_size=BATCH, **options))
    for frame in frames:
        total += frame[NAMES].to_numpy().sum(axis=0)
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    print(f"{path.suffix[1:]:8} {reader:16} {time.process_time() - before:6.2f} s {peak:6.0f} MB")


def main() -> None:
    if len(sys.argv) == 3:
        scan(sys.argv[1], Path(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), int(sys.argv[1]) if len(sys.argv) > 1 else 800_000)
        for path in sorted(Path(folder).iterdir()):
            for reader in ("feddbn", "feddbn, query", "feddbn, Polars", "pyarrow.dataset"):
                command = [sys.executable, __file__, reader, str(path)]
                print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="")


if __name__ == "__main__":
    main()
