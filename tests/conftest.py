"""Which tests share a worker when several run at the same time (``--dist loadgroup``)."""

import pytest


def pytest_collection_modifyitems(config, items):
    """Keep a file on one worker, and all tests of the running NVFlare federation on one: it is started once."""
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            name = "nvflare" if "test_nvflare_" in item.nodeid and "integration" in item.nodeid else None
            item.add_marker(pytest.mark.xdist_group(name or item.nodeid.partition("::")[0]))
