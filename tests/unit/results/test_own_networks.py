"""on_disagreement="personal": a site that does not fit the others has a network of its own."""

import numpy as np
import pytest

import feddbn
from feddbn import FDBNL, PFDBNL, Average, OneShotDBN, PersonalRounds, Prepare
from feddbn.errors import ResultWarning
from feddbn.results.result import Result
from support.saying import only

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{ResultWarning.__module__}.{ResultWarning.__name__}"),
]


def made(corruptions, n_sites=8, seed=20):
    return feddbn.simulate(
        d=5,
        n_sites=n_sites,
        n_samples=200 * n_sites,
        mean_degree=2,
        random_state=seed,
        corruptions=corruptions,
    )


@pytest.fixture(scope="module")
def mixed():
    return made("mixed-columns")


@pytest.mark.slow
@pytest.mark.parametrize("method", [FDBNL, OneShotDBN, Average])
def test_the_odd_site_learns_from_its_own_rows_and_the_others_without_it(method, mixed):
    model, without = (
        method(prepare=Prepare(on_disagreement=word)).fit(mixed.sites) for word in ("personal", "exclude")
    )
    (odd,) = model.site_notes_
    assert model.dbn_.equals(without.dbn_)
    assert set(model.dbns_) == set(mixed.sites)
    assert all(dbn is model.dbn_ for name, dbn in model.dbns_.items() if name != odd)
    assert model.dbns_[odd].equals(method().fit({odd: mixed.sites[odd]}).dbn_)
    far = model.dbns_[odd].adjacency_matrices - model.dbn_.adjacency_matrices
    assert np.abs(far).max() > 0.1
    assert only(model.findings_, "sites-disagree").values["personal"]


def test_what_is_said_about_its_own_network_names_the_site():
    model = FDBNL(prepare=Prepare(on_disagreement="personal")).fit(made("other-units").sites)
    (odd,) = model.site_notes_
    (told,) = [one.values for one in model.findings_.of("of-site") if one.values["what"]]
    assert (told["site"], told["finding"]["code"]) == (odd, "variables-scaled")


def test_odd_sites_in_the_sums_are_an_error_and_come_first_with_the_reason(mixed):
    warn = Prepare(on_disagreement="warn")
    found = OneShotDBN(prepare=warn, check_residuals=False).fit(mixed.sites).findings_
    first = {(one.code, one.level) for one in found.single[:2]}
    assert first == {("sites-disagree", "error"), ("site-note", "error")}
    # A network for each is not wrong for any.
    told = PFDBNL(prepare=warn, rounds=PersonalRounds(max_rounds=2)).fit(mixed.sites).findings_
    assert {one.level for one in told.of("sites-disagree")} == {"warning"}


def test_a_stored_result_has_the_network_of_every_site(mixed, tmp_path):
    model = FDBNL(prepare=Prepare(on_disagreement="personal")).fit(mixed.sites)
    Result.from_estimator(model).save(tmp_path / "result.json")
    again = Result.load(tmp_path / "result.json").personal
    assert {name: again[name].equals(dbn) for name, dbn in model.dbns_.items()} == dict.fromkeys(
        mixed.sites, True
    )


def test_where_all_sites_fit_all_have_the_common_network():
    model = FDBNL(prepare=Prepare(on_disagreement="personal")).fit(made(None).sites)
    assert all(dbn is model.dbn_ for dbn in model.dbns_.values())
    assert {one.level for one in model.findings_} <= {"good"}
