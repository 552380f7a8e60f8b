"""How many examples Hypothesis draws, and which tests stay together when several workers share them."""

from __future__ import annotations

import pytest
from hypothesis import settings

# The same examples everywhere: what passes here passes in continuous integration. `make test-all` takes "thorough".
settings.register_profile("quick", settings.get_profile("ci"), max_examples=20)
settings.register_profile("thorough", settings.get_profile("ci"), max_examples=200)
settings.load_profile("quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of one file stay together, for their fixtures; those of the engines share one running federation.

    The engines' tests wait much and take longest, so they come first.
    """
    items.sort(key=lambda item: item.get_closest_marker("engine") is None)
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            group = "engine" if item.get_closest_marker("engine") else item.nodeid.partition("::")[0]
            item.add_marker(pytest.mark.xdist_group(group))
