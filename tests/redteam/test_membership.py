"""Sums over other sites, or over other data, that a hostile server or lead would subtract from one another."""

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn import FDBNL
from feddbn.core.statistics.moments import Moments
from feddbn.data import read_sites
from feddbn.errors import AggregationError, NotEnoughSites, ProtocolError, SiteRefused
from feddbn.federation.protocol.site import Site
from feddbn.federation.sums.gram import GramQuestion
from feddbn.runtime.simulated.secure import secure_federation
from feddbn.runtime.site.check import why_refused
from feddbn.runtime.site.open_site import read_data
from feddbn.runtime.site.registers import RecordingBook
from feddbn.runtime.store import FileStore
from support.consortium import Consortium, Liar, Refused, by_rule, spread
from support.saying import refused

pytestmark = pytest.mark.promise


def consortium(place, k=4, rows=200, policy="", n_recordings=1):
    return Consortium(place, spread(k, 3, rows, n_recordings), by_rule(more=policy))


@pytest.fixture
def sites(tmp_path):
    return consortium(tmp_path)


def moments(sites, n_lags=1, **more):
    return GramQuestion(n_lags=n_lags, variables=sites.variables, **more)


def added_up(sites, run, names=None, **more):
    """The sum of moments over sites in a run of its own."""
    return Liar(sites, sites.study(sites=tuple(names or sites.names), **more), run).sum(moments(sites))


# Within a run -------------------------------------------------------------------------------------------------------------
def test_a_sum_over_some_participants_is_not_made_and_an_invented_parameter_makes_no_other_question(sites):
    liar = Liar(sites, sites.study())
    with pytest.raises(Refused):
        liar.sum(moments(sites), params={**moments(sites).params, "nonce": 1})
    opened = liar.sum(moments(sites))
    np.testing.assert_allclose(opened.value[0], sum(sites.moments(name)[0] for name in sites.names))
    with refused(ProtocolError, code="some-sites-only"):
        liar.sum(moments(sites), participants=sites.names[:3])


@pytest.mark.parametrize("restart", [False, True])
def test_the_same_task_is_not_opened_again_without_one_site(sites, restart):
    Liar(sites, sites.study()).sum(moments(sites), shown=77)
    if restart:
        sites.restart()
    again = Liar(sites, sites.study())
    again.closed(moments(sites), "shows-few-sites", 3, alive=sites.names[:3], shown=77)


@pytest.mark.parametrize("restart", [False, True])
def test_the_sites_of_the_first_sum_of_a_run_are_those_of_all_its_sums(tmp_path, monkeypatch, restart):
    """Seven of ten differ by three: fewer than the five that show two honest ones if three work with the server."""
    sites = consortium(tmp_path, 10, 30)
    liar = Liar(sites, sites.study("fdbnl"))
    liar.sum(moments(sites))
    # The answer is stored for the same sites, so that opening it needs no second record.
    saved = []
    keep = FileStore.save
    with monkeypatch.context() as patched:
        patched.setattr(FileStore, "save", lambda self, record: (saved.append(record), keep(self, record)))
        liar.sum(moments(sites))
    assert [record.opened for record in saved] == [sites.names] * 10
    if restart:
        sites.restart()
        liar.again()
    liar.closed(moments(sites), "shows-few-sites", 5, alive=sites.names[:7])


def test_a_first_sum_that_was_never_opened_may_be_of_fewer_sites(tmp_path):
    sites = consortium(tmp_path, 10, 30)
    liar = Liar(sites, sites.study("fdbnl")).keys()
    liar.mask_each(dict.fromkeys(sites.names, moments(sites)))
    assert len(liar.sum(moments(sites), seq=0, alive=sites.names[:7]).contributors) == 7


def test_a_noise_share_that_was_drawn_for_many_sites_is_not_opened_in_a_sum_of_few(tmp_path):
    sites = consortium(tmp_path, 9, 12, "max_epsilon = 1.0\n", n_recordings=3)
    study = sites.study(privacy={"epsilon": 1.0, "delta": 1e-5, "clip": 5.0})
    Liar(sites, study, threshold=9).keys().mask_each(dict.fromkeys(sites.names, moments(sites)))
    few = Liar(sites, study, names=sites.names[:7], threshold=7)
    few.closed(moments(sites), "noise-share", 9, 7)


def test_an_honest_server_that_loses_a_site_opens_no_sum_without_it():
    data = read_sites({name: x for name, (x,) in spread(5, 3, 100).items()})
    opened = []

    def fault(site, phase):
        return "request lost" if site == "s4" and phase == "masked" and len(opened) >= 2 else None

    federation = secure_federation({name: Site(name, data[name]) for name in data}, fault=fault)

    class Watched:
        sites, variables, answered_tasks = federation.sites, federation.variables, None

        def state_of(self, site):
            return None

        def sum(self, task):
            answer = federation.sum(task)
            opened.append(answer.contributors)
            return answer

    with refused(AggregationError, 3, code="shows-few-sites"):
        FDBNL(federation=Watched()).fit(None)
    assert opened == [tuple(data)] * 2


# Over runs ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("second", [(0, 1, 2), (0, 1, 2, 4)])
def test_a_second_run_over_other_sites_is_refused(tmp_path, second):
    sites = consortium(tmp_path, 5)
    added_up(sites, "run-1", sites.names[:4])
    sites.restart()
    with pytest.raises(Refused) as caught:
        added_up(sites, "run-2", [sites.names[k] for k in second])
    assert "shows-few-sites" in caught.value.codes.values()


@pytest.mark.parametrize("last", [range(7), range(3, 7)])
def test_three_runs_that_differ_by_three_sites_each_do_not_show_the_seventh(tmp_path, last):
    """s6 has never been asked; it knows of the others' sums because they sign them."""
    sites = consortium(tmp_path, 7, 30)
    added_up(sites, "run-1", sites.names[:3])
    added_up(sites, "run-2", sites.names[3:6])
    with pytest.raises(Refused) as caught:
        added_up(sites, "run-3", [sites.names[k] for k in last])
    assert "shows-few-sites" in caught.value.codes.values()


@pytest.mark.parametrize("first", [3, 4])
def test_two_of_seven_do_not_make_a_difference_of_one(tmp_path, first):
    """Of three or four that stay of seven, another sum over those that left would show one, to two that helped."""
    sites = consortium(tmp_path, 7, 60)
    assert len(added_up(sites, "all").contributors) == 7
    with pytest.raises(Refused) as caught:
        added_up(sites, "later", sites.names[first:])
    assert "shows-few-sites" in caught.value.codes.values()


def test_new_rows_at_one_site_are_not_shown_by_a_second_run(sites):
    added_up(sites, "run-1")
    row = [[9.0, 9.0, 9.0]]
    sites.offer("s1", np.vstack([sites.data["s1"][0], row]))
    with pytest.raises(Refused) as caught:
        added_up(sites, "run-2")
    assert "shows-few-sites" in caught.value.codes.values()
    # With new data at three sites the difference is a sum of three.
    for name in ("s2", "s3"):
        sites.offer(name, np.vstack([sites.data[name][0], row]))
    assert len(added_up(sites, "run-3").contributors) == 4


def test_a_lead_who_sees_results_only_gets_no_second_study_without_one_site(sites):
    plain = {"lambda_w": 0.0, "lambda_a": 0.0, "w_threshold": 0.0, "a_threshold": 0.0}
    patience = {"attendance": {"max_wait_s": 0.0}}
    sites.run(sites.study("fdbnl", plain, **patience), "first")
    with refused(NotEnoughSites, 3):
        sites.run(sites.study("fdbnl", plain, sites=sites.names[:3], **patience), "second")


def test_an_owner_is_told_before_that_a_study_over_other_sites_would_be_refused(sites):
    def remarks(study, **changes):
        policy = sites.policy().model_copy(update=changes)
        found = why_refused(sites.settings(), policy, read_data(sites.settings()), study)
        return [one.values["why"] for one in found] == ["shows-few-sites"]

    some = sites.study(sites=sites.names[:3])
    noisy = sites.study(privacy={"epsilon": 1.0, "protection": "weights"}, sites=sites.names[:3])
    before = [remarks(study) for study in (some, sites.study(), noisy)]
    added_up(sites, "run")
    after = [remarks(study) for study in (some, sites.study(), noisy)]
    assert (before, after) == ([False] * 3, [True, False, True])
    # Noise covers every set only where a budget adds up what all of it tells.
    assert not remarks(noisy, max_epsilon=5.0)


# A study and its updates --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("update_of", ["one", ""])
def test_the_whole_over_other_sites_is_not_added_up_beside_its_parts(tmp_path, update_of, monkeypatch):
    sites = consortium(tmp_path, rows=60)
    rng = np.random.default_rng(282)
    old, new = {name: x for name, (x,) in sites.data.items()}, {}
    parts = added_up(sites, "one").value
    for name in sites.names:
        new[name] = rng.normal(size=(60, 3))
        sites.offer(name, new[name])
    parts = parts + added_up(sites, "two", update_of=update_of).value
    if update_of:
        # A recording that has grown holds both parts, too.
        for name in sites.names:
            sites.offer(name, np.vstack([old[name], new[name]]))
        with pytest.raises(SiteRefused):
            added_up(sites, "three", sites.names[:3])
    for name in sites.names:
        sites.offer(name, old[name], new[name])
    with pytest.raises(SiteRefused):
        added_up(sites, "four", sites.names[:3])
    if not update_of:
        # Over the same sites it tells nothing new.
        np.testing.assert_allclose(added_up(sites, "five").value, parts, atol=1e-6)
        return
    # Without the rule the difference would be one site.
    monkeypatch.setattr(RecordingBook, "_require_same_sites", lambda self, study, known, now: None)
    three = added_up(sites, "five", sites.names[:3]).value
    lagged = [np.hstack([x[1:], x[:-1]]) for x in (old["s3"], new["s3"])]
    np.testing.assert_allclose(parts - three, Moments.of_rows(np.vstack(lagged)).to_sums(), atol=1e-5)


def test_an_update_asks_for_the_moments_of_its_lags_only(sites):
    """Rows that are given again as the past of new ones would be counted with fewer lags."""
    added_up(sites, "one")
    rng = np.random.default_rng(283)
    for name in sites.names:
        sites.offer(name, np.vstack([sites.data[name][0][-1:], rng.normal(size=(60, 3))]))
    liar = Liar(sites, sites.study(update_of="one"), "two")
    for question in (moments(sites, 0), moments(sites, 2), moments(sites, diagonal=True)):
        with pytest.raises((Refused, ProtocolError)):
            liar.sum(question)
    told = [entry.code for entry in sites.refusals("s0", "two")]
    assert told == ["other-lags", "other-lags", "task-not-in-study"]
    liar.sum(moments(sites))
