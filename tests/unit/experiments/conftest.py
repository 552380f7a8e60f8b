import pytest

from feddbn.experiments.config import Experiment, parse_experiment
from support.tiny_experiment import TINY


@pytest.fixture
def tiny_text() -> str:
    return TINY


@pytest.fixture
def tiny() -> Experiment:
    return parse_experiment(TINY, "tiny.toml")
