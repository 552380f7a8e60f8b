"""Tables as sites record them, and the files that say how each becomes the variables of a study.

Hospitals with the table `measurement` of OMOP (one of them in kPa and degrees Fahrenheit), and lines of a plant with the long
table of its historian (tags of their own, other units, values that are marked as bad). Both come from a known network.

Run: python examples/mappings.py [folder]        needs feddbn[sql]
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

import feddbn
from feddbn.data.sources import conversion
from feddbn.words import say

HERE = Path(__file__).parent
VITALS = {
    "heart_rate": (80, 12, 3027018, 8541, "1/min"),
    "sbp": (120, 15, 3004249, 8876, "mmHg"),
    "dbp": (70, 10, 3012888, 8876, "mmHg"),
    "respiratory_rate": (18, 3, 3024171, 8541, "1/min"),
    "spo2": (90, 1.5, 40762499, 8554, "%"),
    "temp_c": (37, 0.4, 3020891, 586323, "C"),
}
"""Mean, standard deviation, concept of the measurement, concept of the unit, unit."""
OTHER_UNITS = {"sbp": ("kPa", 44777602), "dbp": ("kPa", 44777602), "temp_c": ("F", 9289)}
"""What the hospital in the south measures in."""
TAGS = {
    "flow": ("FIC101", 200, 20, "L/min"),
    "pressure": ("PI102", 6, 0.5, "bar"),
    "temperature": ("TI103", 80, 5, "C"),
    "level": ("LIC104", 50, 6, "%"),
}
LINES = {
    "line-1": ("L1", {"flow": "m3/h"}),
    "line-2": ("L2", {"pressure": "psi", "temperature": "F"}),
    "line-3": ("L3", {"flow": "m3/h", "pressure": "kPa"}),
}


def changed(values: pd.Series, have: str, want: str) -> pd.Series:
    """The same readings in another unit."""
    factor, offset = conversion(have, want)
    return values * factor + offset


def hospitals() -> feddbn.SimulatedFederation:
    return feddbn.simulate(
        d=6, n_sites=3, n_samples=6000, n_recordings=10, mean_degree=2, variables=list(VITALS), random_state=3
    )


def measurements(rows: list[pd.DataFrame], units: dict[str, tuple[str, int]], seed: int) -> pd.DataFrame:
    """The table `measurement`: every value at some minute of its hour, one in a thousand is 0, rows in no order."""
    rng = np.random.default_rng(seed)
    found = []
    for person, one in enumerate(rows):
        hours = pd.Timestamp("2024-03-01") + pd.to_timedelta(np.arange(len(one)), unit="h")
        for name, (mean, deviation, concept, unit_concept, unit) in VITALS.items():
            has, code = units.get(name, (unit, unit_concept))
            values = changed(mean + deviation * one[name], unit, has)
            values = values.where(rng.random(len(one)) > 0.001, 0.0)
            minutes = pd.to_timedelta(rng.integers(0, 60, len(one)), unit="min")
            columns = {"person_id": person, "measurement_concept_id": concept, "unit_concept_id": code}
            found.append(
                pd.DataFrame(
                    {**columns, "measurement_datetime": hours + minutes, "value_as_number": values.to_numpy()}
                )
            )
    table = pd.concat(found, ignore_index=True)
    return table.iloc[rng.permutation(len(table))].reset_index(drop=True)


def write_hospitals(folder: Path) -> feddbn.SimulatedFederation:
    """A DuckDB file and a mapping for each of three hospitals."""
    shutil.copytree(HERE / "omop", folder, dirs_exist_ok=True)
    fed = hospitals()
    for seed, (name, rows) in enumerate(zip(("north", "south", "west"), fed.sites.values(), strict=True)):
        table = measurements(rows, OTHER_UNITS if name == "south" else {}, seed)
        path = folder / f"{name}.duckdb"
        path.unlink(missing_ok=True)
        with duckdb.connect(str(path)) as file:
            file.register("rows", table)
            file.execute("CREATE TABLE measurement AS SELECT * FROM rows")
    return fed


def write_plant(folder: Path) -> feddbn.SimulatedFederation:
    """A CSV file and a mapping for each of three lines."""
    shutil.copytree(HERE / "historian", folder, dirs_exist_ok=True)
    fed = feddbn.simulate(d=4, n_sites=3, n_samples=6000, mean_degree=2, variables=list(TAGS), random_state=5)
    for seed, ((line, (prefix, units)), (rows,)) in enumerate(
        zip(LINES.items(), fed.sites.values(), strict=True)
    ):
        rng, found = np.random.default_rng(seed), []
        for name, (tag, mean, deviation, unit) in TAGS.items():
            n = len(rows)
            times = pd.Timestamp("2024-03-01") + pd.to_timedelta(
                10 * np.arange(n) + rng.integers(0, 10, n), unit="s"
            )
            values = changed(mean + deviation * rows[name], unit, units.get(name, unit))
            is_bad = rng.random(n) < 0.01
            found.append(
                pd.DataFrame(
                    {
                        "tag": f"{prefix}.{tag}.PV",
                        "timestamp": times,
                        "value": np.where(is_bad, -9999.0, values),
                        "quality": np.where(is_bad, "Bad", "Good"),
                    }
                )
            )
        pd.concat(found).sort_values("timestamp", kind="stable").to_csv(folder / f"{line}.csv", index=False)
    return fed


def main(folder: Path) -> dict[str, float]:
    """Wrong edges of the networks that are learned from the tables."""
    wrong = {}
    for name, write in (("omop", write_hospitals), ("historian", write_plant)):
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        fed = write(place)
        for finding in feddbn.check(place):
            print(f"{finding.level}: {say(finding)}")
        model = feddbn.OneShotDBN(n_lags=1).fit(place)
        scores = feddbn.score(fed.truth, model.dbn_)
        wrong[name] = scores["W"]["shd"] + scores["A"]["shd"]
        print(f"{name}: {wrong[name]:g} wrong edges")
    return wrong


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/mappings"))
