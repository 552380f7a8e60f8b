"""Flower with nodes of our own: a masked study has the bits of one process, and code that a server sends is not run."""

import time
from contextlib import contextmanager

import pytest

pytest.importorskip("cryptography")
from feddbn.engine import conformance
from support.flower_platform import carried

pytestmark = pytest.mark.usefixtures("light")

SITES = conformance.NAMES[:3]


@contextmanager
def trial_over_flower(tmp_path):
    running = []

    @contextmanager
    def make_exchange(sites):
        with carried(tmp_path / "flower", {name: sites[name] for name in SITES}) as (
            flower,
            exchange,
        ):
            running.append(flower)
            yield exchange

    with conformance.trial(make_exchange, tmp_path / "trial") as trial:
        yield trial, running[0]


def test_a_masked_study_runs_and_the_servers_code_does_not(tmp_path):
    """The app that is sent has a ClientApp that leaves a mark wherever it is imported: at a SuperNode of Flower it does."""
    with trial_over_flower(tmp_path) as (trial, flower):
        study = trial.study(masked=True, sites=SITES)
        trial.compare(trial.run(study), study)
        (refused,) = trial.exchange({"north": b"no message"}).values()
        assert conformance._is_refusal(refused)
        assert not flower.mark.exists()
        flower.supernode()
        end = time.monotonic() + 300
        while not flower.mark.exists():
            trial.exchange({"north": b"whoever is new is asked for its name"})
            assert time.monotonic() < end, "the mark cannot be left, so its absence says nothing"
            time.sleep(0.5)
