"""on_disagreement="personal": a site that does not fit the others has a network of its own."""

import numpy as np
import pytest

import feddbn
from feddbn import FDBNL, PFDBNL, Average, BestSite, LocalOnly, OneShotDBN
from feddbn.data import read_sites
from feddbn.errors import ResultWarning
from feddbn.methods.own_networks import give_own_networks
from feddbn.methods.result import Result
from support.saying import only

pytestmark = pytest.mark.filterwarnings(f"ignore::{ResultWarning.__module__}.{ResultWarning.__name__}")


def made(mess, n_sites=8, seed=20):
    return feddbn.simulate(
        d=5, n_sites=n_sites, n_samples=200 * n_sites, mean_degree=2, random_state=seed, mess=mess
    )


@pytest.fixture(scope="module")
def mixed():
    return made("mixed-columns")


def asked(method, word):
    return method().set_params(**{"prepare.on_disagreement": word})


@pytest.mark.parametrize("method", [FDBNL, OneShotDBN, Average])
def test_the_odd_site_learns_from_its_own_rows_and_the_others_without_it(method, mixed):
    model, without = (asked(method, word).fit(mixed.sites) for word in ("personal", "exclude"))
    (odd,) = model.site_notes_
    assert model.dbn_.equals(without.dbn_)
    assert set(model.dbns_) == set(mixed.sites)
    assert all(dbn is model.dbn_ for name, dbn in model.dbns_.items() if name != odd)
    assert model.dbns_[odd].equals(method().fit({odd: mixed.sites[odd]}).dbn_)
    assert not model.dbns_[odd].equals(model.dbn_, atol=0.1)
    told = only(model.findings_, "sites-disagree").values
    assert (told["left_out"], told["personal"]) == (True, True)


def test_what_is_said_about_its_own_network_names_the_site():
    model = asked(FDBNL, "personal").fit(made("other-units").sites)
    (odd,) = model.site_notes_
    assert [one.values["site"] for one in model.findings_.of("of-site")] == [odd]


def test_a_stored_result_has_the_network_of_every_site(mixed, tmp_path):
    model = asked(FDBNL, "personal").fit(mixed.sites)
    Result.from_estimator(model).save(tmp_path / "result.json")
    again = Result.load(tmp_path / "result.json").personal
    assert {name: again[name].equals(dbn) for name, dbn in model.dbns_.items()} == dict.fromkeys(
        mixed.sites, True
    )


def test_where_all_sites_fit_all_have_the_common_network():
    model = asked(FDBNL, "personal").fit(made(None).sites)
    assert all(dbn is model.dbn_ for dbn in model.dbns_.values())
    assert not model.warnings_


def test_few_sites_are_not_compared_and_that_is_said():
    model = asked(FDBNL, "personal").fit(made(None, n_sites=3).sites)
    assert any("on_disagreement='personal' did nothing" in sentence for sentence in model.warnings_)
    assert not any(
        "did nothing" in sentence for sentence in FDBNL().fit(made(None, n_sites=3).sites).warnings_
    )


def test_methods_that_learn_a_network_for_each_site_do_it_anyway(mixed):
    personal, warned = (
        asked(PFDBNL, word).set_params(max_rounds=5).fit(mixed.sites) for word in ("personal", "warn")
    )
    assert personal.treatment_ == warned.treatment_
    assert personal.treatment_["left_out"] == 0
    assert all(personal.dbns_[name].equals(warned.dbns_[name]) for name in mixed.sites)
    alone = asked(LocalOnly, "personal").set_params(max_rounds=5).fit(mixed.sites)
    assert len({id(dbn) for dbn in alone.dbns_.values()}) == 8
    assert "dbns_" not in vars(
        asked(BestSite, "personal").set_params(max_rounds=5).fit(mixed.sites, truth=mixed.truth)
    )


def test_a_site_that_cannot_learn_alone_is_named(mixed):
    model = asked(FDBNL, "personal").fit(mixed.sites)
    (odd,) = model.site_notes_
    given = {name: frames[0] for name, frames in mixed.sites.items()}
    stuck = read_sites({**given, odd: given[odd].assign(x0=5.0)})

    class Stayed:
        sites = tuple(stuck)

        def state_of(self, site):
            return {"agreement.abstains": np.ones(1)} if site == odd else {}

    give_own_networks(model, Stayed(), stuck)
    assert set(model.dbns_) == set(mixed.sites) - {odd}
    assert model.warnings_[-1].startswith(f"site {odd!r} has no network of its own: ")
    assert "x0" in model.warnings_[-1]
