"""The studies that must give the same numbers on every runtime, and their results in this process."""

import numpy as np

from feddbn.federation.study import Study, StudyResult, study_method
from feddbn.methods import studies  # noqa: F401 (registers the methods)

TOLERANCE = 1e-12
PARAMETERS = {
    "fdbnl": {"n_lags": 1, "lambda_w": 0.05, "lambda_a": 0.05, "max_rounds": 40},
}


def make_study(method, sites, variables, **changes):
    values = {
        "name": method,
        "method": method,
        "variables": tuple(variables),
        "sites": tuple(sites),
        "parameters": PARAMETERS[method],
        "attendance": {"timeout_s": 60.0},
    }
    return Study(**{**values, **changes})


def in_process(study, data):
    """The study on the default runtime, from the same files."""
    from feddbn.data import read_sites
    from feddbn.federation.site import Site
    from feddbn.runtime.in_process import InProcessFederation

    sites = read_sites({name: data[name] for name in study.sites})
    federation = InProcessFederation({name: Site(name, site) for name, site in sites.items()})
    federation.variables = study.variables
    return study_method(study.method).run(study.parameters, federation)


def assert_same(found: StudyResult, expected: StudyResult):
    assert set(found.arrays) == set(expected.arrays)
    for name, array in expected.arrays.items():
        np.testing.assert_allclose(found.arrays[name], array, rtol=0, atol=TOLERANCE, err_msg=name)
    assert found.summary["n_rounds"] == expected.summary["n_rounds"]
    assert np.any(expected.arrays["W_raw"] != 0)
