"""Kinds of variables: their columns, what they refuse, and how users say them."""

import numpy as np
import pytest

from feddbn.core.kinds import CONTINUOUS, Kind, read_kinds
from feddbn.errors import ParameterError
from support.saying import refused


def test_columns_of_every_kind():
    ward = Kind("categorical", ("a", "b", "c"))
    kinds = [
        CONTINUOUS,
        Kind("positive"),
        Kind("count"),
        Kind("binary"),
        Kind("ordinal", ("lo", "mid", "hi")),
        ward,
    ]
    rows = np.array([[-1.5, np.e, 0, 1, 2, 2], [2.0, 1.0, np.expm1(2), 0, 0, 0]])
    found = np.concatenate([kind.encode(rows[:, j]) for j, kind in enumerate(kinds)], axis=1)
    np.testing.assert_allclose(found, [[-1.5, 1, 0, 1, 2, 0, 1], [2, 0, 2, 0, 0, 0, 0]])
    assert [kind.width for kind in kinds] == [1, 1, 1, 1, 1, 2]


def test_an_empty_cell_is_empty_in_every_column():
    assert np.isnan(Kind("categorical", ("a", "b", "c")).encode(np.array([np.nan]))).all()


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (Kind("positive"), [0.0, -2.0]),
        (Kind("count"), [-1.0, 1.5]),
        (Kind("binary"), [2.0, 0.5]),
        (Kind("categorical", ("a", "b", "c")), [3.0]),
    ],
)
def test_misfits(kind, bad):
    good = [1.0, 1.0, np.nan]
    assert kind.misfits(np.array([*good, *bad])).tolist() == bad
    assert not len(kind.misfits(np.array(good)))


def test_what_users_say():
    said = {
        "n": "count",
        "ward": ["a", "b", "c"],
        "pain": {"ordinal": ["no", "bad"]},
        "g": {"categorical": 4},
    }
    found = read_kinds(said, ["x", "n", "ward", "pain", "g"])
    assert [kind.name for kind in found] == ["continuous", "count", "categorical", "ordinal", "categorical"]
    assert found[4].levels == ("0", "1", "2", "3")


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ({"y": "count"}, ("'y'", "x")),
        ({"x": "real"}, ("kinds['x']", "'real'")),
        ({"x": ["a"]}, ("levels=['a']",)),
        ({"x": 3}, ("kinds['x']=3",)),
        ("count", ("kinds='count'",)),
    ],
)
def test_what_is_refused(said, names):
    with refused(ParameterError, *names):
        read_kinds(said, ["x"])


def test_levels_that_count_as_one():
    kind = Kind("categorical", ("b, d", "a", "c"), (("a", 1), ("b", 0), ("c", 2), ("d", 0)))
    assert kind.as_recorded == Kind("categorical", ("a", "b", "c", "d"))
    np.testing.assert_array_equal(kind.counted(np.array([0.0, 1, 2, 3, np.nan])), [1, 0, 2, 0, np.nan])
    np.testing.assert_array_equal(kind.shown(np.array([0.0, 1, 2])), [1, 0, 2])
    np.testing.assert_array_equal(kind.counted(kind.shown(np.arange(3.0))), np.arange(3))
    assert [kind.position(name) for name in ("a", "d", "b, d", "e", 1)] == [1, 0, 0, None, None]
    plain = Kind("ordinal", ("x", "y"))
    assert plain.as_recorded is plain
    np.testing.assert_array_equal(plain.counted(np.array([1.0])), plain.shown(np.array([1.0])))
    for wrong in ((("a", 0), ("a", 1), ("c", 2)), (("a", 0), ("b", 1)), (("a", 0), ("b", 1), ("c", 3))):
        with pytest.raises(ParameterError, match="recorded="):
            Kind("categorical", ("a", "b", "c"), wrong)
    with pytest.raises(ParameterError, match="recorded="):
        Kind("count", recorded=(("a", 0),))
