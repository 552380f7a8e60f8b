"""Red team 12: a site subtracts its own share of the noise, and what is left is still what was promised."""

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")
from feddbn.errors import ParameterError
from feddbn.federation.protocol.study import parse_study, study_from_json
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.private_moments import guaranteed_sites, study_noise_plan
from feddbn.privacy.gaussian import gaussian_epsilon
from support.noisy_sites import VARIABLES, make
from support.saying import refused
from support.study_files import ABOUT_LINE

pytestmark = pytest.mark.usefixtures("light")

TASK = Task(GramQuestion(n_lags=1, variables=VARIABLES))
CLIP = 5.0


def test_three_real_sites_of_which_one_knows_its_share(tmp_path):
    sites = make(tmp_path)
    study = sites.study(clip=CLIP)
    plan = study_noise_plan(study)
    opened = sites.coordinator(study).sum(TASK).value
    seen = opened - sites.guard("c").last.value
    weights = plan.rules["gram.rows"].weights(len(opened))
    # What the others' clipped sums are is bounded by their units, six of norm 5; the noise is far above it.
    left = weights * seen
    sigma = plan.multiplier * CLIP
    assert np.linalg.norm(left) / np.sqrt(len(left)) > 0.15 * sigma


@pytest.mark.parametrize("n_sites", [3, 4, 10])
def test_what_a_colluding_site_leaves_is_the_noise_that_was_booked(n_sites):
    names = ", ".join(f'"s{i}"' for i in range(n_sites))
    text = f'name = "s"\nmethod = "oneshot"\nvariables = ["u"]\nsites = [{names}]\n{ABOUT_LINE}'
    study = parse_study(text + "[privacy]\nsecure_aggregation = true\nepsilon = 1.0\n")
    plan, certain = study_noise_plan(study), guaranteed_sites(study)
    left = (certain - 1) / plan.n_shares(certain)
    assert gaussian_epsilon(1e-5, plan.multiplier * np.sqrt(left)) <= 1.0
    # Spread over all of them, it was not.
    assert gaussian_epsilon(1e-5, plan.multiplier * np.sqrt((certain - 1) / certain)) > 1.05


def test_a_study_has_at_least_one_colluding_site():
    head = 'name = "s"\nmethod = "oneshot"\nvariables = ["u"]\nsites = ["a", "b", "c"]\n'
    text = f"{head}{ABOUT_LINE}[privacy]\nepsilon = 1.0\n"
    assert parse_study(text).privacy.n_colluding == 1
    with refused(ParameterError, "privacy.n_colluding", 1):
        parse_study(text + "n_colluding = 0\n")
    more = parse_study(text + "n_colluding = 2\n")
    assert study_from_json(more.to_json()) == more
    assert "n_colluding" not in parse_study(text).to_json()
