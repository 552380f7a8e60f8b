"""Sites masked together send, bit for bit, what each would send alone."""

import copy

import numpy as np
import pytest

from feddbn.privacy.secagg_site import mask_together
from support.secagg_wire import Wire, assert_sum


@pytest.mark.parametrize("length", [0, 6, 9])
def test_masked_together_is_masked_alone(length):
    alone = Wire(n_sites=5, seed=4).set_up(length=length)
    together = copy.deepcopy(alone.sites, _keep_keys(alone))
    order = alone.server.open_slot("task")
    expected = alone.ask((alone.server.masked_request(order), {}))
    for site in together.values():
        site.spend(order)
    vectors = np.array([alone.vectors[name] for name in alone.names])
    replies = mask_together(list(together.values()), order, vectors)
    assert list(replies) == alone.names
    for name, (meta, arrays) in replies.items():
        assert meta == expected[name][0]
        np.testing.assert_array_equal(arrays["y"], expected[name][1]["y"])
        peers = [k for k, other in enumerate(alone.names) if other != name]
        np.testing.assert_array_equal(arrays["tags"][peers], expected[name][1]["tags"][peers])
    # A server that got half of the inputs this way and half the other opens the same sum.
    alone.sites = together
    alone.server.collect({n: (replies if n < "s02" else expected)[n] for n in alone.names})
    assert_sum(alone.server.open(_opened(alone, replies)), alone, alone.names)


def _opened(wire, replies):
    requests = wire.server.unmask_requests()
    own = {name: k for k, name in enumerate(wire.names)}
    for name, (_, arrays) in requests.items():
        # What a site sent itself is its own business; it comes back to it.
        arrays["tags"][own[name]] = replies[name][1]["tags"][own[name]]
    return wire.ask_each(requests)


def _keep_keys(wire):
    """Keys of the `cryptography` package cannot be copied, nor need they be."""
    kept = [wire.rng.bytes, *wire.identities.values()]
    kept += [site._epoch.key for site in wire.sites.values()]
    return {id(thing): thing for thing in kept}
