"""Red team 29: servers of regions and the top, alone and together, see sums of min_sites sites or masks."""

from itertools import combinations

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn.errors import AggregationError, NotEnoughSites, ParameterError, ProtocolError
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import Task, whole
from feddbn.privacy.integers import decode_fixed, encode_fixed
from feddbn.privacy.register import Register
from feddbn.privacy.secagg_server import SecAggServer
from feddbn.privacy.secagg_site import SecAggSite
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.simulated.secure import secure_federation
from support.outside import outside
from support.questions import Values, give_values, make_question
from support.saying import refused
from support.secagg_wire import Wire

layered = outside("benchmarks/masked_regions.py")
Ask = make_question("regional-values", give_values, i=whole(default=0))
REGIONS = {"north": ["a", "b", "c", "d"], "south": ["e", "f", "g"], "west": ["h", "i", "j"]}
VALUES = {name: np.random.default_rng(ord(name)).normal(size=4) for name in "abcdefghij"}


def _sites(names=VALUES):
    return {name: Site(name, Values(VALUES[name])) for name in names}


def _total(names):
    return np.sum([VALUES[name] for name in names], axis=0)


class _Tapped:
    """A courier that keeps every reply: all that a server sees besides what it opens."""

    def __init__(self, courier):
        self.courier, self.replies = courier, []

    @property
    def sites(self):
        return self.courier.sites

    def __call__(self, messages):
        replies = self.courier(messages)
        self.replies += list(replies.items())
        return replies

    def masked(self):
        return {name: arrays["y"] for name, (meta, arrays) in self.replies if meta["phase"] == "masked"}


def _tap(secure):
    secure._courier = _Tapped(secure._courier)
    return secure._courier


def _looks_like(residues, vector):
    """Whether what was sent is the vector itself, as numbers travel."""
    return any(np.allclose(decode_fixed(residues, n_sites), vector, rtol=1e-6) for n_sites in (2, 4))


def test_the_top_sees_masked_sums_of_regions_and_opens_the_sum_of_all():
    federation = layered.regional_federation(_sites(), REGIONS)
    tapped = _tap(federation._top)
    opened = federation.sum(Task(Ask()))
    np.testing.assert_allclose(opened.value, _total(VALUES), atol=1e-9)
    assert opened.contributors == tuple(sorted(VALUES))
    assert set(tapped.masked()) == set(REGIONS)
    for region, sent in tapped.masked().items():
        assert not _looks_like(sent, _total(REGIONS[region]))


def test_a_region_server_sees_masks_and_opens_the_sum_of_its_region():
    federation = layered.regional_federation(_sites(), REGIONS)
    regions = {name: one.region for name, one in federation._sums.items()}
    taps = {name: _tap(region) for name, region in regions.items()}
    federation.sum(Task(Ask()))
    for region, tapped in taps.items():
        assert set(tapped.masked()) == set(REGIONS[region])
        for site, sent in tapped.masked().items():
            assert not _looks_like(sent, VALUES[site])


def test_the_eye_that_looks_for_plain_vectors_finds_one_where_nothing_is_masked():
    """Otherwise the two tests above could not fail."""
    assert _looks_like(encode_fixed(VALUES["a"], 3), VALUES["a"])


def test_all_servers_together_combine_no_few_sites():
    """What they hold is one sum a region: every combination has one coefficient for all sites of a region."""
    held = np.array([[name in names for name in sorted(VALUES)] for names in REGIONS.values()], dtype=float)
    assert np.linalg.matrix_rank(held) == len(REGIONS)
    for few in [*combinations(range(len(VALUES)), 1), *combinations(range(len(VALUES)), 2)]:
        target = np.zeros(len(VALUES))
        target[list(few)] = 1.0
        best = held.T @ np.linalg.lstsq(held.T, target, rcond=None)[0]
        assert np.abs(best - target).max() > 0.2


@pytest.mark.parametrize(
    ("regions", "name"),
    [
        ({"north": ["a", "b"], "south": ["c", "d", "e"]}, "'north'"),
        ({"north": ["a", "b", "c"], "south": ["c", "d", "e"]}, "'c'"),
        ({"all": ["a", "b", "c", "d", "e"]}, "1"),
        ({"north": ["a", "b", "c"], "south": ["d", "x", "e"]}, "'x'"),
        ({"north": ["a", "b", "c"]}, "'d'"),
    ],
)
def test_small_doubled_and_single_regions_are_refused(regions, name):
    with refused((NotEnoughSites, ParameterError), name):
        layered.regional_federation(_sites("abcde"), regions)


def test_a_region_that_adds_up_in_the_clear_is_no_region():
    plain, masked = InProcessFederation(_sites("abc")), secure_federation(_sites("def"))
    with refused(ParameterError, "north", "secure_federation"):
        layered.RegionalFederation({"north": plain, "south": masked})


def test_some_sites_only_are_never_asked():
    federation = layered.regional_federation(_sites(), REGIONS)
    with pytest.raises(ProtocolError):
        federation.sum(Task(Ask(), ("a", "b", "c", "d")))


def test_regions_that_were_asked_different_things_open_nothing():
    federation = layered.regional_federation(_sites(), REGIONS)
    courier = federation._top._courier
    south = courier._sites["south"]
    honest = south.respond

    def asked_otherwise(meta, arrays):
        if meta["phase"] == "masked":
            other = Task(Ask(i=1))
            digest = federation._top._digest(other.fields(), dict(other.arrays))
            meta = {**meta, "task": other.fields(), "task_digest": digest}
        return honest(meta, arrays)

    south.respond = asked_otherwise
    courier.fault = lambda site, phase: None
    with refused(AggregationError, code="asked-otherwise"):
        federation.sum(Task(Ask()))


def _opened(wire, registers, names):
    """A sum over one region, by the real halves of the protocol; sites remember earlier ones."""
    wire.sites = {
        name: SecAggSite(
            name, wire.identities[name], wire.pinned, "run", wire.rng.bytes, 3, register=registers[name]
        )
        for name in names
    }
    wire.names, wire.server = list(names), SecAggServer("run", 3)
    wire.set_up()
    wire.mask()
    return wire.open().value


def test_moving_one_site_to_another_region_would_show_it_and_is_refused():
    wire = Wire(n_sites=7)
    names = list(wire.names)
    registers = {name: Register() for name in names}
    first, second = names[:4], names[4:]
    one = _opened(wire, registers, first)
    _opened(wire, registers, second)
    for moved in (first[:3], [first[3], *second]):
        with pytest.raises(AggregationError):
            _opened(wire, registers, moved)
    # The same regions may be asked again, and without a memory the attack works.
    np.testing.assert_allclose(_opened(wire, registers, first), one)
    forgetful = {name: Register() for name in names}
    less = _opened(wire, forgetful, first[:3])
    np.testing.assert_allclose(one - less, wire.vectors[first[3]], rtol=1e-6, atol=1e-6)


def test_a_site_lost_after_the_first_sum_ends_the_study_and_shows_nothing():
    federation = layered.regional_federation(_sites(), REGIONS)
    federation.sum(Task(Ask()))
    region = federation._sums["south"].region
    region._courier.fault = lambda site, phase: "request lost" if site == "e" else None
    with pytest.raises(AggregationError):
        federation.sum(Task(Ask(i=1)))
