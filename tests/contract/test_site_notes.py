"""A deployed site that does not fit the others tells its owner why, and nobody else."""

import json
import logging

import feddbn
from feddbn.analysis import studies  # noqa: F401
from feddbn.federation.protocol.study import Study
from feddbn.privacy.policy import SitePolicy
from feddbn.runtime.server.conduct import run_study
from feddbn.runtime.server.coordinator import Coordinator
from feddbn.runtime.settings import read_site_settings
from feddbn.runtime.site.kit_files import write_site_files
from feddbn.runtime.site.open_site import open_site
from support.entropy import seeded
from support.faults import LocalExchange, MemoryJournal
from support.study_files import ABOUT

NAMES = ("a", "b", "c", "d", "e")


def run(tmp_path, **parameters):
    """A study of five deployed sites, of which c has x0 in other units."""
    made = feddbn.simulate(d=3, n_sites=5, n_samples=1000, random_state=4)
    for name, (frame,) in zip(NAMES, made.sites.values(), strict=True):
        (tmp_path / name / "data").mkdir(parents=True)
        scaled = frame * [100, 1, 1] if name == "c" else frame
        scaled.to_csv(tmp_path / name / "data" / "r.csv", index=False)
    write_site_files({name: tmp_path / name for name in NAMES}, entropy=seeded())
    for name in NAMES:
        tasks = json.dumps([*SitePolicy().tasks, "agree"])
        policy = f"require_masking = false\nmin_sites = 2\napprove_by_rule = true\ntasks = {tasks}\n"
        (tmp_path / name / "policy.toml").write_text(policy)

    def make(name):
        settings = read_site_settings(tmp_path / name / "feddbn_site.toml")
        return open_site(settings, name, logging.getLogger("test"))

    study = Study(
        name="s",
        about=ABOUT,
        method="oneshot",
        variables=("x0", "x1", "x2"),
        sites=NAMES,
        parameters={"n_lags": 1, **parameters},
        attendance={"when_missing": "abort"},
    )
    coordinator = Coordinator(LocalExchange(NAMES, make), study, "run-1", MemoryJournal(), pause_s=0.0)
    return run_study(coordinator, study)[0]


def notes_of(place):
    """What the owner of each site was told, as (code, sentence)."""
    found = {}
    for name in NAMES:
        lines = (place / name / "state" / "run-1" / "events.jsonl").read_text().splitlines()
        events = [event for event in map(json.loads, lines) if event["what"] == "note"]
        found[name] = [(event["code"], event["sentence"]) for event in events]
    return found


def treatment(result):
    return result.summary["result"]["diagnostics"]["treatment"]


def test_the_owner_of_an_odd_site_is_told_and_the_result_counts_it(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="test"):
        result = run(tmp_path, **{"prepare.on_disagreement": "exclude"})
    notes = notes_of(tmp_path)
    assert {name for name, said in notes.items() if said} == {"c"}
    ((code, sentence),) = notes["c"]
    assert code == "other-units"
    assert "x0" in sentence
    assert sentence in caplog.text
    assert (treatment(result)["n_disagreeing"], treatment(result)["left_out"]) == (1, 1)
    assert sentence not in json.dumps(result.summary)


def test_the_owner_of_an_odd_site_is_told_how_to_learn_its_own_network(tmp_path):
    result = run(tmp_path, **{"prepare.on_disagreement": "personal"})
    codes = {name: [code for code, _ in said] for name, said in notes_of(tmp_path).items()}
    assert codes == {name: ["other-units", "site-own-network"] if name == "c" else [] for name in NAMES}
    assert treatment(result)["left_out"] == 1
    assert result.summary["result"]["personal"] == {}


def test_a_study_that_does_not_ask_finds_no_odd_site(tmp_path):
    result = run(tmp_path)
    assert not any(notes_of(tmp_path).values())
    assert treatment(result)["n_disagreeing"] == 0
