"""A small message takes no large memory, and no name of a run takes the place of a site's own files."""

import numpy as np
import pytest

from feddbn.errors import ProtocolError
from feddbn.runtime.deployed.store import AUDIT, REGISTER
from support.rig import Refused, Rig, Server, raw


@pytest.fixture
def rig(tmp_path):
    rng = np.random.default_rng(0)
    return Rig(tmp_path, {f"s{i}": [rng.normal(size=(50, 2))] for i in range(4)})


@pytest.mark.parametrize(
    ("name", "params", "sentence"),
    [
        ("held-out-sums", {"n_candidates": 10**9}, "must be a whole number from 1 to 10000"),
        ("bootstrap-moments", {"stop": 10**9}, "must be a whole number from 0 to 1000000"),
        ("moments", {"n_lags": 10**6}, "must be a whole number from 0 to 1000"),
        ("moments", {"periods": [1e300]}, "must be a number from 2 to 1e\\+09"),
    ],
)
def test_numbers_of_a_question_have_bounds(rig, name, params, sentence):
    server = Server(rig, rig.study())
    usual = {} if name == "held-out-sums" else {"n_lags": 1, "variables": rig.variables}
    if name == "bootstrap-moments":
        usual |= {"first": -1, "resampling": "bootstrap", "block_rule": "auto", "unit": "auto", "seed": 0}
    with pytest.raises(Refused, match=sentence):
        server.sum(raw(name, {**usual, **params}, {"origin": np.zeros(4)} if "stop" in params else None))


def test_a_run_cannot_be_called_like_a_file_of_the_site(rig):
    """It could, `site.sock`, and the site did not start again."""
    Server(rig, rig.study(), "site.sock")
    assert (rig.place / "s0" / "state" / "site.sock").is_dir()
    for run in (AUDIT, REGISTER, "_approvals", "..", "a/b", ".hidden"):
        with pytest.raises(ProtocolError, match="a run id has 1 to 64 characters"):
            Server(rig, rig.study(), run)
