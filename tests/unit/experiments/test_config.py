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


def test_unknown_key_is_one_sentence_that_names_file_and_key(tiny_text):
    with pytest.raises(FileError, match=r"'my.toml' has the unknown key 'sedes'; remove it or correct"):
        parse_experiment("sedes = 3\n" + tiny_text, "my.toml")


def test_unknown_key_of_a_point_is_named_with_its_place(tiny_text):
    with pytest.raises(FileError, match=r"unknown key 'points.0.n_cites'"):
        parse_experiment(tiny_text.replace("n_sites = 2,", "n_cites = 2,", 1), "my.toml")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('"strong"]', '"weak"]', "unknown protocol 'weak'"),
        ("points = [0]", "points = [7]", "quick.points has 7, but there are 2 points"),
        ('ours = "Alldata"', 'ours = "Nobody"', "column 'Nobody' is not among the columns"),
        ("values = [0.7, 0.6]", "values = [0.7]", "quoted values of W.tpr are 1, positions 2"),
        ('methods = ["alldata", "local"]', 'methods = ["local"]', "column method 'alldata' is not among"),
        ("seeds = 3", 'seeds = "x"', "seeds: Input should be a valid integer"),
    ],
)
def test_wrong_value_is_one_sentence(tiny_text, old, new, sentence):
    with pytest.raises(FileError, match="is not an experiment") as error:
        parse_experiment(tiny_text.replace(old, new, 1), "my.toml")
    assert sentence in str(error.value)


def test_text_that_is_not_toml_is_refused():
    with pytest.raises(FileError, match=r"'x.toml' is not TOML"):
        parse_experiment("name = ", "x.toml")


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(
        ParameterError, match=r"no experiment is called 'fig7'; choose all, example, varying-d"
    ):
        load_experiment("fig7")


def test_missing_file_is_a_sentence(tmp_path):
    with pytest.raises(FileError, match="cannot be read as an experiment"):
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
