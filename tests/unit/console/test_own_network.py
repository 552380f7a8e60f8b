import pytest

pytest.importorskip("cryptography")
from feddbn import AS_THEY_ARE
from feddbn.console.own_network import OwnNetworks
from feddbn.errors import StateError
from feddbn.results.result import Result
from support.console_kits import SiteKits
from support.owned_sites import make_study

pytestmark = pytest.mark.usefixtures("light")

PARAMETERS = {
    "n_lags": 1,
    "lambda_w": 0.05,
    "lambda_a": 0.05,
    "rounds.max_rounds": 4,
    "check_residuals": False,
    "prepare": dict(AS_THEY_ARE),
}


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    made = SiteKits(tmp_path_factory.mktemp("kits"), n_rows=100)
    for run, study in {
        "shared": make_study(name="shared"),
        "own": make_study(name="own", method="pfdbnl", parameters=PARAMETERS),
    }.items():
        made.approve(study)
        made.run(study, run)
    return made


def test_a_network_that_the_study_left_at_the_site_is_compared_as_it_is(kits):
    settings = kits.settings()
    found = OwnNetworks().compare(settings, "own")
    place = settings.state / "own"
    shared, own = (Result.load(place / f"{name}.feddbn").dbn for name in ("result", "personal"))
    assert found.by_study
    assert found.finding.code == "networks-compared"
    assert found.edges
    for edge in found.edges:
        at = (shared.variables.index(edge.source), shared.variables.index(edge.target))
        assert edge.first == shared.adjacency_matrices[edge.lag][at]
        assert edge.second == own.adjacency_matrices[edge.lag][at]
    gaps = [abs(edge.first_share - edge.second_share) for edge in found.edges]
    assert gaps == sorted(gaps, reverse=True)
    assert max(max(abs(edge.first_share), abs(edge.second_share)) for edge in found.edges) == pytest.approx(
        1.0
    )
    assert sum(bool(edge.first) for edge in found.edges) == int(shared.is_edge.sum())


def test_a_study_without_own_networks_is_compared_with_one_learned_here(kits):
    settings, networks = kits.settings(), OwnNetworks()
    assert networks.compare(settings, "shared").finding.values == {"why": "none"}
    networks.learn(settings, "shared")
    found = networks.compare(settings, "shared")
    strongest = max(found.edges, key=lambda edge: abs(edge.first))
    # The true edge is there in both, with about its weight.
    assert (strongest.source, strongest.target, strongest.lag, strongest.where) == ("u", "v", 1, "both")
    assert strongest.second == pytest.approx(0.8, abs=0.3)
    assert {run.run: (run.has_own, run.study) for run in networks.runs(settings, {"own": "own"})} == {
        "own": (True, "own"),
        "shared": (False, ""),
    }


def test_a_run_without_a_result_is_refused(kits):
    with pytest.raises(StateError, match="none"):
        OwnNetworks().compare(kits.settings(), "none")
