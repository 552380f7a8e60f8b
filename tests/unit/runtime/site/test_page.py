"""The page that an owner signs: what it says, its size against what then leaves, and what the signature is bound to."""

import hashlib
import itertools
import json
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("cryptography")
from feddbn.console.site_facts import study_facts
from feddbn.errors import FileError
from feddbn.federation.guards.study_plan import plan_of
from feddbn.federation.protocol.study import About
from feddbn.federation.protocol.task import usual_numbers
from feddbn.privacy.approval import read_approval
from feddbn.privacy.policy import default_threshold
from feddbn.runtime.settings import read_policy
from feddbn.runtime.site.owner import APPROVALS
from feddbn.runtime.site.page import SECTIONS, about_study, page_text
from feddbn.runtime.store import Store
from feddbn.words import card
from support.consortium import NAMES, Consortium, make_study
from support.saying import only
from support.states import entries_of
from support.study_files import ABOUT

FULL = {name: f"our {name}" for name in About.model_fields}


@pytest.fixture
def sites(tmp_path):
    return Consortium(tmp_path)


def facts_of(sites, study):
    settings = sites.settings()
    return study_facts(study, settings, read_policy(settings.policy))


def test_the_page_has_what_a_data_protection_officer_asks(sites):
    study = make_study(about=FULL, units={"u": "mmHg"})
    told = about_study(study, sites.settings())
    text = page_text(study, "north", told)
    for said in (*FULL.values(), "lead@example.org", *NAMES, "u (mmHg), v", "29 of 30", study.digest):
        assert said in text, said
    shown = {one.code.removeprefix("study-") for one in told}
    optional = {"update", "uncounted", "noise", "weights"}
    assert shown == {name for names in SECTIONS.values() for name in names} - optional
    assert (only(told, "study-privacy").level, only(told, "study-exact").level) == ("good", "warning")
    open_study = make_study(privacy={"secure_aggregation": False})
    assert only(about_study(open_study, None), "study-privacy").level == "error"
    # Optional entries that are empty are said to be so.
    silent = about_study(make_study(), sites.settings())
    assert card(only(silent, "study-legal"), "owner").detail == "not stated"


def test_patients_are_counted_by_the_column_that_names_them(sites):
    path = sites.place / "north" / "feddbn_site.toml"
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["u", "v"])
    frame.assign(patient=np.repeat(["a", "b", "c"], 20)).to_csv(
        sites.place / "north/data/r000.csv", index=False
    )
    path.write_text('series = "patient"\n' + path.read_text())
    rows = only(about_study(make_study(), sites.settings()), "study-rows")
    counted = {"usable": 57, "rows": 60, "recordings": 3, "n_lags": 1, "series": "patient"}
    assert {name: rows.values[name] for name in counted} == counted


MASKED = {"secure_aggregation": True, "protection": "exact"}
RUNS = [
    ("oneshot", {"n_lags": 1}, {}),
    ("oneshot", {"n_lags": 1}, {"privacy": {"secure_aggregation": False}}),
    ("summary", {"n_lags": 2}, {}),
    ("fdbnl", {"n_lags": 1, "rounds.max_rounds": 5}, {"privacy": {"secure_aggregation": True}}),
    ("pfdbnl", {"n_lags": 1, "rounds.max_rounds": 6}, {}),
    ("oneshot", {"n_lags": 1}, {"goal": "confidence", "confidence": {"replicates": 5}}),
    ("fdbnl", {"n_lags": 1}, {"goal": "check"}),
    ("oneshot", {"n_lags": 1}, {"privacy": {"secure_aggregation": True, "epsilon": 40.0, "unit": "row"}}),
]


@pytest.fixture(scope="module")
def wards(tmp_path_factory):
    """Sites with 400 rows of three variables each, some cells empty, whose policy allows what is asked for."""
    made = Consortium(
        tmp_path_factory.mktemp("wards"), policy="approve_by_rule = true\nrequire_masking = false\n"
    )
    rng = np.random.default_rng(900)
    for name in NAMES:
        x = rng.normal(size=(400, 3))
        x[1:, 1:] += 0.6 * x[:-1, :-1]
        x[rng.random(x.shape) < 0.02] = np.nan
        frame = pd.DataFrame(x, columns=["u", "v", "w"])
        frame.to_csv(made.place / name / "data" / "r000.csv", index=False)
    return made


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("k", "run"), list(enumerate(RUNS)), ids=lambda one: one if isinstance(one, int) else one[0]
)
def test_what_leaves_is_never_more_than_the_page_says_and_not_much_less(wards, k, run):
    method, parameters, more = run
    made = {"privacy": MASKED, "variables": ("u", "v", "w"), **more}
    study = make_study(name=f"s{k}", method=method, parameters=parameters, **made)
    told = about_study(study, wards.settings())
    planned = only(told, "study-size").values
    wards.run(study, f"run-{k}")
    sent = [entry for entry in entries_of(wards.state(), f"run-{k}") if entry.event == "sent"]
    logged = sum(entry.length for entry in sent)
    asks = {one.values["task"]: one.values for one in told if one.code == "study-asks"}
    for task in {entry.task for entry in sent}:
        of = [entry.length for entry in sent if entry.task == task]
        assert sum(of) <= asks[task]["most"]
        assert len(of) <= asks[task]["times"]
    assert 0 < logged <= planned["most"] == sum(one["most"] for one in asks.values())
    assert len(sent) <= planned["times"]
    assert planned["usual"] == usual_numbers(plan_of(study))
    assert planned["most"] <= 5 * logged


@pytest.mark.parametrize("n", range(2, 13))
def test_who_could_work_out_a_sites_sums_is_counted(n):
    """Against every way to split the honest sites: two stories that each have enough answers, or one honest site left."""
    study = make_study(
        sites=tuple(f"s{k}" for k in range(n)), privacy={"secure_aggregation": True, "min_sites": 2}
    )
    threshold = max(default_threshold(n), 2)

    def breaks(n_bad):
        two = any(a + n_bad >= threshold and n - n_bad - a + n_bad >= threshold for a in range(n - n_bad + 1))
        smallest = min(size for size in range(threshold, n + 1))
        return two or smallest - n_bad <= 1

    expected = next(n_bad for n_bad in itertools.count() if breaks(n_bad))
    pool = only(about_study(study, None), "study-collusion").values["pool"]
    assert pool == min(expected, n - 1)
    assert n != 3 or pool == 2


def test_a_method_without_a_plan_is_not_said_to_send_nothing():
    size = only(about_study(make_study(method="walk"), None), "study-size")
    assert (size.level, size.values["times"]) == ("error", 0)


def test_an_approval_is_bound_to_the_page_that_was_read(sites):
    study = make_study(about={**ABOUT, "purpose": "to learn"})
    page = facts_of(sites, study)
    text = page_text(study, "north", page.told)
    given = sites.owner().approve(study, 30.0, 1, None, page.digest)
    assert given.page == hashlib.sha256(text.encode()).hexdigest()
    assert page.digest[:12] in sites.owner().audit.entries()[-1].note
    # A file and what came by message are one study, with one page.
    assert (
        facts_of(
            sites, study.model_copy(update={"parameters": dict(reversed(study.parameters.items()))})
        ).digest
        == page.digest
    )
    # Another purpose, or other data, is another page.
    assert facts_of(sites, make_study()).digest != page.digest
    frame = pd.read_csv(sites.place / "north/data/r000.csv")
    frame[:20].to_csv(sites.place / "north/data/r000.csv", index=False)
    assert facts_of(sites, study).digest != page.digest
    # A page that was put in its place afterwards is not signed.
    Store(sites.state()).put(APPROVALS, study.digest, replace(given, page="0" * 64).to_text().encode())
    assert sites.owner().approvals.damaged() == [study.digest]


def test_an_approval_from_before_pages_had_digests_holds(sites):
    given = sites.owner().approvals.give(make_study())
    old = {name: value for name, value in asdict(given).items() if name != "page"}
    assert read_approval(json.dumps(old)).is_signed(sites.owner().identity.public)
    with pytest.raises(FileError):
        read_approval(json.dumps({**old, "paper": ""}))


def test_the_page_for_paper_is_one_file_and_hostile_words_are_text(sites):
    script = "<script>alert(1)</script>"
    study = make_study(lead=script, about={**ABOUT, "purpose": script})
    html = facts_of(sites, study).html()
    assert "<script" not in html
    assert "http" not in html.split("</style>")[1]
    assert facts_of(sites, study).digest in html
    assert "@page" in html
