"""LatentDBN: hidden causes, any split of the rows, masks, noise, released summaries, and messages of a study."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import feddbn
import feddbn.analysis.studies
from feddbn import AS_THEY_ARE, LatentDBN, Prepare
from feddbn.data import read_sites
from feddbn.errors import ParameterError
from feddbn.federation.protocol.site import Site
from feddbn.results.result import Result
from feddbn.runtime.simulated.private import private_federation
from feddbn.runtime.simulated.secure import secure_federation
from support.saying import only

pytestmark = pytest.mark.promise


def rows(n=3000, seed=5):
    """a acts on b; a hidden h acts on b and c; e acts on c. All but h remember themselves."""
    rng = np.random.default_rng(seed)
    x, h = np.zeros((n, 4)), rng.standard_normal(n)
    noise = rng.standard_normal((n, 4))
    for t in range(1, n):
        a, b, c, e = x[t - 1]
        x[t] = [
            0.6 * a + noise[t, 0],
            0.5 * b + 0.5 * a + h[t] + noise[t, 1],
            0.7 * c + 0.5 * e + h[t] + noise[t, 2],
            0.6 * e + noise[t, 3],
        ]
    return x


@pytest.fixture(scope="module")
def x():
    return rows()


def split(x, *cuts):
    return {f"s{k}": part for k, part in enumerate(np.split(x, cuts))}


@pytest.fixture(scope="module")
def fitted(x):
    return LatentDBN(prepare=AS_THEY_ARE).fit(split(x, 500, 1400))


def test_a_hidden_cause_is_told_from_causes(fitted):
    marks = fitted.graph_
    assert marks[1, 2, 0] == marks[2, 1, 0] == "<->"
    assert marks[0, 1, 1] == marks[3, 2, 1] == "-->"
    assert all(marks[k, k, 1] == "-->" for k in range(4))
    assert (marks != "").sum() == 8
    assert not fitted.W_.any()
    assert fitted.A_[0][0, 1] == pytest.approx(0.5, abs=0.06)
    assert only(fitted.findings_, "marks").values["n_hidden"] == 1
    assert list(fitted.edges_.columns) == ["source", "target", "lag", "mark", "value", "p"]


def test_without_the_hidden_cause_there_is_no_such_mark(x):
    found = LatentDBN(prepare=AS_THEY_ARE).fit({"s": np.delete(x, 2, axis=1)})
    assert not (found.graph_ == "<->").any()


@pytest.mark.parametrize("seed", range(3))
def test_any_split_of_the_rows_gives_the_pooled_graph(seed):
    """Recordings keep their rows; who holds them does not matter."""
    rng = np.random.default_rng(seed)
    pieces = np.split(rows(800, seed), sorted(rng.choice(np.arange(20, 780), 5, replace=False)))
    pooled = LatentDBN(2, prepare=AS_THEY_ARE).fit({"all": pieces})
    owner = rng.integers(0, 3, len(pieces))
    sites = {f"s{k}": [p for p, o in zip(pieces, owner, strict=True) if o == k] for k in set(owner.tolist())}
    found = LatentDBN(2, prepare=AS_THEY_ARE).fit(sites)
    assert (found.graph_ == pooled.graph_).all()
    inside = np.isfinite(pooled.ancestral_graph_.values)
    for mine, theirs in (
        (found.ancestral_graph_.values[inside], pooled.ancestral_graph_.values[inside]),
        (found.ancestral_graph_.p_values, pooled.ancestral_graph_.p_values),
        (found.A_, pooled.A_),
    ):
        np.testing.assert_allclose(mine, theirs, atol=1e-10)


def test_a_released_summary_and_masks_give_the_same(x, fitted):
    sites = split(x, 500, 1400)
    released = feddbn.summary(sites, 2, prepare=AS_THEY_ARE)
    again = LatentDBN().fit_summary(released)
    assert (again.graph_ == fitted.graph_).all()
    with pytest.raises(ParameterError, match=r"n_lags=2.*n_lags=4"):
        LatentDBN(2).fit_summary(released)
    masked = secure_federation({name: Site(name, site) for name, site in read_sites(sites).items()})
    found = LatentDBN(prepare=AS_THEY_ARE, federation=masked).fit(None)
    assert (found.graph_ == fitted.graph_).all()


def test_noise_makes_rows_worth_less_and_edges_fewer(x):
    sites = {name: Site(name, data) for name, data in read_sites(split(x, 1000, 2000)).items()}
    federation = private_federation(sites, 8.0, unit="row", rng=np.random.default_rng(0))
    found = LatentDBN(prepare=Prepare(center="none"), federation=federation).fit(None)
    assert found.n_samples_ < 2990
    assert found.graph_[0, 0, 1] in ("-->", "o->")
    assert (found.graph_ != "").sum() <= 8


def test_levels_of_sites_are_no_causes(x):
    """What sites differ in is a hidden cause of all their rows; means of recordings taken off, it is gone."""
    shifts = np.array([[0, 0, 0, 0], [3, 0, 3, -3], [-3, 2, 0, 3], [0, -2, -3, 0]]) * 3.0
    sites = {
        f"s{k}": part + shift for k, (part, shift) in enumerate(zip(np.split(x, 4), shifts, strict=True))
    }
    centred = replace(AS_THEY_ARE, center="recording")
    wanted = LatentDBN(prepare=centred).fit(split(x, 750, 1500, 2250)).graph_
    assert (LatentDBN(prepare=centred).fit(sites).graph_ == wanted).all()
    found = LatentDBN(prepare=Prepare(on_disagreement="ignore")).fit(sites)
    assert found.center_ == "recording", "found without being told"
    assert (found.graph_ == wanted).all()
    assert ((LatentDBN(prepare=AS_THEY_ARE).fit(sites).graph_ != "") & (wanted == "")).any()


def test_empty_cells_count_for_what_they_hold(x, fitted):
    holes = x.copy()
    holes[np.random.default_rng(0).random(x.shape) < 0.1] = np.nan
    found = LatentDBN(prepare=replace(AS_THEY_ARE, missing="fill")).fit({"s": holes})
    assert found.n_samples_ < 2990
    assert ((found.graph_ != "") == (fitted.graph_ != "")).all()
    assert found.graph_[1, 2, 0] == "<->"


def test_a_result_keeps_the_marks(fitted):
    stored = Result.from_estimator(fitted).to_dict()["diagnostics"]["ancestral_graph"]
    assert stored["edges"] == fitted.edges_.to_dict("records")
