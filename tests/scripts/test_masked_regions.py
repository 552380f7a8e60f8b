"""Sums in two and three levels are those of one."""

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn import FDBNL, simulate
from feddbn.data import read_sites
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import Task
from feddbn.runtime.simulated.secure import secure_federation
from support.outside import outside
from support.questions import Values, give_values, make_question

layered = outside("benchmarks/masked_regions.py")
Ask = make_question("regions-unit", give_values)


def test_a_fit_over_regions_is_the_fit_over_sites():
    sites = simulate(d=4, n_sites=6, n_samples=360, random_state=2).sites
    data = read_sites(sites, missing="keep")
    names = sorted(data)
    federation = layered.regional_federation(
        {name: Site(name, one) for name, one in data.items()}, {"one": names[:3], "two": names[3:]}
    )
    there, here = FDBNL(federation=federation).fit(None), FDBNL().fit(sites)
    np.testing.assert_allclose(there.W_, here.W_, atol=1e-6)
    np.testing.assert_allclose(there.A_, here.A_, atol=1e-6)
    assert list(there.sites_.index) == names


def test_a_drop_out_of_the_first_sum_is_missing_from_the_sum_and_from_the_contributors():
    values = {f"s{i}": np.full(2, 10.0**i) for i in range(8)}
    lost = secure_federation(
        {name: Site(name, Values(values[name])) for name in ("s0", "s1", "s2", "s3")},
        fault=lambda site, phase: "request lost" if (site, phase) == ("s3", "masked") else None,
    )
    kept = secure_federation({name: Site(name, Values(values[name])) for name in ("s4", "s5", "s6", "s7")})
    opened = layered.RegionalFederation({"lost": lost, "kept": kept}).sum(Task(Ask()))
    np.testing.assert_allclose(opened.value, 11110111.0)
    assert opened.contributors == ("s0", "s1", "s2", "s4", "s5", "s6", "s7")


def test_regions_of_regions_add_up():
    values = {f"s{i:02d}": np.array([1.0, i]) for i in range(12)}
    names = sorted(values)

    def region(part):
        return secure_federation({name: Site(name, Values(values[name])) for name in part})

    halves = {
        half: layered.RegionalFederation(
            {"x": region(names[start : start + 3]), "y": region(names[start + 3 : start + 6])}
        )
        for half, start in (("left", 0), ("right", 6))
    }
    top = layered.RegionalFederation(halves)
    opened = top.sum(Task(Ask()))
    np.testing.assert_allclose(opened.value, [12.0, 66.0])
    assert opened.contributors == top.sites == tuple(names)
    assert top.state_of("s00") is None
