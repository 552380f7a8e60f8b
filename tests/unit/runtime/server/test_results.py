"""What a result says beside its network."""

import json

from feddbn.analysis import studies  # noqa: F401 (registers the methods)
from feddbn.federation.protocol.study import Study, StudyResult
from feddbn.runtime.server.results import export_result


def test_a_fetched_result_says_how_much_weights_vary(tmp_path):
    study = Study(
        name="s",
        method="oneshot",
        variables=("x", "y"),
        sites=("a", "b", "c"),
        parameters={"n_lags": 1},
        privacy={"secure_aggregation": True},
    )
    stored = {"format": "feddbn-result", "privacy": None, "diagnostics": {"n_samples": 5000}}
    (tmp_path / "result.feddbn").write_bytes(StudyResult({}, {"result": stored}).to_bytes())
    (tmp_path / "outcome.json").write_text(json.dumps({"study": json.loads(study.to_json())}))
    export_result(tmp_path)
    assert json.loads((tmp_path / "result.json").read_text())["privacy"]["spread"] == 0.3
