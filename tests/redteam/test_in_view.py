"""Every number that leaves rests on enough rows and enough sites, and a question means the same at every site."""

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn import AS_THEY_ARE
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.in_view import rare_rows
from support.consortium import Consortium, Liar, by_rule, raw
from support.sites import memory_site

pytestmark = pytest.mark.promise

LEVEL = np.array([70, 120, 37, 98, 2, 10.0])


def series(rng, n, d):
    """A stable process about levels of its own."""
    x = np.zeros((n, d))
    for t in range(1, n):
        x[t] = 0.4 * x[t - 1] + rng.normal(size=d)
    return x + LEVEL[:d]


def goes_without(sites, liar, task, code, site="s2"):
    """A site refuses, and what the others sum does not have it."""
    assert site not in liar.sum(task).contributors
    assert sites.refusals(site, liar.run)[-1].code == code


def pair_counts(task, value):
    """(q, q) how many rows of all sites have both cells."""
    q = task.question.q
    size = q * (q + 1) // 2
    counts = np.zeros((q, q))
    counts[np.triu_indices(q)] = np.round(value[2 + q * q + 1 : 2 + q * q + 1 + size], 6)
    return counts + np.triu(counts, 1).T


@pytest.mark.parametrize("kind", ["one empty cell", "seldom together"])
def test_no_sum_over_pairs_and_no_difference_of_two_is_about_few_rows(tmp_path, kind):
    """A column with one empty cell gave that row and the one before it (3.2e-11), two seldom ones their cells (0)."""
    rng = np.random.default_rng(0)
    data = {f"s{i}": [series(rng, 400, 6)] for i in range(4)}
    for (x,) in data.values():
        if kind == "one empty cell":
            x[rng.random(400) < 0.04, 0] = np.nan
        else:
            has = rng.random((400, 2)) < 0.12
            has[1:, 1] &= ~has[1:, 0]
            has[0] = True
            x[:, 4:][~has] = np.nan
    if kind == "one empty cell":
        data["s1"][0][123, 3] = np.nan
    sites = Consortium(tmp_path, data, by_rule())
    result, told = sites.curious(sites.study("oneshot"))
    assert not isinstance(result, Exception), result
    counts = [pair_counts(task, value) for task, value in told if task.name == "gram.pairs"]
    assert counts
    for found in counts:
        for few in (found, np.diag(found)[:, None] - found):
            assert not np.any((few > 0) & (few < 10)), few


def test_rows_go_until_no_sum_and_no_difference_is_over_few():
    """The rule itself, by brute force over columns, for random patterns of empty cells."""
    rng = np.random.default_rng(1)
    for share in (0.02, 0.1, 0.4):
        x = rng.normal(size=(300, 3))
        x[rng.random(x.shape) < share] = np.nan
        data = memory_site(x, names=("a", "b", "c"))
        model = np.vstack([np.zeros(6), np.eye(6)])
        question = GramQuestion(n_lags=1, variables=tuple(data.variables), row_model=model)
        (view,) = question.in_view(data, "a")
        order = {one.name: 0 for one in data.recordings()}
        gone = rare_rows(view, data, order, 10)
        kept = np.setdiff1d(np.arange(300), gone)
        pairs = [(t, t - 1) for t in kept if t - 1 in set(kept.tolist())]
        rows = np.array([np.r_[x[t], x[s]] for t, s in pairs])
        has = np.c_[~np.isnan(rows), np.zeros(len(rows), dtype=bool)]
        for i in range(6):
            own = has[has[:, i]]
            for j in range(7):
                for k in range(j):
                    n = int((own[:, j] != own[:, k]).sum())
                    assert n == 0 or n >= 10
        complete = ~np.isnan(np.c_[x[1:], x[:-1]]).any(axis=1)
        if complete.sum() >= 10:
            # Rows that are complete stay.
            assert (~np.isnan(rows).any(axis=1)).sum() == complete.sum()


def test_a_column_that_differs_in_few_rows_is_not_told(tmp_path):
    """From a server that asks for it anyway: products with a rare event are the row of the event (9.5e-13)."""
    rng = np.random.default_rng(0)
    data = {f"s{i}": [np.c_[series(rng, 200, 3), np.zeros(200)]] for i in range(4)}
    data["s2"][0][77, 3] = 1.0
    sites = Consortium(tmp_path, data, by_rule())
    liar = Liar(sites, sites.study("oneshot"))
    goes_without(
        sites, liar, raw("gram.rows", {"n_lags": 1, "variables": sites.variables}), "few-rows-in-view"
    )


def test_a_rare_level_is_not_told(tmp_path):
    """From a server that does not merge levels: `mixed-moments` told the row of a level (2e-13)."""
    rng = np.random.default_rng(4)
    data = {f"s{i}": [np.c_[series(rng, 300, 3), rng.integers(0, 3, 300)]] for i in range(4)}
    data["s2"][0][137, 3] = 3.0
    sites = Consortium(tmp_path, data, by_rule("counts.levels", "gram.kinds", "newton"))
    liar = Liar(sites, sites.study("mixed", {"kinds": {"x3": {"categorical": 4}}}))
    kinds = ("continuous",) * 3 + ("categorical:0,1,2,3",)
    task = raw("gram.kinds", {"n_lags": 1, "variables": sites.variables, "kinds": kinds})
    goes_without(sites, liar, task, "few-rows-in-view")


def moments_of(task, value):
    """Number of rows, totals and products of a sum of moments about zero."""
    q, o = task.question.q, task.question.origin
    o = np.zeros(q) if o is None else o
    n, m, S = value[0], value[1 : 1 + q], np.zeros((q, q))
    S[np.triu_indices(q)] = value[1 + q : 1 + q + q * (q + 1) // 2]
    S = S + np.triu(S, 1).T
    return n, m + n * o, S + np.outer(o, m) + np.outer(m, o) + n * np.outer(o, o)


@pytest.mark.parametrize("method", ["oneshot", "summary"])
def test_a_study_goes_on_without_a_variable_that_is_seldom_seen(tmp_path, method):
    """One row had the event; its other cells were in the sums (9.5e-13) and in the published result (1.4e-14)."""
    rng = np.random.default_rng(0)
    data = {f"s{i}": [np.c_[series(rng, 300, 3), np.zeros(300)]] for i in range(4)}
    data["s2"][0][123, 3] = 1.0
    sites = Consortium(tmp_path, data, by_rule())
    result, told = sites.curious(sites.study(method))
    assert not isinstance(result, Exception), result
    assert not any(sites.refusals(name, "run") for name in sites.names)
    assert result.summary["variables"] == ["x0", "x1", "x2"]
    found = [one for one in result.summary["result"]["findings"] if one["code"] == "variable-left-out"]
    assert [(one["about"], one["values"]["n_few"], one["level"]) for one in found] == [(["x3"], 1, "warning")]
    asked = [task.question.variables for task, _ in told if task.name != "counts.variables"]
    assert asked
    assert {*asked} == {("x0", "x1", "x2")}


def test_a_column_that_is_another_constant_at_one_site_is_left_out(tmp_path):
    """A column that is 1 at one site and 0 at the others gave that site's totals (3.4e-16)."""
    rng = np.random.default_rng(3)
    data = {
        f"s{i}": [np.c_[rng.normal(size=(300, 3)) * (1 + i) + 10 * i, np.full(300, i == 3)]] for i in range(5)
    }
    sites = Consortium(tmp_path, data, by_rule())
    result, told = sites.curious(sites.study("summary", {"prepare.center": "none"}))
    assert result.summary["variables"] == ["x0", "x1", "x2"]
    own = data["s3"][0][1:, :3].mean(axis=0)
    for task, value in told:
        if task.name == "gram.rows":
            n, m, S = moments_of(task, value)
            # No row of products, nor the totals, has this site's means.
            for row in (m / n, *(S / np.maximum(np.abs(np.diag(S))[:, None], 1e-9))):
                assert np.abs(row[:3] - own).max() > 10 * own.std() / np.sqrt(300)


def test_a_run_has_one_choice_of_variables(tmp_path):
    """Sums about two choices would differ by the rows that lack a cell."""
    rng = np.random.default_rng(0)
    sites = Consortium(tmp_path, {f"s{i}": [series(rng, 200, 3)] for i in range(3)}, by_rule())
    liar = Liar(sites, sites.study("oneshot"))
    liar.sum(raw("gram.rows", {"n_lags": 1, "variables": sites.variables[:2]}))
    liar.refused(raw("gram.rows", {"n_lags": 1, "variables": sites.variables}), "changed-in-run")


@pytest.mark.parametrize(("gap", "slope"), [(5, 2.0), (20, 2.0), (40, 1.0)])
def test_a_step_in_which_one_site_weighs_alone_is_refused(tmp_path, gap, slope):
    """Coefficients that suit one site gave the others weights of 1e-20, and the sum was that site's (5.8e-16)."""
    rng = np.random.default_rng(2)
    data = {}
    for i in range(4):
        x = rng.normal(size=(300, 3))
        x[:, 0] += gap * i
        data[f"s{i}"] = [np.c_[x, rng.random(300) < 0.4].astype(float)]
    sites = Consortium(tmp_path, data, by_rule("counts.levels", "gram.kinds", "newton"))
    liar = Liar(sites, sites.study("mixed", {"n_lags": 0, "kinds": {"x3": "binary"}}))
    params = {"n_lags": 0, "variables": sites.variables, "kinds": ("continuous",) * 3 + ("binary:0,1",)}
    params |= {"models": ("3:logistic:0,1,2",), "asked": (0,)}
    arrays = {"theta": np.array([-slope * gap, slope, 0.0, 0.0]), "origin": np.zeros(4), "scale": np.ones(4)}
    liar.refused(raw("newton", params, arrays), "few-rows-weigh", site="s3")


def test_no_block_of_time_has_rows_of_few_sites(tmp_path):
    """Blocks after the end of all recordings but one were that site's moments (3.7e-16)."""
    rng = np.random.default_rng(1)
    lengths = [312, 318, 384, 1400]
    data = {f"s{i}": [series(rng, n, 3) * (1 + i)] for i, n in enumerate(lengths)}
    sites = Consortium(tmp_path, data, by_rule("gram.blocks", "residuals.blocks"))
    result, told = sites.curious(sites.study("changing", {"prepare": dict(AS_THEY_ARE)}))
    assert not isinstance(result, Exception), result
    (question,) = [task.question for task, _ in told if task.name == "gram.blocks"]
    blocks = [np.minimum(np.arange(1, n) // question.block_rows, question.n_blocks - 1) for n in lengths]
    for k in range(question.n_blocks):
        rows = [int((one == k).sum()) for one in blocks]
        assert sum(n > 0 for n in rows) >= 3
        assert min(n for n in rows if n) >= 10


def test_levels_that_one_site_has_in_few_rows_are_put_together(tmp_path):
    """From an honest server: the other sites have the level often, one has it in a single row."""
    rng = np.random.default_rng(4)
    data = {}
    for i in range(4):
        level = rng.integers(0, 4, 400) if i != 2 else rng.integers(0, 3, 400)
        data[f"s{i}"] = [np.c_[series(rng, 400, 3), level]]
    data["s2"][0][137, 3] = 3.0
    sites = Consortium(tmp_path, data, by_rule("counts.levels", "gram.kinds", "newton"))
    result, told = sites.curious(sites.study("mixed", {"kinds": {"x3": {"categorical": 4}}}))
    assert not isinstance(result, Exception), result
    assert not any(sites.refusals(name, "run") for name in sites.names)
    kinds = {task.question.kinds[3] for task, _ in told if task.name == "gram.kinds"}
    (groups,) = [text.partition(":")[2].split(",") for text in kinds]
    assert groups.count(groups[3]) > 1
