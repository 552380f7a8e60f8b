import numpy as np
import pytest

import feddbn
from feddbn.sim import MESSES
from feddbn.sim.mess import resolve_mess
from support.messy import values, with_mess

TOTAL = -2.3079209737982325


@pytest.mark.parametrize("name", MESSES)
def test_same_seed_gives_the_same_bits_and_strength_and_name_are_recorded(name):
    first, second = with_mess(name, n_samples=300), with_mess({name: None}, n_samples=300)
    for one, two in zip(values(first), values(second), strict=True):
        assert one.tobytes() == two.tobytes()
    assert first.parameters["mess"] == resolve_mess(name, 5, 1)
    assert set(first.truth.variables[:5]) == {f"x{i}" for i in range(5)}
    again = feddbn.simulate(**first.parameters)
    assert values(again)[0].tobytes() == values(first)[0].tobytes()


def test_a_mess_takes_nothing_from_the_generator_of_the_data():
    generators = [np.random.default_rng(8) for _ in range(3)]
    for mess, rng in zip((None, "everything", ["duplicate", "hidden-causes"]), generators, strict=True):
        with_mess(mess, random_state=rng)
    assert len({rng.bytes(8) for rng in generators}) == 1


def test_without_mess_the_data_are_those_of_earlier_versions():
    """The sum of a federation drawn before there was a mess."""
    total = sum(np.asarray(frame).sum() for frames in feddbn.simulate().sites.values() for frame in frames)
    assert total == pytest.approx(TOTAL, rel=1e-9)


def test_one_mess_does_not_change_what_another_draws():
    alone, both = values(with_mess("offsets")), values(with_mess(["missing", "offsets", "spikes"]))
    different = np.vstack(alone) != np.vstack(both)
    assert different.mean() == pytest.approx(0.1 + 0.9 * 0.01, abs=0.01)


def test_the_order_of_the_names_does_not_matter():
    first, second = with_mess(["rounding", "gains"]), with_mess(["gains", "rounding"])
    np.testing.assert_array_equal(values(first)[0], values(second)[0])
    assert np.all(values(first)[0] == np.round(values(first)[0]))


def test_recordings_of_a_site_share_its_offset_and_sites_with_own_networks_are_fine():
    more = {"n_recordings": 3, "heterogeneity": 0.5}
    clean, messy = with_mess(**more), with_mess("offsets", **more)
    shifts = [
        np.asarray(b - a).mean(axis=0)
        for a, b in zip(clean.sites["site-0"], messy.sites["site-0"], strict=True)
    ]
    np.testing.assert_allclose(shifts[0], shifts[1])
    several = with_mess(["stopping-edges", "slow-levels", "duplicate"], **more)
    assert len({id(dbn) for dbn in several.truths.values()}) == 6


def test_a_method_fits_what_is_simulated(clean):
    fed = with_mess("offsets")
    model = feddbn.OneShotDBN().fit(fed.sites)
    assert feddbn.score(fed.truth, model.dbn_).W["shd"] == 0
    assert any("means" in sentence for sentence in model.warnings_)
