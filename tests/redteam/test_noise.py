"""Two sums that differ by one row, under the noise that masked studies carry by default: the row stays hidden.

Without noise the difference is the row to 1e-12. Rules about rows refuse the known ways to such pairs of sums; here no rule
helps, and what is left is the noise.
"""

import hashlib

import numpy as np
import pytest

from feddbn.data import read_sites
from feddbn.federation.guards.sampling_noise import SamplingNoise
from feddbn.federation.protocol.site import Channel, Site
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.gram import GramQuestion
from support.consortium import Consortium, Liar, by_rule, plain, raw

pytestmark = pytest.mark.promise

D, N = 4, 500
NAMES = tuple(f"x{j}" for j in range(D))
QUESTION = Task(GramQuestion(n_lags=0, variables=NAMES))


def total(data, key):
    """The sum over sites, as a server opens it; without a key it is exact."""
    read = read_sites(data, variables=NAMES, missing="keep")
    among = hashlib.sha256(b"".join(data[name].tobytes() for name in sorted(data))).hexdigest()
    sites = [
        Site(name, read[name], (SamplingNoise(key + name.encode()),) if key else ()) for name in sorted(read)
    ]
    return sum(site.answer(QUESTION, Channel(masked=True, among=among)) for site in sites)


def difference(key, seed):
    """(the row from the difference of two sums, the row)."""
    rng = np.random.default_rng(seed)
    data = {name: rng.normal(size=(N, D)) for name in "abc"}
    row = rng.normal(size=D)
    more = {**data, "a": np.insert(data["a"], 200, row, axis=0)}
    return (total(more, key) - total(data, key))[1 : 1 + D], row


def test_without_noise_the_row_is_read_off():
    found, row = difference(b"", 0)
    np.testing.assert_allclose(found, row, atol=1e-9)


def test_with_noise_it_is_ten_standard_deviations_away():
    """One row more at one site is another draw at every site."""
    errors = [np.subtract(*difference(f"{seed} ".encode(), seed)) for seed in range(20)]
    assert np.sqrt(np.mean(np.square(errors))) > 10


def test_asking_again_averages_nothing_out():
    rng = np.random.default_rng(1)
    data = {name: rng.normal(size=(N, D)) for name in "abc"}
    first = total(data, b"key")
    for _ in range(3):
        np.testing.assert_array_equal(total(data, b"key"), first)
    assert np.abs(first - total(data, b""))[1 : 1 + D].max() > 3


@pytest.mark.parametrize("protection", ["noise", "exact"])
def test_a_deployed_study_has_it_unless_it_asks_for_exact_sums(tmp_path, protection):
    sites = Consortium(tmp_path, plain(rows=300, d=3, seed=2), by_rule())
    found = []
    for run in ("one", "two"):
        liar = Liar(sites, sites.study(privacy={"protection": protection}), run)
        found.append(liar.sum(raw("gram.rows", {"n_lags": 1, "variables": sites.variables})).value)
    rows = np.concatenate([np.hstack([one[1:], one[:-1]]) for (one,) in sites.data.values()])
    off = np.abs(found[0][1:7] - rows.sum(axis=0)).max()
    assert off < 1e-6 if protection == "exact" else 1 < off < 40
    # Another run asks about the same rows, and has the same noise.
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)
