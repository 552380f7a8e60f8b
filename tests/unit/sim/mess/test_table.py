import pytest

from feddbn.errors import ParameterError
from feddbn.sim import MESSES
from feddbn.sim.mess import resolve_mess
from feddbn.sim.messy import NOISE_MESSES, ROW_MESSES
from support.messy import with_mess

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
    ("mess", "more", "sentence"),
    [
        ("sunspots", {}, "mess='sunspots' is not known; choose from unequal-noise, slow-levels, "),
        (["offsets", 3], {}, "mess='3' is not known; choose from unequal-noise"),
        (7, {}, "mess must be a name, a list of names or a dict of strengths, got 7."),
        (
            {"missing": 2},
            {},
            "mess='missing' has strength 2, but it must be a number from 0 to 0.95 (share of the cells; default 0.1).",
        ),
        (
            {"heavy-tails": 2},
            {},
            "mess='heavy-tails' has strength 2, but it must be a number from 2.1 to 1000",
        ),
        ({"offsets": "big"}, {}, "mess='offsets' has strength 'big', but it must be a number from 0"),
        ({"offsets": float("nan")}, {}, "mess='offsets' has strength nan, but it must be a number from 0"),
        ({"spikes": True}, {}, "mess='spikes' has strength True, but it must be a number from 0 to 1"),
        (
            {"two-rates": 2.5},
            {},
            "mess='two-rates' has strength 2.5, but it must be a whole number from 1 to 100",
        ),
        ("slow-levels", {"n_lags": 0}, "mess='slow-levels' needs n_lags >= 1, got d=5 and n_lags=0."),
        ("sum-column", {"d": 1}, "mess='sum-column' needs d >= 2, got d=1 and n_lags=1."),
        (
            ["tanh", "squares"],
            {},
            "mess has both 'tanh' and 'squares', but effects can have one shape; leave one out.",
        ),
    ],
)
def test_an_impossible_mess_is_refused_with_one_sentence(mess, more, sentence):
    with pytest.raises(ParameterError) as caught:
        with_mess(mess, **more)
    assert str(caught.value).startswith(sentence)
