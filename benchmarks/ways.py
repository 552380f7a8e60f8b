"""The same study every way that needs nothing but this package: how many messages, how many bytes, and the same numbers.

    python benchmarks/ways.py [--sites 4] [--rows 500] [--variables 5]

One `oneshot` study with its usual settings, on simulated data (seed 700). *messages* and *bytes* are those of one site: what
it was asked, and what it sent. *differs by* is the largest difference of a weight from the study in one process in the clear.
Platforms that carry the same messages are compared bit for bit by their tests (`feddbn.engine.conformance`).
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from timing import Table

from feddbn import simulate
from feddbn.engine import conduct, make_sites, open_keeper, open_site
from feddbn.engine.conformance import in_process, make_study
from feddbn.federation.protocol.study import Study, StudyResult
from feddbn.runtime.engines.files.engine import FilesSession
from feddbn.runtime.engines.files.signed import put_file, read_plain
from feddbn.runtime.engines.files.site import FileSite, answer_name
from feddbn.runtime.engines.interface import FederationPlan, engine

KEEPERS = ("keeper-a", "keeper-b")
MASKS = {"secure_aggregation": True, "protection": "exact"}
MOST_STEPS = 100
POLICY = "approve_by_rule = true\nrequire_masking = false\n"


class Counted:
    """An exchange to endpoints in this process, opened anew for each message; counts what one site is asked and sends."""

    def __init__(self, folders: Mapping[str, Path], site: str) -> None:
        self._folders, self._site = folders, site
        self.seen: Counter[str] = Counter()

    def __call__(self, messages: Mapping[str, bytes]) -> Mapping[str, bytes]:
        replies = {}
        for name, message in messages.items():
            end = open_keeper(self._folders[name]) if name in KEEPERS else open_site(self._folders[name])
            replies[name] = end.handle(message)
            if name == self._site:
                self.seen.update(messages=1, bytes=len(replies[name]))
        return replies


def by_endpoints(place: Path, data: Mapping[str, str], study: Study) -> tuple[StudyResult, Counter[str]]:
    folders = make_sites(place, study.sites, KEEPERS if study.privacy.keepers else ())
    fill({name: folders[name] for name in study.sites}, data)
    exchange = Counted(folders, study.sites[0])
    return conduct(study, exchange, place / "server", run="run", log=lambda sentence: None), exchange.seen


def by_files(place: Path, data: Mapping[str, str], study: Study) -> tuple[StudyResult, Counter[str]]:
    kits = engine("files").make_kits(FederationPlan("ways", "none", study.sites), place)
    fill({name: kits[name] for name in study.sites}, data)
    session, seen = FilesSession(kits["lead@example.org"]), Counter[str]()
    session.check(study, "run")
    session.remember(study, "run", place / "run")
    for _ in range(MOST_STEPS):
        stepped = session.step(study, "run")
        if stepped.state != "collecting":
            break
        for name, question in stepped.questions.items():
            site = FileSite(kits[name])
            asked = site.read(read_plain(question), str(question))
            content = site.answer(asked).content
            put_file(question.with_name(answer_name(asked)), content)
            if name == study.sites[0]:
                seen.update(messages=1, bytes=len(content))
    stored = (kits["lead@example.org"] / "runs" / "run" / "result.feddbn").read_bytes()
    return StudyResult.from_bytes(stored), seen


def fill(folders: Mapping[str, Path], data: Mapping[str, str]) -> None:
    for name, folder in folders.items():
        (folder / "data").mkdir(exist_ok=True)
        (folder / "data" / "rows.csv").write_text(data[name])
        (folder / "policy.toml").write_text(POLICY)


Way = Callable[[Path, Mapping[str, str], Study], tuple[StudyResult, Counter[str]]]
WAYS: dict[str, tuple[Way, dict[str, object]]] = {
    "endpoints, in the clear": (by_endpoints, {}),
    "endpoints, masks": (by_endpoints, MASKS),
    "files, in the clear": (by_files, {}),
    "files, masks": (by_files, MASKS),
    "endpoints, two keepers": (by_endpoints, {"keepers": KEEPERS, "protection": "exact"}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in (("sites", 4), ("rows", 500), ("variables", 5)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args()
    made = simulate(
        d=given.variables, n_sites=given.sites, n_samples=given.rows * given.sites, random_state=700
    )
    names = tuple(f"site{k}" for k in range(given.sites))
    tables = [recordings[0] for recordings in made.sites.values()]
    data = {
        name: table.to_csv(index=False, float_format="%.17g")
        for name, table in zip(names, tables, strict=True)
    }
    table = Table(
        "The same study every way",
        ["way", "messages a site", "bytes a site", "seconds", "weights differ by"],
    )
    with tempfile.TemporaryDirectory() as root, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, text in data.items():
            Path(root, name).mkdir()
            Path(root, name, "rows.csv").write_text(text)
        usual = {"parameters": {}, "attendance": {"when_missing": "abort"}}
        clear = make_study("oneshot", names, tables[0].columns, **usual)
        expected = in_process(clear, {name: Path(root, name) for name in names})
        for k, (way, (run, privacy)) in enumerate(WAYS.items()):
            study = make_study("oneshot", names, tables[0].columns, privacy=privacy, **usual)
            begun = time.perf_counter()
            found, seen = run(Path(root, f"way{k}"), data, study)
            took = time.perf_counter() - begun
            gap = max(float(np.abs(found.arrays[n] - expected.arrays[n]).max()) for n in ("W", "A"))
            table.add(way, seen["messages"], seen["bytes"], took, gap)
    print(table.text())


if __name__ == "__main__":
    main()
