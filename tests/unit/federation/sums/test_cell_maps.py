"""Cell maps: what is made of each cell by itself is the same in all questions, and only what a study says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import feddbn
import feddbn.analysis.studies
from feddbn.core.designs.cells import CELL_MAPS
from feddbn.data import read_sites
from feddbn.errors import FederationError, ParameterError, ProtocolError, SiteRefused
from feddbn.federation.guards.study_plan import scope_of
from feddbn.federation.protocol.endpoint import SiteEndpoint
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.site import Here, Site, site_task
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import run_program
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.prepare import AS_THEY_ARE
from feddbn.federation.sums.treatment import asked_moments_program
from feddbn.findings import Finding
from feddbn.privacy.policy import TRANSFORMATIONS, SitePolicy
from feddbn.runtime.server.conduct import run_study
from feddbn.runtime.server.coordinator import Coordinator
from feddbn.runtime.settings import SiteSettings
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.site.open_site import study_checks
from feddbn.runtime.site.protection import Protection
from feddbn.words import say
from support.faults import LocalExchange, MemoryJournal, MemoryStore
from support.study_files import ABOUT

CODE = -999.0
MADE = feddbn.simulate(d=3, n_sites=4, n_samples=800, mean_degree=2, random_state=1)


def with_cells(value):
    """The data with `value` in the same cells, enough of them for sites that count."""
    rng = np.random.default_rng(0)
    found = {}
    for name, frames in MADE.sites.items():
        found[name] = [frame.mask(rng.random(frame.shape) < 0.06, value) for frame in frames]
    return found


CODED, EMPTY = with_cells(CODE), with_cells(np.nan)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("cls", "given"),
    [
        ("OneShotDBN", {}),
        ("OneShotDBN", {"missing": "drop", "on_disagreement": "ignore"}),
        ("OneShotDBN", dict(AS_THEY_ARE)),
        ("FDBNL", {}),
        ("PFDBNL", {}),
        ("Average", {}),
        ("ChangingDBN", {}),
        ("LatentDBN", {}),
    ],
)
def test_a_fit_on_codes_is_the_fit_on_empty_cells(cls, given):
    kind = getattr(feddbn, cls)
    coded = kind(prepare=feddbn.Prepare(**given, empty_values=[CODE])).fit(CODED)
    empty = kind(prepare=feddbn.Prepare(**given)).fit(EMPTY)
    np.testing.assert_array_equal(coded.A_, empty.A_)
    codes = coded.findings_.codes
    assert "cells-empty_values" in codes
    assert "sentinel" not in codes
    assert coded.treatment_["cell_maps"] == [f"empty_values=[{CODE}]"]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_without_its_name_a_code_is_a_value_and_a_fit_says_how_to_name_it():
    (found, *_) = [one for one in feddbn.OneShotDBN().fit(CODED).findings_ if one.code == "sentinel"]
    assert found.cure == {"prepare.empty_values": CODE}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_question_about_rows_has_the_map(monkeypatch):
    asked = []
    plain = InProcessFederation.sum

    def recorded(self, task):
        asked.append(task.question)
        return plain(self, task)

    monkeypatch.setattr(InProcessFederation, "sum", recorded)
    model = feddbn.OneShotDBN(prepare=feddbn.Prepare(empty_values=CODE))
    feddbn.confidence(model, CODED, n_replicates=3, random_state=0)
    feddbn.select(feddbn.FDBNL(prepare=feddbn.Prepare(empty_values=CODE)), CODED, {"n_lags": [1, 2]})
    about_rows = [one for one in asked if isinstance(one, RowsQuestion)]
    assert len({one.name for one in about_rows}) > 4
    assert {one.name for one in about_rows if one.cell_maps != (f"empty_values={CODE}",)} == set()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_new_rows_are_added_with_the_map():
    prepare = {"missing": "drop", "on_disagreement": "ignore", "center": "none", "detrend": 0, "period": None}
    halves = [
        {name: [frame[part] for frame in frames] for name, frames in CODED.items()}
        for part in (slice(0, 100), slice(100, None))
    ]
    model = feddbn.OneShotDBN(prepare=feddbn.Prepare(**prepare, empty_values=CODE)).fit(halves[0])
    model.update(halves[1])
    n = model.n_samples_
    empties = [{name: [f.replace(CODE, np.nan) for f in v] for name, v in half.items()} for half in halves]
    other = feddbn.OneShotDBN(prepare=feddbn.Prepare(**prepare)).fit(empties[0])
    other.update(empties[1])
    assert n == other.n_samples_
    np.testing.assert_array_equal(model.A_, other.A_)


def test_moments_with_noise_are_of_mapped_cells():
    prepare = feddbn.Prepare(empty_values=CODE).resolved().answered_by(frozenset(("gram.rows",)))
    assert prepare.noisy

    def moments(data, rows):
        sites = {name: Site(name, one) for name, one in read_sites(data, missing="keep").items()}
        return run_program(asked_moments_program(("x0", "x1", "x2"), 1, rows), InProcessFederation(sites))

    coded = moments(CODED, prepare).moments
    empty = moments(EMPTY, feddbn.Prepare().resolved().answered_by(frozenset(("gram.rows",)))).moments
    np.testing.assert_array_equal(coded.scatter, empty.scatter)


def study(**parameters):
    return Study(
        name="s",
        about=ABOUT,
        method="oneshot",
        variables=("x0", "x1", "x2"),
        sites=tuple(MADE.sites),
        parameters=parameters,
    )


def deployed(policy, given, directory, cells=CODED):
    data = read_sites(cells, missing="keep")

    def endpoint(name):
        settings = SiteSettings(name=name, data=directory, state=directory / name)
        guards = Protection(settings.state, name, policy, data[name]).guards
        checks = study_checks(settings, policy, data[name])
        return SiteEndpoint(Site(name, data[name]), MemoryStore(name), checks=checks, guards=guards)

    exchange = LocalExchange(tuple(data), endpoint)
    coordinator = Coordinator(exchange, given, "run-1", MemoryJournal(), pause_s=0.0, opening_s=0.0)
    return run_study(coordinator, given)[0]


@pytest.mark.slow
def test_a_study_that_names_codes_runs_where_sites_allow_it(tmp_path):
    given = study(**{"prepare.empty_values": CODE})
    found = deployed(SitePolicy(require_masking=False, min_rows=5), given, tmp_path / "a")
    empty = deployed(SitePolicy(require_masking=False, min_rows=5), study(), tmp_path / "c", EMPTY)
    np.testing.assert_allclose(found.arrays["A"], empty.arrays["A"], atol=1e-9)
    others = tuple(name for name in TRANSFORMATIONS if name != "empty_values")
    with pytest.raises(FederationError, match="empty_values"):
        deployed(SitePolicy(require_masking=False, transformations=others), given, tmp_path / "b")


@pytest.mark.parametrize("maps", [(), ("empty_values=-999.0", "empty_values=3"), ("empty_values=3",)])
def test_a_question_has_the_maps_of_its_study_and_no_others(maps):
    scope = scope_of(study(**{"prepare.empty_values": CODE}), 3)
    question = GramQuestion(n_lags=1, variables=("x0", "x1", "x2"), cell_maps=("empty_values=-999.0",))
    question.check_scope(scope)
    with pytest.raises(SiteRefused) as refused:
        GramQuestion(n_lags=1, variables=("x0", "x1", "x2"), cell_maps=maps).check_scope(scope)
    assert refused.value.code == "not-in-study"


@pytest.mark.parametrize(
    "text", ["nothing=1", "empty_values=", 'empty_values="a"', "empty_values=NaN", "empty_values"]
)
def test_a_site_refuses_what_is_no_map(text):
    with pytest.raises(ProtocolError) as refused:
        GramQuestion(n_lags=1, variables=("x0",), cell_maps=(text,))
    assert refused.value.code == "bad-question"


def test_what_is_no_value_is_refused_by_its_name():
    with pytest.raises(ParameterError, match=r"empty_values='none'.*number"):
        feddbn.Prepare(empty_values="none")


@pytest.mark.parametrize("name", CELL_MAPS)
def test_every_map_has_its_field_and_its_words(name):
    assert name in feddbn.Prepare.given_names()
    assert say(Finding(f"cells-{name}", "note", {"value": 1}))


def test_nothing_that_is_remembered_of_cells_as_they_are_serves_for_mapped_ones():
    (name, data) = next(iter(read_sites(CODED, missing="keep").items()))
    plain = GramQuestion(n_lags=1, variables=("x0", "x1", "x2"))
    mapped = replace(plain, cell_maps=(f"empty_values={CODE}",))
    task = site_task("gram.rows")
    state, _ = task.answer(Here(name, data, {}), plain)
    after, fresh = (task.answer(Here(name, data, one), mapped)[1] for one in (state, {}))
    np.testing.assert_array_equal(after, fresh)
    assert plain.in_view(data, name)[0].key != mapped.in_view(data, name)[0].key
    assert plain.constants[0].digest != mapped.constants[0].digest
