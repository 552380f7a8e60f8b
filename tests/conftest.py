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


_DOUBTS = {"asked": False}


@pytest.fixture(scope="session", autouse=True)
def _no_doubts(pytestconfig: pytest.Config) -> Iterator[None]:
    """Leave out which edges hidden causes could stand for: the server's last work, with no question to a site.

    It takes half of the time of fits on few rows, so in `make test` only tests with the fixture `doubts` do it; what
    `make test-all` adds does it throughout, and so does whatever runs in a process of its own.
    """
    if pytestconfig.getoption("hypothesis_profile", None) == "thorough":
        yield
        return
    from feddbn.core.orders.hidden import HiddenDoubts, doubtful_edges

    def doubtful(moments: Any, support: np.ndarray, *others: Any) -> HiddenDoubts:
        if _DOUBTS["asked"]:
            return doubtful_edges(moments, support, *others)
        return HiddenDoubts(np.zeros_like(support))

    with pytest.MonkeyPatch.context() as patch:
        for program in ("oneshot", "residual_checks"):
            patch.setattr(f"feddbn.federation.programs.{program}.doubtful_edges", doubtful)
        yield


@pytest.fixture
def doubts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for hidden causes: for tests of what is said about them."""
    monkeypatch.setitem(_DOUBTS, "asked", True)


_BAGGED = {"asked": False}


@pytest.fixture(scope="session", autouse=True)
def _no_resamples(pytestconfig: pytest.Config) -> Iterator[None]:
    """Leave out resamples unless a test asks for a number of them: they take twice the time of the fit itself.

    In `make test` only tests with the fixture `bagged` have them by default; what `make test-all` adds has them throughout,
    and so does whatever runs in a process of its own.
    """
    if pytestconfig.getoption("hypothesis_profile", None) == "thorough":
        yield
        return
    from feddbn.methods.oneshot import OneShotSettings, usual_resamples

    usual, check = usual_resamples, OneShotSettings.__post_init__

    def chosen(settings: OneShotSettings) -> None:
        check(settings)
        if settings.resamples == "auto" and not _BAGGED["asked"]:
            object.__setattr__(settings, "resamples", 0)

    def asked(d: int) -> int:
        return usual(d) if _BAGGED["asked"] else 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OneShotSettings, "__post_init__", chosen)
        patch.setattr("feddbn.federation.guards.study_plan.usual_resamples", asked)
        yield


@pytest.fixture
def bagged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Average over resamples by default, as users do."""
    monkeypatch.setitem(_BAGGED, "asked", True)


_ALONE = {"asked": False}


@pytest.fixture(scope="session", autouse=True)
def _not_alone() -> Iterator[None]:
    """Leave out whether a network is better for sites than their own: one question more, and work at every site.

    Tests with the fixture `alone` have it, and so does whatever runs in a process of its own.
    """
    from feddbn.federation.guards import study_plan
    from feddbn.federation.programs import alone

    asked = {"is_compared": alone.is_compared, "_compares_alone": study_plan._compares_alone}

    def gate(name: str) -> Any:
        return lambda given: _ALONE["asked"] and asked[name](given)

    with pytest.MonkeyPatch.context() as patch:
        for method in ("oneshot", "fdbnl"):
            patch.setattr(f"feddbn.methods.{method}.is_compared", gate("is_compared"))
        patch.setattr(study_plan, "_compares_alone", gate("_compares_alone"))
        yield


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask sites whether the network is better for them than their own, as users do."""
    monkeypatch.setitem(_ALONE, "asked", True)


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
