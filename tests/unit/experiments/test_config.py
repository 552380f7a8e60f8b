import re

import pytest
from pydantic import ValidationError

from feddbn.errors import FileError, ParameterError
from feddbn.experiments.cells import METHODS, expand
from feddbn.experiments.config import (
    STANDARD_COLUMNS,
    experiment_names,
    load_experiment,
    load_experiments,
    parse_experiment,
)
from feddbn.experiments.tables import position
from support.saying import refused


def test_every_shipped_experiment_is_valid_and_names_itself_as_its_file():
    assert [one.name for one in load_experiments("all")] == list(experiment_names())
    assert len(experiment_names()) == 15


def test_every_figure_and_table_of_the_paper_has_an_experiment():
    labels = "".join(figure for one in load_experiments() for figure in one.figures)
    names = """example vary_d vary_d_a 10d_512client 20d_512client 10d_256client
    20d_256client 10d_512client_a 20d_512client_a 10d_256client_a 20d_256client_a compare_two
    all_sp all_de partial VC_10 VC_20 dream4_comp
    dream4_re perf:d15 fMRI_re"""
    for label in re.findall(r"\S+", names):
        assert f"'{label}'" in labels, label


def test_every_method_is_in_every_simulated_experiment_that_has_room_for_it():
    everything = {column.method for column in STANDARD_COLUMNS}
    for one in load_experiments():
        if one.kind in ("federation", "personal", "example") and one.name != "partial-participation":
            assert set(one.methods) == everything, one.name


def test_every_method_of_an_experiment_is_registered_and_every_simulated_one_has_both_protocols():
    for one in load_experiments():
        assert set(one.methods) <= set(METHODS)
        if one.kind not in ("dream4", "netsim"):
            assert one.protocols == ("paper-text", "strong")


def test_quoted_positions_exist_on_the_axis():
    for one in load_experiments():
        if one.kind in ("dream4", "netsim"):
            continue
        axis = {position(one, point) for point in one.points}
        for quoted in one.quoted:
            assert set(quoted.at) <= axis, (one.name, quoted.at)
        for claim in one.claims:
            assert set(claim.at) <= axis, (one.name, claim.at)


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("name =", "sedes = 3\nname =", ("'sedes'",)),
        ("n_sites = 2,", "n_cites = 2,", ("'points.0.n_cites'",)),
        ('"strong"]', '"weak"]', ("'weak'",)),
        ("points = [0]", "points = [7]", ("quick.points", 7)),
        ('ours = "Alldata"', 'ours = "Nobody"', ("'Nobody'",)),
        ("values = [0.7, 0.6]", "values = [0.7]", ("W.tpr", 1, 2)),
        ('methods = ["alldata", "local"]', 'methods = ["local"]', ("'alldata'",)),
        ("seeds = 3", 'seeds = "x"', ("seeds",)),
        ("name =", "name", ("TOML",)),
    ],
)
def test_what_is_wrong_is_one_sentence_that_names_file_and_key(tiny_text, old, new, names):
    with refused(FileError, "'my.toml'", *names):
        parse_experiment(tiny_text.replace(old, new, 1), "my.toml")


def test_unknown_names_and_missing_files_are_refused(tmp_path):
    with refused(ParameterError, "'fig7'", "varying-d"):
        load_experiment("fig7")
    with refused(FileError, "no.toml"):
        load_experiment(str(tmp_path / "no.toml"))


def test_a_file_of_the_users_own_is_read(tmp_path, tiny_text):
    file = tmp_path / "mine.toml"
    file.write_text(tiny_text)
    assert load_experiment(str(file)).name == "tiny"


def test_an_experiment_cannot_be_changed(tiny):
    with pytest.raises(ValidationError):
        tiny.seeds = 4


def test_quick_grids_have_every_experiment_and_few_cells():
    sizes = {one.name: len(expand(one, quick=True)) for one in load_experiments()}
    assert min(sizes.values()) >= 1
    assert sum(sizes.values()) < 120
