"""A site summed by a Dask cluster gives what one process gives, wherever its recordings are cut."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest

from feddbn import AS_THEY_ARE, FDBNL
from feddbn.core.designs.design import Design, Nuisance
from feddbn.core.designs.gram import recording_gram
from feddbn.core.designs.recordings import Block, CompleteRows, complete_blocks, over_parts
from feddbn.core.statistics.moments import Moments
from feddbn.data import DaskSite, ParquetSite, read_sites
from feddbn.data.memory import AlignedSite
from feddbn.errors import DataError
from support.saying import refused

pytestmark = pytest.mark.usefixtures("light")

distributed = pytest.importorskip("distributed")
pytest.importorskip("pyarrow")
NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def client():
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


def messy(n: int = 400, seed: int = 0) -> pd.DataFrame:
    """Rows far from zero with empty cells, gaps in time and a recording that changes in the middle of a file."""
    rng = np.random.default_rng(seed)
    values = np.cumsum(rng.normal(size=(n, 3)), axis=0) + 50
    values[rng.random((n, 3)) < 0.02] = np.nan
    frame = pd.DataFrame(values, columns=list(NAMES))
    steps = rng.choice([1] * 19 + [4], size=n)
    frame.insert(0, "when", pd.Timestamp("2024-01-01") + pd.to_timedelta(np.cumsum(steps), unit="h"))
    frame.insert(0, "who", np.where(np.arange(n) < 230, "r1", "r2"))
    return frame


def cut(frame: pd.DataFrame, place, lengths=(150, 1, 2, 120)) -> list:
    """Files of these lengths and one with the rest, some shorter than the lags."""
    edges = np.cumsum([0, *lengths]).tolist()
    paths = []
    for number, (start, stop) in enumerate(zip(edges, [*edges[1:], len(frame)], strict=True)):
        paths.append(place / f"part-{number}.parquet")
        frame.iloc[start:stop].to_parquet(paths[-1], index=False, row_group_size=37)
    return paths


def whole(frame: pd.DataFrame, **read):
    return read_sites({"S": frame}, **read)["S"]


def moments_of(site, n_lags: int, nuisance: Nuisance | None = None) -> Moments:
    design = Design.linear(NAMES, n_lags, *([] if nuisance is None else [nuisance]))
    total = Moments.empty(design.q)
    for recording in site.recordings():
        total = total.merge(recording_gram(design, CompleteRows(recording)).moments)
    return total


def assert_same(one: Moments, other: Moments) -> None:
    assert one.n == other.n > 0
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-12)
    np.testing.assert_allclose(one.scatter, other.scatter, rtol=0, atol=1e-12 * np.abs(other.scatter).max())


@pytest.mark.parametrize(("part_rows", "missing"), [(37, "drop"), (41, "keep"), (10_000, "keep")])
@pytest.mark.parametrize("n_lags", [0, 1, 4])
def test_a_cluster_sums_recordings_cut_over_files_as_one_process_does(
    tmp_path, client, n_lags, part_rows, missing
):
    frame = messy()
    read = {"series": "who", "time": "when", "missing": missing}
    paths = cut(frame, tmp_path)
    on_cluster = DaskSite(paths, **read, joined=True, client=client, part_rows=part_rows, batch_rows=50)
    streamed = ParquetSite(paths, **read, joined=True, batch_rows=50)
    here = whole(frame, **read)
    for nuisance in (None, Nuisance("recording")):
        assert_same(moments_of(on_cluster, n_lags, nuisance), moments_of(here, n_lags, nuisance))
        assert_same(moments_of(streamed, n_lags, nuisance), moments_of(here, n_lags, nuisance))


def test_files_that_are_not_joined_are_recordings_of_their_own(tmp_path, client):
    frame = messy().drop(columns=["who", "when"])
    paths = cut(frame, tmp_path)
    apart = moments_of(DaskSite(paths, client=client), 2)
    assert_same(apart, moments_of(ParquetSite(paths), 2))
    joined = moments_of(DaskSite(paths, client=client, joined=True), 2)
    assert_same(joined, moments_of(whole(frame), 2))
    # Lags that end with their file cost two rows at each of its four ends, fewer where files are shorter or cells empty.
    assert joined.n > apart.n


def test_bits_do_not_depend_on_who_is_ready_first(tmp_path, client):
    paths = cut(messy(), tmp_path)
    site = partial(DaskSite, paths, series="who", time="when", joined=True, part_rows=31)
    first = moments_of(site(client=client), 1)

    class Backwards:
        """A client that does the last part first, and sends everything as bytes."""

        def map(self, work, parts, pure):
            done = []
            for number, part in reversed(list(enumerate(parts))):
                sent_work, sent_part = pickle.loads(pickle.dumps((work, part)))
                done.append((number, pickle.loads(pickle.dumps(sent_work(sent_part)))))
            return done

        def gather(self, done):
            return [found for _, found in sorted(done, key=lambda one: one[0])]

    for other in (site(client=Backwards()), site()):
        again = moments_of(other, 1)
        np.testing.assert_array_equal(again.scatter, first.scatter)
        np.testing.assert_array_equal(again.mean, first.mean)


def test_every_usable_row_is_in_one_part(tmp_path):
    """The rule itself, without arithmetic: rows and their lags, listed part by part."""
    frame = pd.DataFrame({"a": np.arange(20.0)})
    paths = cut(frame, tmp_path, (3, 1, 1, 6))
    (recording,) = DaskSite(paths, joined=True, part_rows=4).recordings()
    parts = over_parts(
        recording, 2, lambda part: np.concatenate([b.values[:, 0] for b in part.blocks()]).tolist()
    )
    assert parts == [
        [0, 1, 2],
        [1, 2, 3],
        [2, 3, 4],
        [3, 4, 5, 6, 7, 8],
        [7, 8, 9, 10],
        [9, 10, 11, 12, 13, 14],
        [13, 14, 15, 16, 17, 18],
        [17, 18, 19],
    ]


def test_a_fit_asks_the_cluster_and_gives_the_network_of_one_process(tmp_path, client, monkeypatch):
    frame = messy(seed=3)
    paths = cut(frame, tmp_path)
    read = {"series": "who", "time": "when", "missing": "keep"}
    site = DaskSite(paths, **read, joined=True, client=client, part_rows=100, name="S")
    asked = []
    compute = DaskSite.compute
    monkeypatch.setattr(
        DaskSite, "compute", lambda self, work, parts: asked.append(len(parts)) or compute(self, work, parts)
    )
    there = FDBNL(prepare=AS_THEY_ARE).fit({"S": site})
    here = FDBNL(prepare=AS_THEY_ARE).fit({"S": frame}, series="who", time="when")
    assert asked
    np.testing.assert_allclose(there.W_raw_, here.W_raw_, atol=1e-8)
    np.testing.assert_allclose(there.A_raw_, here.A_raw_, atol=1e-8)


def test_columns_in_another_order_are_summed_by_the_cluster_too(tmp_path, monkeypatch):
    frame = messy()[list(NAMES)]
    site = AlignedSite(("c", "a"), DaskSite(cut(frame, tmp_path), joined=True, part_rows=100, missing="drop"))
    asked = []
    monkeypatch.setattr(
        DaskSite, "compute", lambda self, work, parts: asked.append(parts) or [work(p) for p in parts]
    )
    (recording,) = site.recordings()
    found = recording_gram(Design.linear(("c", "a"), 1), CompleteRows(recording)).moments
    assert len(asked) == 1
    complete = Moments.of_blocks(complete_blocks([Block(frame[["c", "a"]].to_numpy())]), 1, 2)
    # Rows that lack b are left out by the site, which reads all of its columns.
    rows = frame.dropna().index
    usable = [t for t in rows if t - 1 in rows]
    assert found.n == len(usable) < complete.n
    np.testing.assert_allclose(found.mean[:2], frame.loc[usable, ["c", "a"]].mean(), rtol=1e-12)


def test_a_bad_cell_is_named_with_its_own_row(tmp_path, client):
    frame = messy().drop(columns="who")
    frame.loc[333, "b"] = np.inf
    site = DaskSite(cut(frame, tmp_path), time="when", joined=True, client=client, part_rows=50)
    with refused(DataError, "'b'", "333"):
        moments_of(site, 2)
