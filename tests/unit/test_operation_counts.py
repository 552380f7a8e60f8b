"""Several modules: how much work a fit is.

Speed is guarded by counting work on fixed seeds, not by clocks: the limits are a tenth above what was measured.

A change that raises a count past its limit costs every user time or traffic; raise a limit only with a reason.
"""

import json
import subprocess
import sys
import warnings
from dataclasses import replace

import pytest

import feddbn
from feddbn import AS_THEY_ARE
from feddbn.core.orders.parents import ParentRegressions, ParentSelection
from feddbn.core.penalised import acyclicity
from feddbn.core.penalised.consensus import Decomposed
from feddbn.core.statistics.moments import sums_length
from feddbn.core.statistics.residual_checks import CurvatureSums
from feddbn.core.statistics.residual_checks import sums_length as residual_sums_length
from feddbn.core.statistics.survey import N_FREQUENCIES, profile_length
from feddbn.errors import UnitsWarning
from feddbn.method_table import get_method
from feddbn.methods.fdbnl import FDBNL

ALONE = ("loss.alone", 3)
SEEN = (("survey.first", 1116), ("agree", 2))
CHECKED = (("gram.rows", 157), ("residuals.checks", 350), ALONE)
# Four variables, four sites, one lag: what a fit asks by default, in this order.
ASKED = {
    "OneShotDBN": (*SEEN, ("gram.rows", 166), ("residuals.checks", 350), ("gram.parts", 180), ALONE),
    "FDBNL": (*SEEN, *CHECKED),
    "Dynotears": (*SEEN, *CHECKED),
    "ChangingDBN": (*SEEN, ("gram.rows", 83), ("gram.blocks", 1125), ("residuals.blocks", 286)),
    "LatentDBN": (("survey.first", 1192), ("agree", 2), ("gram.rows", 329)),
    "MomentSummary": (*SEEN, ("gram.rows", 157)),
    "MixedDBN": (("gram.kinds", 83),),
}


class Meter:
    """Takes down sums and bytes per site while a model is fitted, and how often it was evaluated until then."""

    def __init__(self, calls=()):
        self.calls, self.sums, self.evaluated = calls, [], []
        self.n_sent = self.n_received = 0

    @property
    def n_sums(self):
        return len(self.sums)

    def __call__(self, task, answer):
        self.sums.append((task.name, len(answer.value)))
        self.evaluated.append(len(self.calls))
        self.n_sent += answer.value.nbytes
        self.n_received += sum(array.nbytes for array in task.arrays.values())


def fitted(method, monkeypatch, d, n_sites, n_samples, seed):
    """The model, what was asked, and how often the server evaluated the problem; sites that compare do so last."""
    calls = []
    evaluate = acyclicity.expm_value_and_grad

    def counted(W):
        calls.extend(W)
        return evaluate(W)

    monkeypatch.setitem(acyclicity.ACYCLICITIES, "expm", counted)
    fed = feddbn.simulate(d=d, n_sites=n_sites, n_samples=n_samples, random_state=seed)
    meter = Meter(calls)
    model = method.fit(fed.sites, observer=meter)
    is_compared = meter.sums[-1] == ALONE
    return model, meter, meter.evaluated[-2] if is_compared else len(calls)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::feddbn.errors.UnitsWarning")
@pytest.mark.parametrize("method", ASKED)
def test_a_default_fit_asks_these_sums(method):
    data = feddbn.simulate(d=4, n_sites=4, n_samples=1600, random_state=3)
    meter = Meter()
    getattr(feddbn, method)().fit(data.sites, observer=meter)
    assert tuple(meter.sums) == ASKED[method]


@pytest.mark.slow
def test_a_default_fit_of_ten_variables_sends_5237_numbers(monkeypatch):
    _, meter, _ = fitted(feddbn.OneShotDBN(), monkeypatch, 10, 5, 3200, 3)
    assert (meter.n_sums, meter.n_sent) == (6, 8 * 5237)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "n_sites", "n_samples", "max_evaluations"),
    [(10, 64, 512, 385), (20, 10, 100, 335), (15, 4, 400, 282)],
)
def test_fdbnl_takes_no_more_sums_and_evaluations_than_it_did(
    monkeypatch, d, n_sites, n_samples, max_evaluations
):
    model, meter, n_evaluations = fitted(FDBNL(), monkeypatch, d, n_sites, n_samples, 0)
    assert model.status_.is_converged
    assert 0 < n_evaluations <= max_evaluations
    assert meter.n_sums <= 5


def test_a_round_of_fdbnl_sends_one_stack_of_weights_and_its_residuals(monkeypatch):
    model, meter, _ = fitted(
        FDBNL(schedule="paper", prepare=replace(AS_THEY_ARE, scale="none")), monkeypatch, 10, 8, 400, 1
    )
    q, d = 20, 10
    summary = 8 * (1 + 2 * q + d)
    # The first sum tells means and variances.
    assert meter.n_sent == summary + (model.n_rounds_ - 1) * 8 * (q * d + 1 + d)
    assert meter.n_received == (model.n_rounds_ - 1) * 8 * (q * d + 3 * q)


@pytest.mark.slow
def test_cost_of_a_round_does_not_depend_on_rows_or_sites(monkeypatch):
    per_round = []
    for n_sites, n_samples in ((2, 200), (20, 2000)):
        model, meter, _ = fitted(
            FDBNL(schedule="paper", refit=False, prepare=replace(AS_THEY_ARE, scale="none")),
            monkeypatch,
            6,
            n_sites,
            n_samples,
            2,
        )
        per_round.append((meter.n_sent - 8 * (1 + 24 + 6)) / (model.n_rounds_ - 1))
    assert per_round[0] == per_round[1]


def test_dynotears_needs_one_sum_of_second_moments(monkeypatch):
    _, meter, n_evaluations = fitted(feddbn.Dynotears(prepare=AS_THEY_ARE), monkeypatch, 10, 5, 500, 3)
    assert meter.n_sums == 1
    assert meter.n_sent == 8 * sums_length(20)
    assert n_evaluations <= 290


def test_looking_around_costs_two_sums_and_the_products_of_every_nuisance_tried(monkeypatch):
    _, meter, _ = fitted(feddbn.Dynotears(check_residuals=False), monkeypatch, 10, 5, 500, 3)
    assert meter.n_sums == 3
    # Seven numbers in all, and five a variable.
    survey = 7 + 5 * 10 + N_FREQUENCIES + 2 * profile_length(10, 1)
    # A mean, a line and a cubic: the number of parameters and products of each, and one sum of log gains.
    moments = sums_length(20) + 3 * (1 + 20 * 21 // 2) + 1
    # Two counts of sites that do not fit.
    assert meter.n_sent == 8 * (survey + 2 + moments)


@pytest.mark.slow
def test_looking_at_residuals_costs_two_sums_for_methods_that_only_look(monkeypatch):
    _, plain, _ = fitted(feddbn.Dynotears(check_residuals=False), monkeypatch, 10, 5, 500, 3)
    _, meter, _ = fitted(feddbn.Dynotears(), monkeypatch, 10, 5, 500, 3)
    assert meter.sums[plain.n_sums + 1 :] == [ALONE]
    # Also what squares, cubes and changes of 20 columns have to do with 10 residuals.
    more = CurvatureSums.length(20, 10, changes=True)
    assert meter.n_sent == plain.n_sent + 8 * (1 + residual_sums_length(10, 2) + more + ALONE[1])


@pytest.mark.slow
def test_the_order_search_computes_no_more_regressions_than_it_did(monkeypatch):
    counts = {}
    for owner in (ParentRegressions, ParentSelection):
        counts[owner.__name__] = 0

        def counted(self, *args, owner=owner, compute=owner._compute):
            counts[owner.__name__] += 1
            return compute(self, *args)

        monkeypatch.setattr(owner, "_compute", counted)
    fed = feddbn.simulate(d=30, n_sites=5, n_samples=600, random_state=0)
    meter = Meter()
    # The seed's network may rest on its units; that is not what is counted here.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnitsWarning)
        # Each resample has a search of its own.
        feddbn.OneShotDBN().fit(fed.sites, observer=meter)
    assert meter.n_sums == 5
    assert 0 < counts["ParentRegressions"] <= 38500
    assert 0 < counts["ParentSelection"] <= 102000


def test_the_papers_rounds_decompose_a_gram_matrix_once(monkeypatch):
    calls = []
    decompose = Decomposed.of.__func__

    def counted(cls, wG, metric):
        calls.extend(wG)
        return decompose(cls, wG, metric)

    monkeypatch.setattr(Decomposed, "of", classmethod(counted))
    fed = feddbn.simulate(d=5, n_sites=3, n_samples=150, random_state=4)
    model = FDBNL(schedule="paper").fit(fed.sites)
    assert model.n_rounds_ > 20
    assert len(calls) == 3


# Sums of a default fit of eight sites that agree; as the table of methods and docs/choosing.md say it.
SUMS = {
    "oneshot": 6,
    "changing": 5,
    "fdbnl": 5,
    "dynotears": 5,
    "average": 4,
    "latent": 3,
    "summary": 3,
    "local": 0,
}
FITS = """
import json, sys, warnings
import feddbn
from feddbn.method_table import get_method
warnings.simplefilter("ignore")
fed = feddbn.simulate(d=3, n_sites=8, n_samples=3200, random_state=0)
for name in sys.argv[1:]:
    seen, method = [], get_method(name)
    model = method.load()().fit(fed.sites, observer=lambda task, answer: seen.append(task))
    print(json.dumps([name, len(seen), model.n_rounds_]))
"""


@pytest.mark.slow
def test_a_fit_counts_every_sum_that_it_asks_for_by_default():
    """In a process of its own, where nothing is left out."""
    done = subprocess.run(
        [sys.executable, "-c", FITS, *SUMS, "pfdbnl"], capture_output=True, text=True, timeout=300, check=True
    )
    found = {name: (seen, told) for name, seen, told in map(json.loads, done.stdout.splitlines())}
    seen, told = found.pop("pfdbnl")
    assert seen == told > 100
    assert {name: told for name, (_, told) in found.items()} == SUMS
    for name, (seen, told) in found.items():
        # What a site is asked alone is no sum over sites.
        assert seen == told or not told, name
        assert get_method(name).rounds.partition(";")[0] == (str(told) if told else "none")
