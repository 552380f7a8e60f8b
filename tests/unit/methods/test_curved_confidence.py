"""Several modules: how far curved edges can be trusted, by resamples of the rows that a fit with curves learns from."""

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn import OneShotDBN, edge_confidence
from feddbn.core.statistics.moments import Moments
from feddbn.data import read_sites
from feddbn.errors import ParameterError
from feddbn.federation.programs.curved import CurvedMoments, CurvedMomentsQuestion
from feddbn.federation.protocol.site import Site
from feddbn.methods.confidence import COLUMNS, confidence_table
from feddbn.model.curves import Curve, Product
from feddbn.model.dbn import DBN
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.simulated.secure import secure_federation
from support.saying import refused

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

EDGES = {("a", "b", 0), ("b", "c", 0), ("c", "a", 1)}
KEY = ["source", "target", "lag"]


def bent(n=900, seed=0, offsets=0.0):
    """a -> b by a bump that rises as much as it falls, b -> c by a line, c -> a a row later by a step; d is alone."""
    rng = np.random.default_rng(seed)
    sites = {}
    for k in range(3):
        x = np.zeros((n // 3 + 20, 4))
        u = rng.normal(size=x.shape) * [0.6, 0.7, 1.0, 1.0]
        for t in range(1, len(x)):
            x[t, 0] = np.tanh(3 * x[t - 1, 2]) + u[t, 0]
            x[t, 1] = 2.0 * np.exp(-2 * x[t, 0] ** 2) + u[t, 1]
            x[t, 2] = 0.8 * x[t, 1] + u[t, 2]
            x[t, 3] = u[t, 3]
        sites[f"site-{k}"] = pd.DataFrame(x[20:] + rng.normal(size=4) * offsets, columns=list("abcd"))
    return sites


@pytest.mark.parametrize("features", ["spline", "auto"])
def test_true_edges_come_back_and_absent_ones_do_not(features):
    table = edge_confidence(OneShotDBN(features=features), bent(), n_replicates=20)
    assert tuple(table.columns) == (*COLUMNS, "curved")
    rows = table.set_index(KEY)
    for edge in EDGES:
        assert rows.loc[edge, "probability"] >= 0.95
    assert (rows.drop(list(EDGES))["probability"] <= 0.15).all()
    assert rows.loc[("a", "b", 0), "curved"] >= 0.95
    assert rows.loc[("c", "a", 1), "curved"] >= 0.95
    assert rows.loc[("b", "c", 0), "curved"] <= 0.1
    # A table of straight lines has no such column.
    straight = edge_confidence(OneShotDBN(features="linear"), bent(), n_replicates=5)
    assert tuple(straight.columns) == COLUMNS


@pytest.mark.parametrize("offsets", [0.0, 4.0])
def test_weights_are_those_of_the_fit_also_with_levels_of_sites_and_empty_cells(offsets):
    sites, rng = bent(1200, offsets=offsets), np.random.default_rng(0)
    if offsets:
        sites = {name: table.mask(rng.random(table.shape) < 0.03) for name, table in sites.items()}
    model = OneShotDBN(features="spline").fit(sites)
    table = edge_confidence(OneShotDBN(features="spline"), sites, n_replicates=3)
    fitted = model.dbn_.edges().set_index(KEY)["weight"].sort_index()
    ours = table[table["weight"] != 0].set_index(KEY)["weight"].sort_index()
    pd.testing.assert_series_equal(ours, fitted, rtol=1e-6)
    assert table.attrs["residuals"]["violations"] == list(model.residuals_.violations)


def test_straight_lines_have_the_same_table_whether_curves_were_looked_for_or_not():
    sites = feddbn.simulate(d=4, n_sites=3, n_samples=400, random_state=5).sites
    tables = [edge_confidence(OneShotDBN(features=f), sites, n_replicates=5) for f in ("auto", "linear")]
    pd.testing.assert_frame_equal(*tables)
    assert tables[0].attrs == tables[1].attrs


def test_masks_and_processes_do_not_change_the_table():
    tables = []
    for make, n_jobs in ((InProcessFederation, None), (secure_federation, None), (InProcessFederation, 2)):
        running = make({name: Site(name, data) for name, data in read_sites(bent()).items()})
        estimator = OneShotDBN(features="quadratic", average=False)
        tables.append(edge_confidence(estimator, federation=running, n_replicates=4, n_jobs=n_jobs))
    pd.testing.assert_frame_equal(tables[0], tables[1], atol=1e-6)
    pd.testing.assert_frame_equal(tables[0], tables[2])


def test_functions_of_ones_own_and_products_are_resampled_too():
    def waves(values):
        return np.stack([np.sin(2 * values), np.cos(2 * values)], axis=-1)

    rows = edge_confidence(OneShotDBN(features=waves, average=False), bent(), n_replicates=4).set_index(KEY)
    assert rows.loc[("a", "b", 0), "curved"] == 1
    rng = np.random.default_rng(1)
    x = rng.normal(size=(1500, 3))
    for t in range(1, len(x)):
        x[t, 2] += 0.8 * x[t - 1, 0] * x[t - 1, 1]
    model = OneShotDBN(features="quadratic", interactions=True, average=False)
    rows = edge_confidence(model, {"s": x}, n_replicates=4).set_index(KEY)
    for source in ("x0", "x1"):
        assert rows.loc[(source, "x2", 1), ["probability", "curved"]].tolist() == [1.0, 1.0]


def test_an_edge_without_an_average_slope_is_an_edge_whatever_the_threshold():
    curve, product = Curve(0, 1, 1, 0.0, 1.0, (0.5,)), Product(0, 1, 1, 1, 0.3, (0.0, 0.0), (1.0, 1.0))
    full = DBN(np.zeros((2, 2)), np.zeros((1, 2, 2)), ["a", "b"], curves=[curve], products=[product])
    replicates, curved = np.zeros((4, 2, 2, 2)), np.zeros((4, 2, 2, 2), dtype=bool)
    curved[:3, 1, 0, 1] = True
    table = confidence_table(full, replicates, threshold=0.1, curved=curved).set_index(KEY)
    assert table.loc[("a", "b", 1), ["probability", "curved"]].tolist() == [0.75, 0.75]
    assert table.loc[("b", "b", 1), ["probability", "curved"]].tolist() == [0.0, 0.0]


def test_what_cannot_be_resampled_is_refused_before_a_row_is_read():
    class Silent(InProcessFederation):
        def sum(self, task):
            raise AssertionError("nothing may be asked")

    class Noisy(Silent):
        answered_tasks = frozenset({"moments"})

    noisy = Noisy({name: Site(name, data) for name, data in read_sites(bent()).items()})
    with refused(ParameterError, "features='spline'", "curved-moments", code="curves-not-answered"):
        edge_confidence(OneShotDBN(features="spline"), federation=noisy)


def test_moments_must_be_those_of_the_features():
    question = CurvedMomentsQuestion(
        n_lags=1, variables=("a", "b"), basis="curve", origin=np.zeros(2), scale=np.ones(2)
    )
    rng = np.random.default_rng(0)
    curved = CurvedMoments(Moments.of_rows(rng.normal(size=(90, 28))), question, np.zeros(2))
    plain = Moments.of_rows(rng.normal(size=(90, 4)))
    assert OneShotDBN(features="spline").fit_moments(curved, ["a", "b"]).d == 2
    for features, moments, sentence in (
        ("linear", curved, "features='linear' needs moments of lagged rows; these are of curved ones"),
        ("spline", plain, "features='spline' needs moments of curved rows; these are of lagged ones"),
    ):
        with pytest.raises(ParameterError, match=sentence):
            OneShotDBN(features=features).fit_moments(moments, ["a", "b"])
    with pytest.raises(ParameterError, match="moments have 4 columns; 2 variables and n_lags=2 need 6"):
        OneShotDBN(2, features="spline").fit_moments(curved, ["a", "b"])
