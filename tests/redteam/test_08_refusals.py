"""Refusals are no oracle: what depends on data is one sentence, and what depends on the question needs no data."""

import numpy as np
import pytest

from feddbn.federation.protocol.messages import WITHHELD
from feddbn.privacy.audit import parse_entries
from feddbn.runtime.site.kit_files import default_policy_text
from support.rig import Refused, Rig, Server, raw
from support.states import log_lines

pytestmark = pytest.mark.usefixtures("light")

LENGTHS = {"s0": (30, 25, 41), "s1": (31, 25, 48), "s2": (32, 25, 55)}


@pytest.fixture
def private(tmp_path):
    rng = np.random.default_rng(0)
    data = {name: [rng.normal(size=(n, 3)) for n in lengths] for name, lengths in LENGTHS.items()}
    rig = Rig(tmp_path, data, default_policy_text() + "max_epsilon = 1.0\n")
    return rig, Server(rig, rig.study(privacy={"epsilon": 1.0}), "or")


def probe(server, **params):
    try:
        server.sum(raw("gram.rows", {"variables": server.rig.variables, **params}))
    except Refused as error:
        return set(error.told.values())
    return set()


def test_the_longest_recording_cannot_be_told_from_refusals(private):
    rig, server = private
    below, above = probe(server, n_lags=47, clip_bound=-1), probe(server, n_lags=48, clip_bound=-1)
    assert below == above
    assert "48" not in " ".join(above)
    # With a bound that could be, lags are refused before anything is read, whatever the data.
    for n_lags in (2, 10, 40, 47, 48, 400):
        told = probe(server, n_lags=n_lags, clip_bound=1.0)
        assert {sentence.partition("refused: ")[2] for sentence in told} == {WITHHELD}
        last = rig.refusals("s1", "or")[-1]
        assert (last.code, str(n_lags) in last.note) == ("other-lags", True)
    lines = log_lines(rig.place / "s1" / "state", "or")
    assert {entry.event for entry in parse_entries(lines)} == {"refused"}


def test_a_refusal_lists_no_columns(private):
    _, server = private
    with pytest.raises(Refused, match=WITHHELD) as caught:
        server.sum(raw("gram.rows", {"variables": ("a",), "n_lags": 1, "clip_bound": 1.0}))
    assert "x0" not in str(caught.value)


def test_numbers_that_masks_cannot_hide_are_one_sentence_too(tmp_path):
    rng = np.random.default_rng(1)
    data = {f"s{i}": [10.0 ** (5 * i) * rng.normal(size=(50, 2))] for i in range(3)}
    rig = Rig(tmp_path, data)
    server = Server(rig, rig.study())
    params, arrays = {"variables": rig.variables, "n_lags": 1}, {"origin": np.full(4, 1e9)}
    server.refused(raw("gram.rows", params, arrays), "too-large", site="s2")
