import pytest

from feddbn.errors import ParameterError
from feddbn.sim import MESSES
from feddbn.sim.mess import resolve_mess
from feddbn.sim.messy import NOISE_MESSES, ROW_MESSES
from support.messy import with_mess
from support.saying import refused

ELSEWHERE = {
    "unequal-noise",
    "slow-levels",
    "stopping-edges",
    "tanh",
    "squares",
    "sum-column",
    "duplicate",
    "everything",
}


def test_every_mess_of_the_table_is_done_somewhere():
    assert set(MESSES) == {*ROW_MESSES, *NOISE_MESSES, *ELSEWHERE}
    assert all(mess.least <= mess.default <= mess.most for mess in MESSES.values())


def test_functions_act_in_the_order_of_the_table():
    order = list(MESSES)
    assert list(ROW_MESSES) == sorted(ROW_MESSES, key=order.index)
    assert list(NOISE_MESSES) == sorted(NOISE_MESSES, key=order.index)


def test_a_name_several_names_and_strengths_mean_the_same():
    one, several, strengths = (
        resolve_mess(asked, 3, 1) for asked in ("spikes", ["spikes"], {"spikes": None})
    )
    assert one == several == strengths == {"spikes": 0.01}
    assert resolve_mess(None, 3, 1) == {}


def test_everything_is_its_parts_and_a_part_that_is_named_has_its_own_strength():
    assert resolve_mess("everything", 3, 1) == {"trend": 3, "offsets": 3, "spikes": 0.005, "missing": 0.1}
    for asked in ({"everything": 2, "spikes": 0.5}, {"spikes": 0.5, "everything": 2}):
        assert resolve_mess(asked, 3, 1) == {"trend": 6, "offsets": 6, "spikes": 0.5, "missing": 0.2}


@pytest.mark.parametrize(
    ("mess", "more", "names"),
    [
        ("sunspots", {}, ("'sunspots'", "slow-levels")),
        (7, {}, ("mess", 7)),
        ({"missing": 2}, {}, ("'missing'", 2, 0.95)),
        ({"offsets": float("nan")}, {}, ("'offsets'", "nan")),
        ({"spikes": True}, {}, ("'spikes'", True)),
        ({"two-rates": 2.5}, {}, ("'two-rates'", 2.5)),
        ("slow-levels", {"n_lags": 0}, ("'slow-levels'", "n_lags >= 1", "n_lags=0")),
        ("sum-column", {"d": 1}, ("'sum-column'", "d >= 2", "d=1")),
        (["tanh", "squares"], {}, ("'tanh'", "'squares'")),
    ],
)
def test_an_impossible_mess_is_refused_by_name_and_strength(mess, more, names):
    with refused(ParameterError, *names):
        with_mess(mess, **more)
