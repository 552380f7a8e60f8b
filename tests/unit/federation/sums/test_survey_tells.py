"""What a server can work out from a survey: docs/privacy-details.md says so, and this shows it."""

import numpy as np
import pytest

from feddbn.data import read_sites
from feddbn.federation.protocol.rows import Treatment, treated
from feddbn.federation.protocol.task import run_program
from feddbn.federation.sums.survey import survey_program
from feddbn.federation.sums.treatment import moments_program
from feddbn.sim.simulation import simulate
from support.sites import federation_of


def sums_of(n_sites, seed, d=4):
    """Surveyed and pooled sums of sites with scales of their own, and their true standard deviations."""
    rng = np.random.default_rng(seed)
    fed = simulate(d=d, n_lags=1, n_sites=n_sites, n_samples=1000 * n_sites, random_state=seed)
    sites = {name: [frame * rng.uniform(0.8, 1.25, d)] for name, (frame,) in fed.sites.items()}
    federation = federation_of(read_sites(sites))
    survey = run_program(survey_program(federation.variables, 1), federation)
    program = treated(moments_program(federation.variables, 1), Treatment(center="recording"))
    moments = run_program(program, federation)
    true = np.array([np.asarray(frames[0]).std(axis=0) for frames in sites.values()])
    return survey, np.diag(moments.scatter)[:d] / moments.n, np.sort(true, axis=0)


def worst(found, true):
    return np.abs(found / true - 1.0).max(axis=0)


def test_two_sites_are_known_up_to_their_order():
    survey, _, true = sums_of(2, 0)
    mean = survey.total[:4] / 2
    half = np.sqrt(np.maximum(survey.squares[:4] / 2 - mean**2, 0.0))
    assert worst(np.exp([mean - half, mean + half]), true).max() < 0.1


@pytest.mark.slow
def test_with_pooled_variances_three_sites_are_told_apart():
    errors, guesses = [], []
    angles = np.linspace(0.0, 2 * np.pi / 3, 2001)[:, None] + 2 * np.pi / 3 * np.arange(3)
    for seed in range(20):
        survey, pooled, true = sums_of(3, seed)
        mean = survey.total[:4] / 3
        radius = np.sqrt(np.maximum(survey.squares[:4] - 3 * mean**2, 0.0) * 2 / 3)
        # Three numbers of a given sum and sum of squares lie on a circle; the pooled variance says where.
        tried = np.exp(mean + radius * np.cos(angles)[..., None])
        best = np.abs((tried**2).mean(axis=1) - pooled).argmin(axis=0)
        found = np.sort([tried[k, :, i] for i, k in enumerate(best)], axis=1).T
        errors.append(worst(found, true))
        guesses.append(worst(np.exp(mean), true))
    assert np.median(errors) < 0.06
    assert np.median(guesses) > 2 * np.median(errors)


def test_how_many_sites_have_cells_of_another_kind_is_told_and_not_which_or_how_many():
    def told(*odd):
        """The answers about one column of three sites, of which some have such cells among whole numbers."""
        sites = []
        for k in range(3):
            counts = np.random.default_rng(k).poisson(3.0, (50, 1)).astype(float)
            for row, (site, cell) in enumerate(odd):
                counts[row] = cell if site == k else counts[row]
            sites.append([counts[:25], counts[25:]])
        federation = federation_of(sites)
        survey = run_program(survey_program(federation.variables, 0, profiles="none"), federation)
        return survey.objections.ravel().tolist()

    assert told() == [0.0, 3.0]
    assert told((0, 0.5)) == told((2, 7.25)) == told((1, -1.0), (1, 0.5), (1, 0.25)) == [1.0, 3.0]
    assert told((0, 0.5), (1, 0.5)) == [2.0, 3.0]
