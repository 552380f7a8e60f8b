"""Several modules: what fits say, for every reader: whole sentences, and no Python for those who typed none."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from feddbn.findings import Finding
from feddbn.words import Audience, say

P = {"p": 1e-9}
MEMORY = {**P, "autocorrelation": 0.4, "echo": 1.0, "n_lags": 1, "lag_gain": 12.0, "looked_only": True}
ROWS = {"n_effective": 80.0, "n_rows": 100, "looked_only": True}
KEEP = {"prepare.spikes": "keep"}
FOUND = [
    Finding("own-means", "note", {"evidence": 12.0}, cure={"prepare.center": "none"}),
    Finding(
        "own-courses",
        "note",
        {"evidence": 12.0, "degree": 3, "periods": [24.0]},
        cure={"prepare.detrend": 0, "prepare.period": None},
    ),
    Finding("own-scales", "note", {"evidence": 12.0}, cure={"prepare.gains": "none"}),
    Finding("outliers-removed", "note", about=("a",), cure=KEEP),
    Finding("outliers-removed-under-noise", "note", {"far": 6.0, "share": 0.1}, ("a",), KEEP),
    Finding("scales-hidden-by-noise", "unknown", about=("a",)),
    Finding("bursts-kept", "note", about=("a",), cure={"prepare.spikes": "remove"}),
    Finding(
        "outliers-after-pulses-kept", "note", {"inputs": ["u"]}, ("a",), cure={"prepare.spikes": "remove"}
    ),
    Finding(
        "empty-cells",
        "note",
        {"share": 0.1, "has_removed": True, "n": 90.0},
        cure={"prepare.missing": "drop"},
    ),
    Finding("pairs-unseen", "warning", {"pairs": [["a", "b", [0, 1]], ["a", "a", [1]]]}),
    *(
        Finding("sites-disagree", "warning", {"n": n, "n_sites": 6, "left_out": out, "personal": own})
        for n, out, own in ((1, True, True), (1, True, False), (3, False, False), (1, False, False))
    ),
    Finding("not-looked-at-under-noise", "unknown", cure={"prepare.center": "recording"}),
    Finding("no-intercepts", "note"),
    Finding("outliers-kept-under-noise", "warning"),
    Finding(
        "kinds-as-lines", "warning", {"kinds": {"a": "count", "b": "binary"}, "means": {"a": 1.3, "b": 0.5}}
    ),
    Finding("lag-added", "note", {"n_lags": 2, "gain": 12.0}),
    Finding("noise-memory-removed", "note", {"memory": 0.6}, cure={"check_residuals": False}),
    Finding("residuals-hidden", "warning", {"causes": [["a", "b"], ["c", "d"]], "gain": 60.0}),
    Finding("residuals-memory", "warning", MEMORY),
    Finding("residuals-memory", "warning", {**MEMORY, "echo": 5.0, "lag_gain": None}),
    Finding("residuals-dependence", "warning", {**P, "correlation": 0.3}),
    Finding("residuals-volatility", "note", {**P, **ROWS, "correlation": 0.3}),
    Finding("residuals-thirds", "note", {**P, "ratio": 3.0}),
    Finding("residuals-spread", "note", {**P, "spread": 0.7}),
    Finding("residuals-tails", "note", {**P, "kurtosis": 12.0}),
    Finding("residuals-curvature", "warning", P),
    Finding(
        "could-be-hidden",
        "warning",
        {"edges": [["a", "b", 0], ["b", "c", 1]], "n_edges": 4, "causes": [["a", "b"]], "gain": 3.0},
    ),
    Finding(
        "curves",
        "note",
        {"n_curves": 2, "n_edges": 3, "n_products": 1, "gain": 40.0},
        cure={"features": "linear"},
    ),
    Finding("few-rows-for-curves", "warning", {"n": 59.0, "q": 32, "others": ["quadratic", "linear"]}),
    Finding("rows-added", "note", {"n_new": 10, "n_before": 90}),
    Finding("treated-as-before", "warning", {"own_means": True, "degree": 1, "outliers": ["a"]}),
    Finding("not-selected-by-spread", "note", {"fewest": 4}),
    Finding("sites-not-compared", "unknown", cure={"prepare.on_disagreement": "warn"}),
    Finding("noise-shape-not-looked-at", "unknown", cure={"use_nongaussian": "auto"}),
    Finding("few-rows-for-marks", "warning", {"n": 20.0, "q": 12}),
    Finding("marks", "note", {"n_edges": 4, "n_hidden": 1, "n_open": 2}),
    Finding("cyclic-marks", "warning", {"n": 2}),
]
# Calls, attributes of fits and keyword arguments.
PYTHON = re.compile(r"\w\(\w+=|\b[a-z]+_\b|[a-z]=['\"]|feddbn\.\w")


@pytest.mark.parametrize("found", FOUND, ids=lambda found: found.code)
def test_sentences_are_whole_and_speak_to_their_readers(found):
    said = {audience: say(found, audience) for audience in get_args(Audience)}
    assert all(re.search(r"\.\)?$", one) and "  " not in one for one in said.values())
    for audience in ("cli", "owner", "lead"):
        assert not PYTHON.search(said[audience]), said[audience]
    for name in found.cure:
        assert f"-p {name}=" in said["cli"]
        assert f"{name} = " in said["lead"]


def test_what_a_site_alone_found_is_said_with_its_name():
    inner = Finding("own-means", "note", {"evidence": 12.0}, cure={"prepare.center": "none"})
    found = Finding("of-site", "note", {"site": "a", "what": ", its own network", "finding": inner.to_dict()})
    assert say(found, "cli") == f"site 'a', its own network: {say(inner, 'cli')}"
