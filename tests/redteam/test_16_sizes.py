"""A small message takes no large memory, and no name of a run takes the place of a site's own files."""

import numpy as np
import pytest

from feddbn.errors import ProtocolError
from feddbn.runtime.store import STORE
from support.rig import Refused, Rig, Server, raw
from support.saying import refused

pytestmark = pytest.mark.usefixtures("light")


@pytest.fixture
def rig(tmp_path):
    rng = np.random.default_rng(0)
    return Rig(tmp_path, {f"s{i}": [rng.normal(size=(50, 2))] for i in range(4)})


@pytest.mark.parametrize(
    ("name", "params", "sentence"),
    [
        ("loss.sums", {"n_candidates": 10**9}, "1"),
        ("gram.resamples", {"stop": 10**9}, "0"),
        ("gram.rows", {"n_lags": 10**6}, "0"),
        ("gram.rows", {"periods": [1e300]}, "2"),
    ],
)
def test_numbers_of_a_question_have_bounds(rig, name, params, sentence):
    server = Server(rig, rig.study())
    usual = {} if name == "loss.sums" else {"n_lags": 1, "variables": rig.variables}
    if name == "gram.resamples":
        usual |= {"first": -1, "resampling": "bootstrap", "block_rule": "auto", "unit": "auto", "seed": 0}
    with refused(Refused, sentence):
        server.sum(raw(name, {**usual, **params}, {"origin": np.zeros(4)} if "stop" in params else None))


def test_a_run_cannot_be_called_like_a_file_of_the_site(rig):
    """It could, `site.sock`, and the site did not start again."""
    Server(rig, rig.study(), "site.sock")
    assert (rig.place / "s0" / "state" / "site.sock").is_dir()
    for run in (STORE, "_audit", "_audit.head", "_approvals", "..", "a/b", ".hidden"):
        with refused(ProtocolError, 1, 64, code="bad-run-id"):
            Server(rig, rig.study(), run)
