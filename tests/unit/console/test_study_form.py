import tomllib

import pytest

from feddbn.console.study_form import blank, fields_of, methods, text_of, toml_text
from feddbn.federation.protocol.study import parse_study
from feddbn.method_table import STUDY_METHODS
from support.owned_sites import make_study
from support.study_files import ABOUT

pytestmark = pytest.mark.usefixtures("light")

STUDIES = [
    make_study(),
    make_study(units={"u": "mm Hg", "v": "a = b"}, step="1 h", rows=400),
    make_study(goal="confidence", confidence={"replicates": 50}, parameters={"n_lags": 2}),
    make_study(
        goal="select", method="fdbnl", parameters={"n_lags": "auto"}, select={"grid": {"mu": (1, 0.5)}}
    ),
    make_study(
        privacy={"secure_aggregation": True, "min_sites": 2, "epsilon": 1e-5, "unit": "row", "delta": 1e-9}
    ),
    make_study(privacy={"keepers": ("k", "l")}),
    make_study(
        some_variables_may_be_missing=True, held_by={"u": ("north",)}, attendance={"when_missing": "collect"}
    ),
    make_study(variables=("a b", 'quo"te', "back\\slash", "ä"), parameters={"kinds": {"a b": "count"}}),
]


@pytest.mark.parametrize("study", STUDIES)
def test_the_fields_of_a_study_make_it_again(study):
    assert parse_study(text_of(fields_of(study))) == study


def test_a_new_study_asks_all_sites_under_masks():
    study = parse_study(text_of({**blank("me", ("a", "b")), "name": "x", "variables": "u\n", **ABOUT}))
    assert (study.sites, study.lead, study.n_lags) == (("a", "b"), "me", 1)
    assert (study.privacy.secure_aggregation, study.privacy.min_sites) == (True, 2)


def test_every_method_of_studies_is_offered_once():
    usual, others = methods()
    assert len(usual) == 5
    assert sorted(name for name, _ in usual + others) == sorted(row.name for row in STUDY_METHODS)


def test_text_that_cannot_be_read_stays_in_the_file():
    text = text_of({"name": "x", "more": "[parameters"})
    assert "[parameters" in text
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads(text)


def test_what_is_written_reads_back():
    values = {"a": [1, 2.5, "x\ny"], "t": {"q": {"deep": [True]}, "s": "\t"}, "odd key": -1e-300}
    assert tomllib.loads(toml_text(values)) == values
    assert toml_text({}) == ""
