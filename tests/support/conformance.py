"""The studies that must give the same numbers on every runtime, and their results in this process."""

import numpy as np

from feddbn.analysis import studies  # noqa: F401 (registers the methods)
from feddbn.federation.protocol.study import Study, StudyResult, study_method

TOLERANCE = 1e-12
PARAMETERS = {
    "oneshot": {"n_lags": 1, "noise_variance": "free"},
    "fdbnl": {"n_lags": 1, "lambda_w": 0.05, "lambda_a": 0.05, "schedule": "rounds", "rounds.max_rounds": 40},
    "pfdbnl": {"n_lags": 1, "lambda_w": 0.05, "lambda_a": 0.05, "mu": 0.5, "rounds.max_rounds": 30},
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


def plans(sites, variables, methods=tuple(PARAMETERS), **changes):
    """Every method in the clear and masked: name -> study."""
    out = {}
    for method in methods:
        out[method] = make_study(method, sites, variables, **changes)
        masked = {"secure_aggregation": True, "protection": "exact", "min_sites": min(3, len(sites))}
        out[f"{method}-masked"] = make_study(method, sites, variables, privacy=masked, **changes)
    if "pfdbnl" in methods:
        # Only in the clear: a masked sum over a sample of so few sites is one that must not be opened.
        sampled = {**PARAMETERS["pfdbnl"], "participation": 2, "rounds.max_rounds": 45}
        out["pfdbnl-sampled"] = make_study("pfdbnl", sites, variables, **{**changes, "parameters": sampled})
    return out


def in_process(study, data):
    """The study on the default runtime, from the same files; masked if the study is."""
    from feddbn.data import read_sites
    from feddbn.federation.protocol.site import Site
    from feddbn.runtime.simulated.in_process import InProcessFederation
    from feddbn.runtime.simulated.secure import secure_federation

    sites = read_sites({name: data[name] for name in study.sites})
    ends = {name: Site(name, site) for name, site in sites.items()}
    if study.privacy.secure_aggregation:
        federation = secure_federation(ends, study.privacy.min_sites)
    else:
        federation = InProcessFederation(ends)
    return study_method(study.method).run(study.parameters, federation)


def assert_same(found: StudyResult, expected: StudyResult):
    assert set(found.arrays) == set(expected.arrays)
    for name, array in expected.arrays.items():
        np.testing.assert_allclose(found.arrays[name], array, rtol=0, atol=TOLERANCE, err_msg=name)
    assert found.summary["n_rounds"] == expected.summary["n_rounds"]
    assert np.any(expected.arrays["W_raw"] != 0)
