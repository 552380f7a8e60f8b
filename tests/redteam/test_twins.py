"""Columns that are equal but in a few rows tell these rows through ordinary sums; deployed sites refuse them."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn.core.statistics.effective import own_parts
from feddbn.data.site import with_columns
from feddbn.errors import SiteRefused
from feddbn.federation.guards.dominance import DominanceGuard
from feddbn.federation.guards.row_set_guard import RowSetGuard
from feddbn.federation.protocol.site import Here
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.gram import GramQuestion
from feddbn.privacy.policy import SitePolicy
from support.consortium import Consortium, Liar, Refused, by_rule, raw
from support.saying import refused
from support.sites import ColumnsInMemory, RowsInMemory, memory_site

pytestmark = pytest.mark.promise

N, D, AT = 300, 3, 137


def moments(value, q):
    """(q + 1, q + 1) products of a 1 and q columns."""
    S = np.zeros((q + 1, q + 1))
    S[0, 0], S[0, 1:] = value[0], value[1 : 1 + q]
    S[1:, 1:][np.triu_indices(q)] = value[1 + q :]
    return np.triu(S) + np.triu(S, 1).T


def federation(place, more, rows=(AT,), policy=None, recordings=1, own=0.0):
    """Three sites; `more` makes the columns after the first three, which differ from others at the first site in `rows`."""
    rng = np.random.default_rng(5)
    data = {}
    for name in ("s0", "s1", "s2"):
        data[name] = []
        for k in range(recordings):
            x = rng.normal(size=(N, D))
            here = np.zeros(N, dtype=bool)
            if name == "s0" and k == 0:
                here[list(rows)] = True
            data[name].append(np.column_stack([x, *more(x, here)]) + 0.0)
            data[name][-1][:, -1] += own * k
    return Consortium(place, data, policy or by_rule())


def asked(sites, run, variables, n_lags=1, privacy=None, **more):
    """Products of a 1 and the lagged rows that a liar gets, in a run of its own."""
    parameters = {
        "n_lags": n_lags,
        "prepare": {"center": "none", "gains": "none", "detrend": 0, "period": []},
    }
    study = sites.study(parameters=parameters, variables=tuple(variables), privacy=privacy or {})
    liar = Liar(sites, study, run)
    value = liar.sum(raw("gram.rows", {"n_lags": n_lags, "variables": tuple(variables), **more})).value
    return moments(value, (n_lags + 1) * len(variables))


def off(monkeypatch):
    """Without the rule."""
    monkeypatch.setattr(DominanceGuard, "reads", lambda self, here, task: (here, task))


def twin(x, here):
    return [x[:, 1] + 0.5 * here]


def formula(x, here):
    return [(x[:, 0] + 2 * x[:, 1]) / 3 + 0.05 * here]


def two_dummies(x, here):
    first = np.arange(N) % 7 == 0
    return [first.astype(float), (first ^ here).astype(float)]


def dummy(x, here):
    return [here.astype(float) + (np.arange(N) < 0)]


WAYS = {
    "twin": (twin, {2: -1.0, 4: 1.0}),
    "formula": (formula, {1: -1 / 3, 2: -2 / 3, 4: 1.0}),
    "two dummies": (two_dummies, {4: -1.0, 5: 1.0}),
}


@pytest.mark.parametrize("protection", ["exact", "weights"])
@pytest.mark.parametrize("way", WAYS)
def test_what_one_row_more_or_less_would_show(tmp_path, monkeypatch, way, protection):
    """The row in which columns differ and the row before it, from one ordinary sum under masks; in ratios weights cancel."""
    off(monkeypatch)
    more, contrast = WAYS[way]
    sites = federation(tmp_path, more)
    S = asked(sites, "run", sites.variables, privacy={"protection": protection})
    d = len(sites.variables)
    found = sum(weight * S[k] for k, weight in contrast.items())
    found = found / found[0]
    x = sites.data["s0"][0]
    np.testing.assert_allclose(found[1 : 1 + D], x[AT, :D], atol=1e-9)
    np.testing.assert_allclose(found[1 + d : 1 + d + D], x[AT - 1, :D], atol=1e-9)


@pytest.mark.parametrize("protection", ["exact", "weights"])
@pytest.mark.parametrize("n_rows", [1, 2, 3])
@pytest.mark.parametrize("way", WAYS)
def test_columns_that_are_equal_but_in_few_rows_are_refused(tmp_path, way, n_rows, protection):
    sites = federation(tmp_path, WAYS[way][0], rows=(AT, 40, 211)[:n_rows])
    liar = Liar(sites, sites.study(privacy={"protection": protection}), "run")
    # The owner reads which variables, and of no row or count.
    liar.refused(
        raw("gram.rows", {"n_lags": 1, "variables": sites.variables}), "dominance", sites.variables[-1]
    )
    (entry,) = sites.refusals("s0", "run")
    assert str(AT) not in entry.note


def test_columns_that_differ_in_many_rows_or_in_none_are_answered(tmp_path):
    sites = federation(
        tmp_path, lambda x, here: [*twin(x, here), x[:, 0] ** 2 * 0 + 3, x[:, 2]], rows=range(0, N, 12)
    )
    S = asked(sites, "run", sites.variables)
    assert S[0, 0] == 3 * (N - 1)


def test_a_column_of_zeros_with_one_1_is_refused(tmp_path):
    sites = federation(tmp_path, dummy)
    liar = Liar(sites, sites.study(), "run")
    with pytest.raises(Refused):
        liar.sum(raw("gram.rows", {"n_lags": 1, "variables": sites.variables}))


@pytest.mark.parametrize("lags", [(1, 1), (1, 2), (2, 0)])
@pytest.mark.parametrize("is_guarded", [False, True])
def test_twins_in_two_studies_differ_as_twins_in_one_do(tmp_path, monkeypatch, is_guarded, lags):
    """Sites are restarted in between, and remember which columns they told."""
    sites = federation(tmp_path, twin)
    if not is_guarded:
        off(monkeypatch)
    first = asked(sites, "run-1", ("x0", "x1", "x2"), lags[0])
    for name in sites.names:
        sites.restart(name)
    if is_guarded:
        with pytest.raises(Refused):
            asked(sites, "run-2", ("x0", "x2", "x3"), lags[1])
        assert sites.refusals("s0", "run-2")[-1].code == "dominance"
        return
    second = asked(sites, "run-2", ("x0", "x2", "x3"), lags[1])
    if lags == (1, 1):
        found = second[3, [0, 1, 2]] - first[2, [0, 1, 3]]
        np.testing.assert_allclose(found[1:] / found[0], sites.data["s0"][0][AT, [0, 2]], atol=1e-9)


@pytest.mark.parametrize("is_guarded", [False, True])
def test_twins_that_differ_by_a_constant_of_each_recording_are_twins_off_its_mean(
    tmp_path, monkeypatch, is_guarded
):
    sites = federation(tmp_path, twin, recordings=2, own=20.0)
    study = sites.study(parameters={"n_lags": 1})
    liar = Liar(sites, study, "run")
    task = raw("gram.rows", {"n_lags": 1, "variables": sites.variables, "center": "recording"})
    if is_guarded:
        liar.refused(task, "dominance", "x3")
        return
    off(monkeypatch)
    S = moments(liar.sum(task).value, 8)
    x = sites.data["s0"][0]
    assert S[4, 1] - S[2, 1] == pytest.approx(0.5 * (x[AT, 0] - x[1:, 0].mean()), abs=1e-6)


@pytest.mark.parametrize("is_guarded", [False, True])
def test_a_cell_that_is_brought_back_is_no_way_around(tmp_path, monkeypatch, is_guarded):
    """One column has a far cell, which the second study takes for the median that the other column has there."""

    def more(x, here):
        x[here, 1] = 0.0
        return [x[:, 1] + 10.5 * here]

    sites = federation(tmp_path, more)
    if not is_guarded:
        off(monkeypatch)
    first = asked(sites, "run-1", ("x0", "x2", "x3"))
    if is_guarded:
        with pytest.raises(Refused):
            asked(sites, "run-2", ("x0", "x1", "x2"), robust="site")
        assert sites.refusals("s0", "run-2")[-1].code == "dominance"
        return
    second = asked(sites, "run-2", ("x0", "x1", "x2"), robust="site")
    found = first[3] - second[2]
    assert found[0] == pytest.approx(10.5, abs=0.2)


def test_a_column_with_one_huge_cell_is_refused_unless_cells_are_bounded(tmp_path):
    def more(x, here):
        return [np.where(here, 1e4, x[:, 0] + x[:, 1] ** 2)]

    sites = federation(tmp_path, more)
    liar = Liar(sites, sites.study(), "run")
    liar.refused(raw("gram.rows", {"n_lags": 1, "variables": sites.variables}), "dominance", "x3", "robust")
    assert asked(sites, "run-2", sites.variables, robust="site")[0, 0] > 2 * N


def test_twins_are_found_where_rows_with_empty_cells_count(tmp_path):
    def more(x, here):
        x[4::11, 1] = np.nan
        return [x[:, 1] + 0.5 * here]

    sites = federation(tmp_path, more)
    liar = Liar(sites, sites.study(parameters={"n_lags": 0}), "run")
    task = raw("gram.pairs", {"n_lags": 0, "variables": sites.variables, "pairs": True})
    liar.refused(task, "dominance", "x3")


def test_functions_and_codes_are_columns_too(tmp_path):
    """A square with one exception, and the indicator of a level with one."""
    policy = by_rule("gram.functions", "gram.kinds", "counts.levels", "newton", features=("quadratic",))
    sites = federation(tmp_path, lambda x, here: [x[:, 1] ** 2 + 0.5 * here], policy=policy)
    study = sites.study(parameters={"n_lags": 0, "features": "quadratic"})
    liar = Liar(sites, study, "run")
    units = {"function_origin": np.zeros(4), "function_scale": np.ones(4)}
    params = {"n_lags": 0, "variables": sites.variables, "functions": "bend"}
    liar.refused(raw("gram.functions", params, units), "dominance", "x3")


def site_of(values):
    return memory_site(values)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("n", [120, 1000])
def test_effective_rows_are_the_rows_that_differ(n, k):
    rng = np.random.default_rng(k)
    x = rng.normal(size=(n, 5))
    y = x[:, 1].copy()
    y[rng.choice(n, k, False)] += 0.5
    Z = np.c_[x, y, 1e6 + x[:, 2], np.full(n, 7.0)]
    found = own_parts(lambda: iter(np.array_split(Z, 3)), False)
    # A column moved by a constant and a constant depend on others exactly.
    assert set(found.kept.tolist()) == set(range(7))
    assert k <= found.rows[[2, 6]].max() < 2 * k + 1 < 10 or (k == 5 and found.rows[[2, 6]].max() < 10)
    assert found.rows[[1, 3, 4, 5]].min() > n / 5
    Q, _ = np.linalg.qr(np.c_[np.ones(n), x, y])
    share = 7 / n
    assert found.leverage == pytest.approx(((Q**2).sum(axis=1).max() - share) / (1 - share))


def test_a_block_of_time_has_no_twins_of_its_own():
    """Columns that differ in enough rows of all may differ in one row of a block."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(640, 3))
    x[:, 2] = (
        x[:, 1] + 0.5 * (np.arange(640) % 64 == 5) + 0.5 * (np.arange(640) >= 320) * (np.arange(640) % 2)
    )
    question = GramQuestion(n_lags=0, variables=("x0", "x1", "x2"), block_rows=64, n_blocks=10)
    whole = GramQuestion(n_lags=0, variables=("x0", "x1", "x2"))
    site = site_of(x)
    guard = DominanceGuard(SitePolicy(), site, ColumnsInMemory())
    guard.reads(Here("s", site, {}), Task(whole))
    with refused(SiteRefused, "x1", "x2", code="dominance"):
        guard.reads(Here("s", site, {}), Task(question))


def test_parts_of_fewer_variables_than_were_told_before_are_looked_at_too():
    """The columns that were told earlier are dealt to the same parts."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    x[:, 2] = x[:, 1] + 0.5 * (np.arange(400) == 5) + 0.5 * (np.arange(400) >= 200) * (np.arange(400) % 2)
    for names, is_told in ((("x0", "x1"), False), (("x0",), True)):
        site = site_of(x)
        guard = DominanceGuard(SitePolicy(), site, ColumnsInMemory())
        whole, parts = ("x0", "x2"), GramQuestion(n_lags=0, variables=names, n_parts=4)
        guard.reads(Here("s", with_columns(site, whole), {}), Task(GramQuestion(n_lags=0, variables=whole)))
        here = Here("s", with_columns(parts.dealt(site), names), {})
        if is_told:
            guard.reads(here, Task(parts))
            continue
        with refused(SiteRefused, "x1", code="dominance"):
            guard.reads(here, Task(parts))


def test_a_question_that_the_ledger_does_not_know_is_refused():
    site = site_of(np.random.default_rng(0).normal(size=(60, 3)))
    guard, here = RowSetGuard(RowsInMemory(site), 10), Here("s", site, {})
    unknown = SimpleNamespace(name="gram.new", reads_rows=True, in_view=lambda data, name: ())
    with refused(SiteRefused, "gram.new", code="rows-not-known"):
        guard.reads(here, SimpleNamespace(question=unknown))
