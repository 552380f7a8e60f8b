"""A fit of what shows nothing says so first, and claims nothing; a fit of clean rows claims what is there."""

from __future__ import annotations

import numpy as np
import pytest

from feddbn import OneShotDBN, simulate
from feddbn.cli.printed import print_result
from feddbn.errors import ResultWarning
from feddbn.report import render_report
from feddbn.report.record import read_record
from feddbn.report.verdicts import verdicts
from feddbn.results.abstention import ABSTAINED
from feddbn.results.result import Result
from support.saying import only

pytestmark = pytest.mark.promise


@pytest.fixture(scope="module")
def untold():
    """A fit of noise."""
    rng = np.random.default_rng(0)
    with pytest.warns(ResultWarning):
        return OneShotDBN().fit({name: rng.standard_normal((500, 5)) for name in "abc"})


def test_what_the_data_do_not_tell_is_said_first(untold, tmp_path, capsys):
    assert untold.findings_[0].code == ABSTAINED
    assert not untold.W_.any()
    assert not (untold.A_ * (1 - np.eye(5))).any()
    stored = Result.load(Result.from_estimator(untold).save(tmp_path / "result.json"))
    assert stored.findings[0].code == ABSTAINED
    assert only(verdicts(read_record(stored)), "verdict-empty").level != "good"
    assert 'class="abstained"' in render_report(stored)
    print_result(stored)
    out, err = capsys.readouterr()
    assert "do not show which" in " ".join(out.splitlines()[:3])
    assert "do not show which" not in err


def test_a_fit_of_clean_rows_claims_what_is_there():
    drawn = simulate(d=5, n_sites=4, n_samples=4000, mean_degree=2, random_state=1)
    model = OneShotDBN().fit(drawn.sites)
    np.testing.assert_array_equal(model.W_ != 0, drawn.truth.W != 0)
    claimed = model.edge_probabilities_.query("weight != 0")
    assert (claimed["probability"] > 0.9).all()
    assert ABSTAINED not in model.findings_.codes
