"""Several modules: studies over `feddbn.engine`, by sites that live, and sites that are opened anew for every message."""

import numpy as np
import pytest
from typer.testing import CliRunner

import feddbn
from feddbn import engine
from feddbn.cli.main import app
from feddbn.errors import FileError, NotEnoughSites, ParameterError, SiteRefused
from feddbn.federation.protocol.messages import read_reply
from feddbn.federation.protocol.study import Study, StudyResult
from support.crash import in_child
from support.entropy import Entropy, seeded
from support.places import quick_folder
from support.saying import kept_out, refused
from support.study_files import ABOUT, as_toml

pytestmark = pytest.mark.promise

pytest.importorskip("cryptography")
MADE = feddbn.simulate(d=3, n_sites=3, n_samples=600, mean_degree=2, random_state=901)
NAMES = tuple(MADE.sites)
DEEP = {"n_lags": 1}
MASKED = {"secure_aggregation": True, "protection": "exact"}


def make_study(**changes):
    values = {"name": "s", "method": "summary", "variables": ("x0", "x1", "x2"), "sites": NAMES}
    return Study(**{**values, "about": ABOUT, "attendance": {"when_missing": "abort"}, **changes})


@pytest.fixture
def tmp_path():
    with quick_folder() as folder:
        yield folder


@pytest.fixture
def sites(tmp_path):
    places = engine.make_sites(tmp_path / "sites", NAMES, entropy=seeded())
    for name, (table,) in MADE.sites.items():
        table.to_csv(places[name] / "data" / "rows.csv", index=False)
        policy = places[name] / "policy.toml"
        policy.write_text(
            policy.read_text().replace("require_masking = true", "require_masking = false")
            + "approve_by_rule = true\n"
        )
    return places


def living(places):
    """One endpoint for each site."""
    entropy = Entropy()
    ends = {name: engine.open_site(place, entropy=entropy(name)) for name, place in places.items()}
    assert {name: end.name for name, end in ends.items()} == {name: name for name in places}
    return lambda messages: {name: ends[name].handle(message) for name, message in messages.items()}


def anew(places):
    """One endpoint for each message."""
    entropy = Entropy(1)
    return lambda messages: {
        name: engine.open_site(places[name], entropy=entropy(name)).handle(message)
        for name, message in messages.items()
    }


def answer(say, place, message):
    return engine.open_site(place).handle(message)


def in_new_processes(places):
    """One process for each message; what it leaves is on its disk."""
    return lambda messages: {
        name: in_child(answer, places[name], message).value for name, message in messages.items()
    }


def same_bits(one: StudyResult, other: StudyResult):
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        assert array.tobytes() == other.arrays[name].tobytes(), name


@pytest.mark.parametrize(
    "privacy", [{}, MASKED, {"secure_aggregation": True}], ids=["plain", "masked", "weights"]
)
def test_a_site_opened_anew_for_each_message_gives_the_same_bits(sites, tmp_path, privacy):
    study = make_study(privacy=privacy)
    one = engine.conduct(study, living(sites), tmp_path / "one", run="r")
    other = engine.conduct(study, anew(sites), tmp_path / "other", run="q")
    same_bits(one, other)
    assert np.any(one.arrays["A"])


def test_a_masked_study_with_a_new_process_for_each_message_gives_the_same_bits(sites, tmp_path):
    study = make_study(privacy=MASKED)
    one = engine.conduct(study, living(sites), tmp_path / "one", run="r")
    same_bits(one, engine.conduct(study, in_new_processes(sites), tmp_path / "other", run="q"))


def stopped_after(exchange, n):
    """An exchange that breaks off."""
    left = [n]

    def sent(messages):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return exchange(messages)

    return sent


@pytest.mark.parametrize("n", [5, 8])
@pytest.mark.parametrize("make", [living, anew])
def test_a_masked_run_goes_on_with_new_keys_wherever_its_server_was_stopped(sites, tmp_path, make, n):
    study, exchange = make_study(privacy=MASKED), make(sites)
    with pytest.raises(KeyboardInterrupt):
        engine.conduct(study, stopped_after(exchange, n), tmp_path / "server", run="r")
    found = engine.conduct(study, exchange, tmp_path / "server", run="r")
    np.testing.assert_allclose(found.arrays["A"], feddbn.MomentSummary().fit(MADE.sites).A_, atol=1e-6)


def test_a_study_comes_from_a_file_and_its_result_is_in_the_folder(sites, tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(as_toml(make_study(variables=("x0", "x1"))))
    found = engine.conduct(path, living(sites), tmp_path / "server")
    (run,) = [one for one in (tmp_path / "server").iterdir() if one.is_dir()]
    assert run.name.startswith("s-")
    same_bits(found, StudyResult.from_bytes((run / "result.feddbn").read_bytes()))
    with refused(ParameterError, "methodology"):
        engine.conduct(make_study(method="methodology"), living(sites), tmp_path / "server")
    with refused(FileError, "nowhere"):
        engine.conduct("nowhere", living(sites), tmp_path / "server")


def test_a_site_that_cannot_read_its_data_refuses_and_nothing_is_raised(sites, tmp_path):
    (sites[NAMES[0]] / "data" / "rows.csv").write_text("no,table\n1\n2,3,4\n")
    with refused(SiteRefused, code="withheld"):
        read_reply(engine.open_site(sites[NAMES[0]]).handle(b""))
    with pytest.raises(NotEnoughSites) as caught:
        engine.conduct(make_study(), living(sites), tmp_path / "server")
    assert caught.value.values["reasons"] == {NAMES[0]: "withheld"}


def test_a_site_is_found_by_its_kit_folder_or_file(sites, tmp_path):
    place = sites[NAMES[0]]
    for folder in (place, place / "feddbn_site.toml", str(place)):
        assert engine.open_site(folder).name == NAMES[0]
    for nothing in (tmp_path, tmp_path / "nothing"):
        with refused(FileError, str(nothing), code="no-site"):
            engine.open_site(nothing)


def test_sites_are_made_once_for_their_owners_only(sites):
    folder = sites[NAMES[0]].parent
    made = [path for path in folder.rglob("*") if path.name != "rows.csv"]
    assert len(made) == 6 * len(NAMES)
    assert not any(path.stat().st_mode & 0o077 for path in made)
    with refused(FileError, NAMES[1], code="site-there"):
        engine.make_sites(folder, ["new", NAMES[1]])
    assert not (folder / "new").exists()


def test_owners_check_and_approve_in_kits_for_a_platform(tmp_path, umask):
    def feddbn_says(*words):
        return CliRunner().invoke(app, list(map(str, words)), prog_name="feddbn")

    named = [word for name in NAMES for word in ("--site", name)]
    assert feddbn_says("federation", "init", tmp_path, *named).exit_code == 0
    places = {name: tmp_path / "kits" / name for name in NAMES}
    for name, (table,) in MADE.sites.items():
        table.to_csv(places[name] / "data" / "rows.csv", index=False)
    path = tmp_path / "study.toml"
    path.write_text(as_toml(make_study(privacy=MASKED)))
    with pytest.raises(NotEnoughSites) as caught:
        engine.conduct(path, anew(places), tmp_path / "server")
    assert set(caught.value.values["reasons"].values()) == {"not-approved"}
    for place in places.values():
        assert feddbn_says("site", "check", "--kit", place, "--study", path).exit_code == 0
        assert feddbn_says("site", "approve", path, "--kit", place, "--yes").exit_code == 0
    assert np.any(engine.conduct(path, anew(places), tmp_path / "server").arrays["A"])
    assert feddbn_says("start", "--kit", places[NAMES[0]]).exit_code == 2


def test_a_site_that_lives_uses_the_policy_as_it_is_now_and_reads_data_for_each_run(sites, tmp_path):
    exchange, study = living(sites), make_study()
    first = engine.conduct(study, exchange, tmp_path, run="first")
    place = sites[NAMES[0]]
    table = MADE.sites[NAMES[0]][0]
    table.iloc[: len(table) // 2].to_csv(place / "data" / "rows.csv", index=False)
    second = engine.conduct(study, exchange, tmp_path, run="second")
    fresh = engine.conduct(study, anew(sites), tmp_path, run="third")
    assert not np.array_equal(first.arrays["A"], second.arrays["A"])
    np.testing.assert_array_equal(second.arrays["A"], fresh.arrays["A"])
    policy = place / "policy.toml"
    policy.write_text(policy.read_text().replace("min_sites = 3", "min_sites = 9"))
    with kept_out("few-sites", NAMES[0]):
        engine.conduct(study, exchange, tmp_path, run="fourth")


@pytest.mark.parametrize("privacy", [{}, MASKED])
def test_a_policy_that_is_tightened_within_a_run_stops_it(sites, tmp_path, privacy):
    study = make_study(method="oneshot", parameters=DEEP, privacy=privacy)
    exchange, place, asked = living(sites), sites[NAMES[0]], []
    n_messages = len(plain_messages(study, sites, tmp_path))

    def tightening(messages):
        asked.append(len(messages))
        if len(asked) == n_messages - 4:
            policy = place / "policy.toml"
            policy.write_text(policy.read_text().replace("approve_by_rule = true", "approve_by_rule = false"))
        return exchange(messages)

    with kept_out("not-approved", NAMES[0]):
        engine.conduct(study, tightening, tmp_path, run="run-1")


def plain_messages(study, sites, folder):
    """What a run of a study asks, message by message."""
    exchange, asked = anew(sites), []

    def counting(messages):
        asked.append(messages)
        return exchange(messages)

    engine.conduct(study, counting, folder, run="counted")
    return asked


def test_two_versions_of_data_are_not_mixed_in_one_run(sites, tmp_path):
    study = make_study(parameters=DEEP, privacy=MASKED)
    half = len(plain_messages(study, sites, tmp_path)) // 2
    path = sites[NAMES[0]] / "data" / "rows.csv"
    before = path.read_text()

    def changing(exchange, asked):
        def carry(messages):
            asked.append(len(messages))
            if len(asked) == half + 1:
                MADE.sites[NAMES[0]][0].iloc[:-60].to_csv(path, index=False)
            return exchange(messages)

        return carry

    # A process that lives goes on with what it has read.
    whole = engine.conduct(study, living(sites), tmp_path, run="whole")
    lived = engine.conduct(study, changing(living(sites), []), tmp_path, run="lived")
    np.testing.assert_array_equal(lived.arrays["A"], whole.arrays["A"])
    path.write_text(before)
    # One that is opened anew has other data, and refuses until they are back.
    with kept_out("other-data", NAMES[0]):
        engine.conduct(study, changing(anew(sites), []), tmp_path, run="run-1")
    path.write_text(before)
    again = engine.conduct(study, anew(sites), tmp_path, run="run-1")
    np.testing.assert_array_equal(again.arrays["A"], whole.arrays["A"])
