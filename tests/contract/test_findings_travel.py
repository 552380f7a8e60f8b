"""What a study finds is in its result, and nothing is warned of inside a server; the same fit in Python warns its user.

Warnings are errors in tests, so a study that warned would end here.
"""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("cryptography")
from feddbn import FDBNL, OneShotDBN
from feddbn.errors import DependentColumnsWarning
from feddbn.privacy.policy import USUAL_TASKS
from support.consortium import NAMES, PREPARE, Consortium, make_study

PARAMETERS = {"n_lags": 1, "prepare": PREPARE}
LISTED = ", ".join(
    f'"{name}"' for name in (*USUAL_TASKS, "gram.parts", "loss.rows", "loss.sums", "loss.alone")
)
POLICY = f"approve_by_rule = true\nrequire_masking = false\ntasks = [{LISTED}]\n"


@pytest.fixture(scope="module")
def frames():
    """One column is nearly twice the other, of which every method warns."""
    rng, found = np.random.default_rng(0), {}
    for name in NAMES:
        u = rng.normal(size=150)
        found[name] = [pd.DataFrame({"u": u, "v": 2.0 * u + 1e-4 * rng.normal(size=150)})]
    return found


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("oneshot", {}),
        ("fdbnl", {}),
        ("fdbnl", {"goal": "select", "select": {"grid": {"lambda_w": [0.01, 0.1]}}}),
        ("oneshot", {"goal": "compare", "compare": {"against": ["fdbnl"]}}),
        ("oneshot", {"goal": "confidence", "confidence": {"replicates": 4}}),
    ],
)
def test_a_study_tells_its_findings_in_the_result_and_warns_of_nothing(tmp_path, frames, method, changes):
    sites = Consortium(tmp_path, policy=POLICY)
    for name, (frame,) in frames.items():
        frame.to_csv(sites.place / name / "data" / "r000.csv", index=False)
    study = make_study(method=method, parameters=PARAMETERS, privacy={"secure_aggregation": False}, **changes)
    summary = sites.run(study)[0].summary
    if study.goal != "confidence":
        assert "near-identity" in [one["code"] for one in summary["result"]["findings"]]


@pytest.mark.parametrize("estimator", [OneShotDBN(**PARAMETERS), FDBNL(**PARAMETERS)])
def test_the_same_fit_in_python_warns(frames, estimator):
    with pytest.warns(DependentColumnsWarning):
        estimator.fit(frames)
