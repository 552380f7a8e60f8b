"""What it takes to learn from a long table of readings that is larger than what is read at once.

``python benchmarks/readings.py [READINGS]`` writes a Parquet file of that many readings (ten million by default): patient,
time, name and value, irregular and in no order of patients. It is read by a query, and as a file, each in a process of its
own: seconds, seconds of CPU time and peak memory until rows stand by hour, and until OneShotDBN has learned from them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

NAMES = ["pulse", "sbp", "dbp", "spo2", "temp", "rate", "lactate", "ph"]
HOURS = 250
READ = {"series": "patient", "time": "time", "names": "name", "values": "value", "freq": "1h"}
PIECE = 500_000


def write(path: Path, n_readings: int) -> None:
    """Readings of patients whose variables drive each other from hour to hour, a piece of the file at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    d, n_patients = len(NAMES), max(n_readings // (2 * HOURS * len(NAMES)), 20)
    rng = np.random.default_rng(0)
    levels = np.zeros((n_patients, HOURS, d), dtype=np.float32)
    for t in range(1, HOURS):
        before = levels[:, t - 1]
        levels[:, t] = 0.6 * before + 0.3 * np.roll(before, 1, axis=1) + rng.standard_normal((n_patients, d))
    writer = None
    for start in range(0, n_readings, PIECE):
        n = min(PIECE, n_readings - start)
        patient, name = rng.integers(n_patients, size=n), rng.integers(d, size=n)
        when = rng.uniform(0, HOURS, n)
        value = levels[patient, when.astype(int), name] + 0.1 * rng.standard_normal(n)
        frame = pd.DataFrame(
            {
                "patient": patient,
                "time": pd.Timestamp("2024-01-01") + pd.to_timedelta((when * 3600).round(), unit="s"),
                "name": np.array(NAMES)[name],
                "value": value.round(3),
            }
        )
        table = pa.Table.from_pandas(frame, preserve_index=False)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def taken(what: str, begun: float) -> None:
    """Print what it took until now."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    spent = f"{time.perf_counter() - begun:7.1f} s {time.process_time():7.1f} s CPU {peak:7.0f} MB"
    print(f"{what:36} {spent}", flush=True)


def learn(door: str, path: Path) -> None:
    """Read the file and learn from it."""
    import feddbn
    from feddbn.data import SqlTable, read_sites

    begun = time.perf_counter()
    data = SqlTable(f"SELECT * FROM '{path}'") if door == "query" else path
    site = next(iter(read_sites(data, **READ, missing="keep").values()))
    rows = sum(len(block.values) for one in site.recordings() for block in one.blocks())
    taken(f"{door}: {rows:,} rows by hour", begun)
    model = feddbn.OneShotDBN().fit({"hospital": site})
    taken(f"{door}: {len(model.dbn_.edges())} edges learned", begun)


def main() -> None:
    if len(sys.argv) == 3:
        learn(sys.argv[1], Path(sys.argv[2]))
        return
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "readings.parquet"
        write(path, n)
        print(f"{n:,} readings, {path.stat().st_size / 2**20:.0f} MB of Parquet", flush=True)
        for door in ("query", "file"):
            command = [sys.executable, __file__, door, str(path)]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
