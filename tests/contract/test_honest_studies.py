"""Whatever an honest study asks is within its scope: no site with a usual policy refuses a question of it."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from feddbn import AS_THEY_ARE, simulate
from feddbn.analysis import studies  # noqa: F401 (registers the methods)
from feddbn.data.read import read_sites
from feddbn.federation.guards.study_plan import plan_of, scope_of
from feddbn.federation.protocol.site import site_tasks
from feddbn.federation.protocol.task import tasks_in
from feddbn.privacy.policy import USUAL_TASKS
from feddbn.runtime.server.conduct import run_study
from support.consortium import RULE, Consortium, by_rule

pytestmark = pytest.mark.promise

POLICY = "\n".join(
    [
        "require_masking = false",
        "max_rounds = 5000",
        'features = ["linear", "quadratic", "spline"]',
        f"tasks = {json.dumps(site_tasks())}",
    ]
)
D = 4
SHIPPED = {"protection": "weights"}
"""As masked studies are by default."""


def recording(kind, site, rng):
    """A stable process with one of the troubles that treatments are for."""
    # Of few rows with empty cells little is left in the parts of a fold.
    N = 480 if kind == "empty, many rows" else 160
    noise = rng.laplace(size=(N, D)) if kind == "laplace" else rng.normal(size=(N, D))
    x = np.zeros((N, D))
    for t in range(1, N):
        if kind == "memory":
            noise[t] += 0.6 * noise[t - 1]
        x[t] = 0.4 * x[t - 1] + noise[t]
        x[t, 1:] += np.abs(x[t, :-1]) if kind == "bent" else 0.8 * x[t, :-1]
    if kind == "gains":
        x *= np.exp(rng.normal(size=D))
    if kind == "trend":
        x += (np.linspace(0, 5 * rng.normal(), N) + 3 * np.sin(2 * np.pi * np.arange(N) / 12))[:, None]
    if kind == "levels":
        x += 1e4 * (1 + rng.random())
    if kind.startswith("empty"):
        x[rng.random(x.shape) < 0.03] = np.nan
    if kind == "carried":
        x[:, 2] = np.where(np.arange(N) % 3 == 1, np.roll(x[:, 2], 1), x[:, 2])
    if kind == "few" and site == 1:
        x[50, 1] = np.nan
    if kind.startswith("kinds"):
        x[:, 1], x[:, 2] = x[:, 1] > 0, rng.poisson(np.exp(0.3 + 0.3 * np.clip(x[:, 2], -3, 3)))
        x[:, 3] = np.digitize(x[:, 3], [-1.0, 0.5])
        if kind == "kinds and rare levels":
            x[:, 3] += (rng.random(N) < 0.02) * (x[:, 3] == 2)
        if kind == "kinds and empty":
            x[rng.random(x.shape) < 0.01] = np.nan
    if kind == "spikes":
        x[rng.random(x.shape) < 0.01] += 80.0
    return x


def run_all(sites, study):
    """What a masked study tells in the end, and which sites refused something."""
    told, _ = sites.run(study, "run")
    codes = {name: [entry.code for entry in sites.refusals(name, "run")] for name in sites.names}
    return told.summary["result"], {name: found for name, found in codes.items() if found}


QUICK = {"rounds.max_rounds": 6}
CONFIDENCE = {"goal": "confidence", "confidence": {"replicates": 4}}
ALGEBRA = {"prepare.definitions": {"x2": "x1 - 2 x3"}}
CASES = [
    *(("oneshot", {}, kind, {}) for kind in ("gains", "levels", "few", "spikes")),
    ("oneshot", {"features": "auto", "n_lags": "auto"}, "bent", {}),
    ("oneshot", {"n_lags": 0}, "memory", {}),
    ("oneshot", {"use_nongaussian": True, "noise_variance": "equal"}, "laplace", {}),
    ("oneshot", {"features": "spline"}, "trend", {}),
    ("oneshot", {"features": "quadratic", "interactions": True, "n_lags": "auto"}, "bent", {}),
    ("oneshot", {"prepare.on_disagreement": "exclude"}, "gains", {}),
    # Cells of inputs are not bounded: three doses of 80 would be most of what is told of them.
    ("oneshot", {"prepare.exogenous": ["x0"]}, "gains", {}),
    ("oneshot", ALGEBRA, "empty", {}),
    ("oneshot", {"prepare.made_up": {"x1": "lines", "x2": "repeats"}}, "carried", {}),
    ("fdbnl", {**QUICK, **ALGEBRA}, "gains", {"goal": "compare", "compare": {"against": ["oneshot"]}}),
    ("oneshot", {"prepare": {"detrend": 2, "period": 12, "gains": "site"}}, "trend", {}),
    ("oneshot", {}, "plain", {"goal": "confidence", "confidence": {"replicates": 4}}),
    *(("changing", {}, kind, {}) for kind in ("gains", "empty")),
    ("changing", {"blocks": 16, "prepare": dict(AS_THEY_ARE)}, "plain", {}),
    ("mixed", {"kinds": {"x1": "binary", "x2": "count", "x3": {"categorical": 3}}}, "kinds and empty", {}),
    ("mixed", {"kinds": {"x2": "count", "x3": {"categorical": 4}}}, "kinds and rare levels", {}),
    ("latent", {}, "memory", {}),
    ("summary", {}, "trend", {}),
    ("fdbnl", {**QUICK, "schedule": "paper", "weighting": "sites"}, "empty", {}),
    ("pfdbnl", {**QUICK, "participation": 0.8}, "spikes", {}),
]
LONG = [
    ("fdbnl", {**QUICK, "weighting": "sites"}, "trend", {}),
    ("oneshot", {"features": "quadratic"}, "trend", CONFIDENCE),
    ("oneshot", {}, "trend", {}),
    *(("oneshot", {}, kind, {}) for kind in ("memory", "trend", "empty")),
    *(("oneshot", {}, kind, {}) for kind in ("memory", "empty", "plain")),
    ("oneshot", {"features": "spline", "random_state": 7}, "empty", {}),
    ("oneshot", {}, "gains", {"goal": "compare", "compare": {"against": ["fdbnl"]}}),
    ("oneshot", {"n_lags": "auto"}, "memory", {}),
    ("oneshot", {"use_nongaussian": "auto"}, "laplace", {}),
    *(("oneshot", {"features": "spline"}, kind, {}) for kind in ("empty", "spikes", "levels")),
    ("oneshot", {"features": "auto"}, "bent", {}),
    ("oneshot", ALGEBRA, "plain", CONFIDENCE),
    ("oneshot", {}, "empty", CONFIDENCE),
    ("oneshot", {"features": "spline"}, "empty", CONFIDENCE),
    *(("oneshot", {"features": "auto"}, kind, CONFIDENCE) for kind in ("bent", "plain")),
    *(("changing", {}, kind, {}) for kind in ("memory", "trend", "levels", "spikes")),
    ("mixed", {"kinds": {"x1": "binary", "x2": "count", "x3": {"ordinal": 3}}}, "kinds", {}),
    ("mixed", {}, "plain", {}),
    ("fdbnl", QUICK, "gains", {}),
    ("fdbnl", {**QUICK, "lambda_w": "auto", "lambda_a": "auto"}, "empty", {}),
    ("pfdbnl", {"rounds.max_rounds": 40, "schedule": "paper", "participation": 0.8, "mu": 2}, "plain", {}),
    (
        "pfdbnl",
        QUICK,
        "empty, many rows",
        {"goal": "select", "select": {"grid": {"mu": [0.1], "n_lags": [1, 2]}}},
    ),
    ("fdbnl", QUICK, "gains", {"goal": "compare", "compare": {"against": ["pfdbnl", "oneshot"]}}),
    ("fdbnl", {**QUICK, "n_lags": "auto"}, "trend", {}),
    ("pfdbnl", {**QUICK, "mu": "auto"}, "trend", {}),
    ("fdbnl", {"rounds.max_rounds": 8, "schedule": "paper"}, "trend", {"goal": "select"}),
]
CASES += [pytest.param(*case, marks=pytest.mark.slow) for case in LONG]


@pytest.mark.parametrize(("method", "parameters", "kind", "more"), CASES)
def test_no_question_of_an_honest_study_is_refused(tmp_path, method, parameters, kind, more):
    rng = np.random.default_rng(0)
    data = {f"s{i}": [recording(kind, i, rng) for _ in range(2)] for i in range(5)}
    sites = Consortium(tmp_path, data, RULE + POLICY + "\n")
    study = sites.study(
        method,
        {"n_lags": 1, **parameters},
        {"secure_aggregation": False},
        attendance={"when_missing": "abort"},
        **more,
    )
    asked = set()
    run_study(sites.coordinator(study, "run", tell=lambda event: asked.add(event.task)), study)
    assert {name: sites.refusals(name, "run") for name in sites.names} == {name: [] for name in sites.names}
    assert asked - {"", "hello", "finish"} <= {*tasks_in(plan_of(study))}
    assert scope_of(study, 10).variables == sites.variables


@pytest.mark.parametrize("is_listed", [True, False])
def test_masked_sites_answer_parts_if_their_policies_list_them(tmp_path, is_listed):
    rng = np.random.default_rng(0)
    data = {f"s{i}": [recording("trend", i, rng) for _ in range(3)] for i in range(4)}
    listed = [task for task in USUAL_TASKS if is_listed or task != "gram.parts"]
    sites = Consortium(tmp_path, data, f"{RULE}tasks = {json.dumps(listed)}\n")
    study = sites.study("oneshot", {}, SHIPPED, attendance={"when_missing": "abort"})
    result, refused = run_all(sites, study)
    found = {one["code"]: one for one in result["findings"]}
    assert ("parts-not-known" in found) is not is_listed
    assert bool(refused) is not is_listed


@pytest.mark.parametrize(
    ("size", "policy"),
    [
        ({"d": 5, "n_sites": 4, "n_samples": 400}, by_rule()),
        # 51 rows for 21 columns: only owners who allow fewer rows for each parameter answer, and no other rule is in the way.
        ({"d": 10, "n_sites": 10, "n_samples": 512}, RULE + "min_rows_per_parameter = 2\n"),
    ],
)
def test_masked_sites_answer_about_data_as_the_readme_simulates_them(tmp_path, size, policy):
    fed = simulate(n_lags=1, random_state=0, **size)
    data = {name: [np.asarray(one) for one in rows] for name, rows in fed.sites.items()}
    sites = Consortium(tmp_path, data, policy)
    result, refused = run_all(sites, sites.study(privacy=SHIPPED, attendance={"when_missing": "abort"}))
    assert (refused, len(result["edges"]) > 0) == ({}, True)


@pytest.mark.slow
def test_masked_hospitals_answer_about_vital_signs(tmp_path):
    """Bounded cells, empty cells, and two pressures whose mean is a third variable, but for rounding."""
    place = Path(os.environ.get("FEDDBN_DATA", "")) / "clif-demo"
    if not os.environ.get("FEDDBN_DATA") or not place.is_dir():
        pytest.skip("needs the tables of the CLIF demo: set FEDDBN_DATA to the directory that has clif-demo")
    pytest.importorskip("duckdb")
    layout = Path(__file__).parents[2] / "examples" / "clif.toml"
    for path in (place / "clif_vitals.parquet", place / "clif_hospitalization.parquet", layout):
        (tmp_path / path.name).symlink_to(path)
    sites = read_sites(tmp_path / layout.name, missing="keep")
    data = {name.replace(" ", "-"): [whole(one) for one in site.recordings()] for name, site in sites.items()}
    sites = Consortium(tmp_path / "sites", data, by_rule())
    result, refused = run_all(sites, sites.study(privacy=SHIPPED, attendance={"when_missing": "abort"}))
    assert (len(result["edges"]) > 0, len(sites.names)) == (True, 4)
    # A part of the rows has few with an empty cell: then no part is told, and the study goes on.
    assert {code for codes in refused.values() for code in codes} == {
        "few-rows-in-view",
        "refused-after-reading",
    }
    assert any(one["code"] == "parts-not-known" for one in result["findings"])


def whole(recording):
    """The rows of a recording at their times, with empty ones in between."""
    blocks = list(recording.blocks())
    rows = np.full((max(one.time + len(one.values) for one in blocks), blocks[0].values.shape[1]), np.nan)
    for one in blocks:
        rows[one.time : one.time + len(one.values)] = one.values
    return rows
