import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
SITES = ("site-a", "site-b", "site-c")


@pytest.fixture(scope="session")
def federation(tmp_path_factory):
    """One NVFlare server and three sites as real processes with mutual TLS, for all integration tests."""
    pytest.importorskip("nvflare")
    from nvflare_federation import NVFlareFederation

    modules = ("study_programs", "mischief")
    with NVFlareFederation(tmp_path_factory.mktemp("nvflare"), SITES, programs=modules) as running:
        yield running
