import numpy as np
import pytest

from feddbn.core.statistics.survey import cycles_in, periodogram


def found(recordings):
    parts = [periodogram(x - x.mean(axis=0)) for x in recordings]
    n = sum(number for _, number in parts)
    return cycles_in(sum(power for power, _ in parts) / n, n, np.mean([len(x) for x in recordings]))


def noisy(rng, n, d, phi=()):
    x = rng.normal(size=(n + 50, d))
    for t in range(len(phi), len(x)):
        x[t] += sum(c * x[t - 1 - k] for k, c in enumerate(phi))
    return x[50:]


@pytest.mark.parametrize("period", [7, 24, 12.5])
@pytest.mark.parametrize("phi", [(), (0.6,), (-0.5,)])
def test_a_cycle_with_a_phase_of_its_own_at_every_site_is_found(period, phi):
    rng = np.random.default_rng(0)
    t = np.arange(200)[:, None]
    recordings = [
        noisy(rng, 200, 5, phi) + np.sin(2 * np.pi * t / period + rng.uniform(0, 6, 5)) for _ in range(8)
    ]
    assert found(recordings)[0] == pytest.approx(period, rel=0.01)


def test_two_cycles_are_found_the_stronger_first():
    rng = np.random.default_rng(1)
    t = np.arange(336)[:, None]
    wave = 2 * np.sin(2 * np.pi * t / 24) + np.sin(2 * np.pi * t / 10)
    assert found([noisy(rng, 336, 4) + wave for _ in range(6)])[:2] == (24.0, 10.0)


@pytest.mark.parametrize("phi", [(), (0.9,), (-0.8,), (1.2, -0.6)])
def test_noise_has_no_cycles_even_with_a_memory_or_a_resonance(phi):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        assert found([noisy(rng, 200, 6, phi) for _ in range(8)]) == ()
