"""Sites for adapters to reach."""

from contextlib import nullcontext

import pytest

from feddbn.engine import conformance


@pytest.fixture
def trial(tmp_path):
    """Sites with data, which approve by rule."""
    with conformance.trial(lambda sites: nullcontext(lambda messages: {}), tmp_path / "trial") as made:
        yield made


@pytest.fixture
def places(trial):
    return {name: trial.sites[name] for name in conformance.NAMES}
