"""Which tests share a worker when several run at the same time (``--dist loadgroup``)."""

import pytest

ENGINES = ("integration/test_nvflare_", "integration/test_flower", "integration/test_deployment_guide")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Keep a file on one worker, and all tests of the engines on one, to begin with.

    The running NVFlare federation is then started once, and the engines, each of them many processes with
    time limits of their own, do not wait for one another.
    """
    is_engine = {item: any(name in item.nodeid for name in ENGINES) for item in items}
    items.sort(key=lambda item: not is_engine[item])
    if hasattr(config, "workerinput"):
        for item in items:
            group = "engines" if is_engine[item] else item.nodeid.partition("::")[0]
            item.add_marker(pytest.mark.xdist_group(group))
