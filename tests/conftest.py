"""How many examples Hypothesis draws, what fits leave out, and how workers share the tests (`pytest -n 2`)."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

# The same examples everywhere: what passes here passes in continuous integration. `make test-all` takes "thorough".
settings.register_profile("quick", settings.get_profile("ci"), max_examples=20)
settings.register_profile("thorough", settings.get_profile("ci"), max_examples=200)
settings.load_profile("quick")

# What one worker takes, whatever the file: one starts the engines' federation, one the browser.
TOGETHER = {
    "engine": tuple(f"tests/integration/test_{name}" for name in ("nvflare_", "flower", "deployment_guide")),
    "browser": ("tests/report/",),
}


def group_of(nodeid: str) -> str:
    """The tests that one worker takes together, otherwise those of a file, which share fixtures and caches."""
    alone = nodeid.partition("::")[0]
    return next((name for name, paths in TOGETHER.items() if nodeid.startswith(paths)), alone)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the engines' tests; they wait much and take longest, so they come first."""
    for item in items:
        if group_of(item.nodeid) == "engine":
            item.add_marker(pytest.mark.engine)
    items.sort(key=lambda item: item.get_closest_marker("engine") is None)


@pytest.fixture(scope="module", autouse=True)
def _little_to_collect() -> None:
    """Keep what stands when a file begins out of the garbage collector's way; all of it takes a tenth of a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _unsynchronised() -> Iterator[None]:
    """Do not wait for the disk: processes are killed here, machines are not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("feddbn.runtime.store.SYNCHRONOUS", "OFF")
        patch.setattr("os.fsync", lambda handle: None)
        yield


_ASKED: set[str] = set()


def _on_request(name: str) -> Any:
    """The fixture by which a test asks for what fits leave out otherwise."""

    @pytest.fixture(name=name)
    def asked() -> Iterator[None]:
        _ASKED.add(name)
        yield
        _ASKED.discard(name)

    return asked


# Which edges hidden causes could stand for; averages over resamples; whether a network is better for sites than their own.
doubts, bagged, alone = map(_on_request, ("doubts", "bagged", "alone"))


@pytest.fixture(scope="session", autouse=True)
def _left_out(pytestconfig: pytest.Config) -> Iterator[None]:
    """Leave out what takes more time than the fit itself, unless a test asks for it.

    What `make test-all` adds leaves out only the comparison with sites alone, and a process of its own leaves out nothing.
    """
    from feddbn.core.orders.hidden import HiddenDoubts, doubtful_edges
    from feddbn.federation.guards import study_plan
    from feddbn.federation.programs.alone import is_compared
    from feddbn.methods.oneshot import OneShotSettings, usual_resamples

    compares, check = study_plan._compares_alone, OneShotSettings.__post_init__

    def doubtful(moments: Any, support: np.ndarray, *others: Any) -> HiddenDoubts:
        if "doubts" in _ASKED:
            return doubtful_edges(moments, support, *others)
        return HiddenDoubts(np.zeros_like(support))

    def chosen(settings: OneShotSettings) -> None:
        check(settings)
        if settings.resamples == "auto" and "bagged" not in _ASKED:
            object.__setattr__(settings, "resamples", 0)

    with pytest.MonkeyPatch.context() as patch:
        for method in ("oneshot", "fdbnl"):
            patch.setattr(
                f"feddbn.methods.{method}.is_compared", lambda given: "alone" in _ASKED and is_compared(given)
            )
        patch.setattr(study_plan, "_compares_alone", lambda given: "alone" in _ASKED and compares(given))
        if pytestconfig.getoption("hypothesis_profile", None) != "thorough":
            for program in ("oneshot", "residual_checks"):
                patch.setattr(f"feddbn.federation.programs.{program}.doubtful_edges", doubtful)
            patch.setattr(OneShotSettings, "__post_init__", chosen)
            patch.setattr(
                study_plan, "usual_resamples", lambda d: usual_resamples(d) if "bagged" in _ASKED else 0
            )
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups of tests by their names; the marks of pytest-xdist 3.8 are not read with pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    # In the order of collection: the engines' tests are few in `make test`, and would come last.
    config.option.loadscopereorder = False
    return Groups(config, log)
