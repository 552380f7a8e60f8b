from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.core.designs.design import Nuisance
from feddbn.core.designs.gram import restored
from feddbn.data import read_sites
from feddbn.errors import DataError, ParameterError, ProtocolError
from feddbn.federation.protocol.rows import Treatment
from feddbn.federation.protocol.site import notes_of
from feddbn.federation.protocol.task import run_program
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.prepare import AS_THEY_ARE, Prepare
from feddbn.federation.sums.survey import survey_program
from feddbn.federation.sums.treatment import FirstLook, asked_moments_program
from feddbn.results.remarks import treatment_findings
from reproduction.corruptions import simulate
from support.saying import only, refused
from support.sites import federation_of

pytestmark = pytest.mark.promise

AUTO = Prepare()


def made(corruptions=None, seed=20, n_sites=8, rows=200, d=6):
    return feddbn.simulate(
        d=d,
        n_sites=n_sites,
        n_samples=n_sites * rows,
        mean_degree=2,
        random_state=seed,
        corruptions=corruptions,
    )


def asked(sites, prepare=AUTO, n_lags=1):
    federation = federation_of(read_sites(sites, missing="keep"))
    return run_program(asked_moments_program(federation.variables, n_lags, prepare), federation), federation


def pooled(sites, basis=None):
    """Scatter of all lagged rows off the columns that `basis(times)` gives for each recording."""
    total = 0.0
    for tables in sites.values():
        for table in tables:
            x = table.to_numpy()
            Z, t = np.hstack([x[1:], x[:-1]]), np.arange(1, len(x))
            B = basis(t)
            Z = Z - B @ np.linalg.lstsq(B, Z, rcond=None)[0]
            total = total + Z.T @ Z
    return total


def test_clean_rows_stay_as_they_are():
    fed = made()
    found, _ = asked(fed.sites)
    assert not found.treatment.done_to_rows
    assert found.center == "none"
    assert found.n_disagreeing == 0
    plain, _ = asked(fed.sites, AS_THEY_ARE)
    assert np.array_equal(found.moments.scatter, plain.moments.scatter)


def test_trends_and_cycles_are_found_and_taken_off_as_by_least_squares():
    fed = made({"trend": None, "cycle": None, "offsets": None})
    found, _ = asked(fed.sites)
    treatment = found.treatment
    assert treatment.center == "recording"
    assert treatment.degree == 1
    assert treatment.periods == (24.0,)

    def basis(t):
        return np.stack([np.ones(len(t)), t, np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 24)], axis=1)

    left, n = pooled(fed.sites, basis), found.moments.n
    whole = n * restored(left / n, 6, Nuisance("recording", 1, (24.0,)), n / 8)
    np.testing.assert_allclose(found.moments.scatter, whole, rtol=1e-6, atol=1e-4)
    # What the series lost to them is small beside what they are.
    assert np.abs(left - whole).max() < 0.1 * np.abs(whole).max()
    assert found.own_shares.shape == (6,)
    assert found.own_shares.min() > 0.3


@pytest.mark.parametrize(("level", "empty"), [(0.0, 0.0), (0.2, 0.0), (0.5, 0.2), (3.0, 0.0)])
def test_levels_of_short_recordings_leave_the_rows_as_they_were_without(level, empty):
    """What is learned from hardly depends on levels, and recordings of 10 to 60 rows do not bias it."""
    rng = np.random.default_rng(12)
    A = np.array([[0.7, 0.3], [0.0, 0.6]])
    sites = {f"s{k}": [] for k in range(4)}
    for r in range(240):
        x = lfiltered(rng, int(rng.integers(10, 61)), A) + level * rng.standard_normal(2)
        x[rng.random(x.shape) < empty] = np.nan
        sites[f"s{r % 4}"].append(pd.DataFrame(x, columns=["u", "v"]))
    found, _ = asked(sites)
    assert found.treatment.degree == 0
    G = found.moments.scatter
    # As they are within recordings of 35 rows in the mean, rows have a bias of (1 + .7) / 35 (Nickell).
    np.testing.assert_allclose(np.linalg.solve(G[2:, 2:], G[2:, :2]), A, atol=0.04)
    if level < 0.5:
        return
    assert found.center == "recording"
    variance = level**2 / (level**2 + np.diag(G)[:2] / found.moments.n)
    np.testing.assert_allclose(found.own_shares, variance, atol=0.05)


def lfiltered(rng, n, A, n_before=60):
    x = rng.standard_normal((n + n_before, 2))
    for t in range(1, len(x)):
        x[t] += x[t - 1] @ A
    return x[n_before:]


@pytest.mark.parametrize("seed", range(3))
def test_short_recordings_are_not_detrended(seed):
    found, _ = asked(feddbn.simulate(d=5, n_sites=64, n_samples=512, random_state=seed).sites)
    assert not found.treatment.done_to_rows
    assert found.center == "none"


def test_given_nuisances_cost_no_further_matrix():
    fed = made()
    found, _ = asked(fed.sites, replace(AS_THEY_ARE, center="recording", detrend=2, period=12.0))
    assert found.treatment.degree == 2
    assert found.treatment.periods == (12.0,)
    assert found.evidence is None

    def basis(t):
        angle = 2 * np.pi * t / 12
        return np.stack([np.ones(len(t)), t, t**2, np.sin(angle), np.cos(angle)], axis=1)

    np.testing.assert_allclose(found.moments.scatter, pooled(fed.sites, basis), rtol=1e-6, atol=1e-6)


def test_gains_bring_sites_to_one_scale():
    fed = made("gains")
    found, _ = asked(fed.sites)
    assert found.treatment.log_scales is not None
    assert found.gains_evidence > 0
    _, federation = asked(made().sites)
    question = found.treatment.on(GramQuestion(n_lags=1, variables=federation.variables))
    scales = []
    for site in read_sites(fed.sites).values():
        rows = np.concatenate([b.values for r in question.treated(site).recordings() for b in r.blocks()])
        scales.append(np.log(rows.std(axis=0)))
    assert np.std(scales, axis=0).max() < 0.1


def test_spikes_are_bounded_clean_rows_are_used_as_they_are_and_off_is_off():
    found, _ = asked(made("spikes").sites)
    assert found.treatment.robust == "site"
    assert found.bounded == tuple(range(6))
    # Every spike is 15 standard deviations off, so the look counts them all.
    sites = [np.concatenate([np.asarray(f) for f in frames]) for frames in made("spikes").sites.values()]
    clean = [np.concatenate([np.asarray(f) for f in frames]) for frames in made().sites.values()]
    n_spikes = sum((a != b).sum(axis=0) for a, b in zip(sites, clean, strict=True))
    np.testing.assert_array_equal(found.survey.n_far, n_spikes)
    plain, _ = asked(made().sites)
    assert plain.treatment.robust == "none"
    assert plain.bounded == ()
    off, _ = asked(made().sites, replace(AS_THEY_ARE, robust="off"))
    auto, _ = asked(made().sites, replace(AS_THEY_ARE, robust="auto"))
    np.testing.assert_array_equal(off.moments.scatter, auto.moments.scatter)
    kept, _ = asked(made("spikes").sites, replace(AS_THEY_ARE, center="auto", robust="off", missing="fill"))
    assert kept.treatment.robust == "none"
    np.testing.assert_allclose(np.diag(found.moments.scatter), np.diag(plain.moments.scatter), rtol=0.05)
    assert np.diag(kept.moments.scatter).min() > 1.5 * np.diag(plain.moments.scatter).min()


@pytest.mark.filterwarnings("ignore::feddbn.errors.ResidualsWarning")
def test_what_is_bounded_is_said_with_what_it_costs():
    sites = {name: [frame.copy() for frame in frames] for name, frames in made().sites.items()}
    for (frame,) in sites.values():
        frame.iloc[[30, 75], 1] += 40.0
    said = feddbn.FDBNL(n_lags=1).fit(sites)
    n = 2 * len(sites)
    told = only(said.findings_, "cells-bounded")
    assert told.about == ("x1",)
    assert told.values["n"] == n
    assert told.values["share"] == pytest.approx(n / said.treatment_["n_rows"])
    assert told.cure == {"prepare.robust": "off"}
    assert said.treatment_["bounded"] == {"x1": n}


@pytest.mark.parametrize("has_levels", [True, False])
def test_levels_of_series_that_remember_themselves_are_seen_where_a_fifth_of_the_cells_is_empty(has_levels):
    rng, sites = np.random.default_rng(900), {}
    for k in range(3):
        of_site, sites[f"s{k}"] = 0.8 * rng.standard_normal(5), []
        for _ in range(6):
            x, e = np.zeros((200, 5)), 0.8 * rng.standard_normal((200, 5))
            for t in range(1, 200):
                x[t] = 0.6 * x[t - 1] + e[t]
            x += has_levels * (of_site + 0.6 * rng.standard_normal(5))
            x[rng.random(x.shape) < 0.2] = np.nan
            sites[f"s{k}"].append(pd.DataFrame(x, columns=list("abcde")))
    found, _ = asked(sites)
    assert found.center == ("recording" if has_levels else "none")


@pytest.mark.parametrize("corruptions", ["other-units", "mixed-columns"])
def test_an_odd_site_stays_out_and_only_its_owner_is_told(corruptions):
    fed = made(corruptions)
    found, federation = asked(fed.sites)
    assert found.n_disagreeing == 1
    assert found.treatment.abstain
    told = [name for name in federation.sites if notes_of(federation.state_of(name))]
    assert len(told) == 1
    others = {name: tables for name, tables in fed.sites.items() if name != told[0]}
    without, _ = asked(others, replace(AS_THEY_ARE, center=found.center))
    np.testing.assert_allclose(found.moments.scatter, without.moments.scatter)
    kept, _ = asked(fed.sites, replace(AS_THEY_ARE, center="auto", on_disagreement="warn"))
    assert kept.n_disagreeing == 1
    assert not kept.treatment.abstain


def test_scales_that_sites_are_brought_to_do_not_depend_on_a_site_that_stays_out():
    fed = made({"gains": None, "other-units": None})
    found, federation = asked(fed.sites)
    (odd,) = [name for name in federation.sites if notes_of(federation.state_of(name))]
    assert found.treatment.abstain
    larger = {name: [t * (30.0 if name == odd else 1.0) for t in ts] for name, ts in fed.sites.items()}
    again, _ = asked(larger)
    assert again.treatment.log_scales is not None
    np.testing.assert_array_equal(again.treatment.log_scales, found.treatment.log_scales)
    assert not np.allclose(again.survey.log_scales, found.survey.log_scales, atol=0.1)
    rows = np.concatenate([t.to_numpy()[1:] for name, ts in fed.sites.items() if name != odd for t in ts])
    np.testing.assert_allclose(found.treatment.log_scales, np.log(rows.std(axis=0)), atol=0.02)


def test_a_site_that_stays_out_is_in_no_sum_after_it_found_out():
    """So no two sums of one kind, one with the site and one without, tell what is its."""
    federation = federation_of(read_sites(made({"gains": None, "other-units": None}).sites, missing="keep"))
    tasks = []
    program = asked_moments_program(federation.variables, 1, AUTO)
    run_program(program, federation, lambda task, _: tasks.append(task))
    (odd,) = [name for name in federation.sites if notes_of(federation.state_of(name))]
    kinds = [task.name for task in tasks]
    first = kinds.index("agree") + 1
    assert "survey.first" not in kinds[first:]
    assert "gram.rows" not in kinds[:first]
    assert kinds[first:].count("gram.rows") == 2
    assert not any(federation.site(odd).answer(task).any() for task in tasks[first:])


@pytest.mark.parametrize(
    ("n", "n_slower", "stay_out"),
    [(0, 0, False), (2, 0, True), (3, 0, False), (5, 5, True), (5, 3, True), (5, 2, False), (6, 6, False)],
)
def test_few_odd_sites_or_slower_ones_stay_out_if_three_are_left(n, n_slower, stay_out):
    survey = asked(made().sites)[0].survey
    assert FirstLook(survey, n, n_slower).has_few_odd is stay_out


@pytest.mark.parametrize("n_slow", [1, 4])
def test_sites_with_every_second_row_stay_out(n_slow):
    fed = made(rows=400)
    sites = {
        name: [t.iloc[:: 2 if k < n_slow else 1] for t in ts]
        for k, (name, ts) in enumerate(fed.sites.items())
    }
    found, federation = asked(sites)
    told = [name for name in federation.sites if notes_of(federation.state_of(name))]
    assert told == list(federation.sites)[:n_slow]
    assert (found.n_disagreeing, found.n_slower, found.treatment.abstain) == (n_slow, n_slow, True)
    left, _ = asked({name: sites[name] for name in sites if name not in told})
    np.testing.assert_allclose(found.moments.scatter, left.moments.scatter)
    told = treatment_findings(found, federation.variables)
    (one,) = [finding for finding in told if finding.code in ("two-rates", "sites-disagree")]
    assert (one.code, one.values["n"], one.values["left_out"]) == ("two-rates", n_slow, True)


@pytest.mark.parametrize("center", ["none", "recording"])
def test_pairs_that_no_row_holds_together_are_named(center):
    sites = {}
    for k, (name, (table,)) in enumerate(made(d=4, n_sites=4).sites.items()):
        sites[name] = table.copy()
        sites[name].iloc[:, k % 2] = np.nan
    found, _ = asked(sites, replace(AS_THEY_ARE, center=center, missing="fill"))
    assert found.unseen == ((0, 1, 0), (0, 1, 1), (1, 0, 1))
    model = feddbn.FDBNL(n_lags=1).fit(sites)
    assert only(model.findings_, "pairs-unseen").values["pairs"] == [["x0", "x1", [0, 1]]]
    assert model.treatment_["unseen_pairs"] == [["x0", "x1", 0], ["x0", "x1", 1], ["x1", "x0", 1]]


def test_a_column_read_every_other_row_is_never_seen_with_its_past():
    sites = {name: [t.copy() for t in tables] for name, tables in made(d=4, n_sites=4).sites.items()}
    for (table,) in sites.values():
        table.iloc[::2, 2] = np.nan
    found, _ = asked(sites, replace(AS_THEY_ARE, missing="fill"))
    assert found.unseen == ((2, 2, 1),)
    model = feddbn.OneShotDBN(n_lags=1).fit(sites)
    assert only(model.findings_, "pairs-unseen").values["pairs"] == [["x2", "x2", [1]]]


def test_pairs_that_are_seen_are_not_named():
    assert asked(made({"missing": 0.3}).sites)[0].unseen == ()
    assert asked(made({"missing": 0.1}, n_sites=8, rows=20).sites)[0].unseen == ()


def test_rows_that_all_lack_a_cell_are_refused_with_the_cure():
    sites = {name: tables[0].copy() for name, tables in made(d=4, n_sites=4).sites.items()}
    for table in sites.values():
        table.iloc[::2, 0] = np.nan
    with refused(DataError, "missing='fill'"):
        asked(sites, AS_THEY_ARE)


def test_the_survey_sends_no_total_and_no_product_of_the_data():
    """Adding a constant to a recording changes nothing that a site tells in its first look."""
    fed = made(n_sites=4)
    shifted = {name: [t + 1000.0 for t in tables] for name, tables in fed.sites.items()}
    looks = []
    for sites in (fed.sites, shifted):
        federation = federation_of(read_sites(sites))
        answers = []
        run_program(
            survey_program(federation.variables, 1), federation, lambda _, s, a=answers: a.append(s.value)
        )
        looks.append(answers[0])
    np.testing.assert_allclose(looks[0], looks[1], rtol=1e-6, atol=1e-6)


def test_periods_are_given_as_one_or_several_numbers():
    assert [Prepare(period=given).periods for given in (None, 24, [24, 168.0], "auto")] == [
        (),
        (24.0,),
        (24.0, 168.0),
        "auto",
    ]
    with pytest.raises(ParameterError, match="period"):
        Prepare(period=[np.inf])


def test_a_trend_without_means_of_recordings_is_no_question():
    with pytest.raises(ProtocolError, match="need center='recording'"):
        GramQuestion(n_lags=1, variables=("a",), degree=1)
    with refused(ProtocolError, code="bad-question"):
        GramQuestion(n_lags=1, variables=("a",), try_degrees=(1,))


def test_a_treatment_fits_questions_about_fewer_lags():
    model = np.vstack([np.zeros(4), np.eye(4)])
    question = Treatment(row_model=model).on(GramQuestion(n_lags=0, variables=("a", "b")))
    assert question.row_model.shape == (3, 2)


@pytest.mark.parametrize("noisy", [False, True])
def test_means_of_recordings_that_are_asked_for_by_name_are_taken_off(noisy):
    """Also where nothing else is done to the rows, and where sites add noise to one matrix."""
    rng = np.random.default_rng(5)
    sites = {
        f"s{k}": [pd.DataFrame(rng.normal(size=(40, 2)) + 100.0 * k, columns=["u", "v"])] for k in range(3)
    }
    found, _ = asked(
        sites, replace(AS_THEY_ARE, center="recording").answered_by(frozenset() if noisy else None)
    )
    expected = pooled(sites, lambda times: np.ones((len(times), 1)))
    if not noisy:
        # How long recordings are is only known where several matrices were asked for.
        expected = 117 * restored(expected / 117, 2, Nuisance("recording"), 39)
    np.testing.assert_allclose(found.moments.scatter, expected, rtol=1e-9)
    assert found.center == "recording"


@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_site_with_mixed_up_columns_is_named_whatever_else_is_wrong(is_mixed):
    corruptions = {
        "offsets": 3.0,
        "gains": 0.4,
        "trend": 3.0,
        "cycle": 1.5,
        "spikes": 0.005,
        "missing": 0.15,
        "heavy-tails": 5.0,
    }
    sites = dict(simulate(corruptions, d=8, n_sites=6, n_samples=1800, mean_degree=2, random_state=3).sites)
    (frame,) = sites["site-4"]
    order = np.roll(np.arange(8), 3) if is_mixed else np.arange(8)
    sites["site-4"] = [frame.iloc[:, order].set_axis(frame.columns, axis=1)]
    found, federation = asked(sites)
    assert found.n_disagreeing == is_mixed
    assert found.treatment.abstain == is_mixed
    told = [name for name in federation.sites if notes_of(federation.state_of(name))]
    assert told == (["site-4"] if is_mixed else [])
