import pytest

# Most studies name the first three; a masked sum survives a drop-out only with four.
SITES = ("site-a", "site-b", "site-c", "site-d")


@pytest.fixture(scope="session")
def frames():
    """A small simulated federation: site -> one recording of x0 ... x3."""
    import pandas as pd

    from feddbn import simulate

    made = simulate(d=4, n_lags=1, n_sites=len(SITES), n_samples=320, mean_degree=2, random_state=3)
    return {name: pd.DataFrame(data[0]) for name, data in zip(SITES, made.sites.values(), strict=True)}


@pytest.fixture(scope="session")
def federation(tmp_path_factory, frames):
    """One NVFlare server and four sites as real processes with mutual TLS, for all integration tests."""
    pytest.importorskip("nvflare")
    from support.nvflare_federation import NVFlareFederation

    modules = ("support.study_programs", "support.mischief")
    with NVFlareFederation(tmp_path_factory.mktemp("nvflare"), frames, programs=modules) as running:
        yield running
