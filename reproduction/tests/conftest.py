import pytest

from reproduction.config import Experiment, parse_experiment
from reproduction.tests.tiny import TINY


@pytest.fixture
def tiny() -> Experiment:
    return parse_experiment(TINY, "tiny.toml")
