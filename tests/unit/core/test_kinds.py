"""Kinds of variables: their columns, what they refuse, and how users say them.

Columns that stand for values of kinds: how they are written, made and summed.
"""

import numpy as np
import pytest

from feddbn.core.designs.design import Design, design_rows
from feddbn.core.designs.recordings import Block
from feddbn.core.kinds import CONTINUOUS, Coding, Kind, coding_of, merged_kind, merged_levels, read_coding
from feddbn.core.statistics.moments import Moments
from feddbn.data.kinds import read_kinds
from feddbn.errors import DataError, ParameterError
from support.saying import refused
from support.simulated_moments import gram_of


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


WARD = Kind("categorical", ("north", "south", "east", "west"))
PAIN = Kind("ordinal", ("none", "some", "much", "worst"))


class Held:
    def __init__(self, *pieces):
        self.name, self.pieces = "r", pieces

    def blocks(self):
        for k, piece in enumerate(self.pieces):
            yield Block(piece, starts_segment=k == 0)


@pytest.mark.parametrize(
    "text", ["count", "continuous", "binary:0,1", "categorical:0,1,1,2", "ordinal:0,0,1"]
)
def test_a_coding_is_what_its_text_says(text):
    assert read_coding(text).text == text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("counts", "'counts'"),
        ("count:0,1", "count"),
        ("categorical:0,2", "(0, 2)"),
        ("ordinal:0,1,0", "(0, 1, 0)"),
        ("binary:" + "0,1," * 400, "kind"),
    ],
)
def test_what_is_no_coding_is_refused(text, name):
    with refused(ParameterError, name):
        read_coding(text)


def test_levels_that_count_as_one_are_one():
    coding = Coding("categorical", (0, 1, 1, 2))
    values = np.array([0.0, 1.0, 2.0, 3.0, np.nan])
    np.testing.assert_array_equal(coding.values(values, "ward"), [0, 1, 1, 2, np.nan])
    np.testing.assert_array_equal(
        coding.encode(values, "ward"), [[0, 0], [1, 0], [1, 0], [0, 1], [np.nan, np.nan]]
    )
    assert merged_kind(WARD, coding).levels == ("north", "south, east", "west")
    assert merged_kind(Kind("count"), coding_of(Kind("count"))) == Kind("count")


@pytest.mark.parametrize(
    ("coding", "value"), [("count", -1.0), ("count", 0.5), ("positive", 0.0), ("categorical:0,1,1", 3.0)]
)
def test_a_value_that_cannot_be_is_refused_by_name(coding, value):
    with refused(DataError, "'v'", f"{value:g}"):
        read_coding(coding).encode(np.array([1.0, value]), "v")


@pytest.mark.parametrize(
    ("kind", "counts", "groups"),
    [
        (WARD, (100, 50, 30, 20), (0, 1, 2, 3)),
        # Two rare ones together are frequent enough, each of them is not.
        (WARD, (100, 5, 50, 5), (0, 1, 2, 1)),
        # One that is rare alone counts as the most frequent.
        (WARD, (100, 0, 50, 40), (0, 0, 1, 2)),
        # Two levels stay, whatever happens.
        (WARD, (100, 0, 0, 0), (0, 1, 0, 0)),
        (WARD, (0, 0, 0, 100), (0, 1, 1, 1)),
        (PAIN, (100, 50, 30, 0), (0, 1, 2, 2)),
        (PAIN, (0, 50, 30, 20), (0, 0, 1, 2)),
        (PAIN, (60, 0, 30, 40), (0, 1, 1, 2)),
        (PAIN, (100, 0, 0, 0), (0, 1, 1, 1)),
        (Kind("binary"), (), (0, 1)),
        (Kind("count"), (), ()),
    ],
)
def test_rare_levels_are_put_together(kind, counts, groups):
    assert merged_levels(kind, counts, 10).groups == groups


def test_rows_of_a_design_are_the_encoded_values_at_each_lag_in_any_blocks():
    rng = np.random.default_rng(0)
    kinds = (Kind(), Kind("count"), WARD)
    x = np.c_[rng.normal(size=50), rng.poisson(2.0, 50), rng.integers(0, 4, 50)]
    design = Design.coded(("a", "b", "c"), 2, [coding_of(kind).text for kind in kinds])
    assert design.q == 3 * 5
    assert [group.columns for group in design.groups][:4] == [(0,), (1,), (2, 3, 4), (5,)]
    code = np.concatenate([kind.encode(x[:, j]) for j, kind in enumerate(kinds)], axis=1)
    expected = np.concatenate([code[2:], code[1:-1], code[:-2]], axis=1)
    for cut in (50, 1, 17):
        recording = Held(x[:cut], x[cut:])
        rows = np.concatenate([chunk.values for chunk in design_rows(design, recording.blocks())])
        np.testing.assert_array_equal(rows, expected)
        moments, direct = gram_of(design, [recording]).moments, Moments.of_rows(expected)
        np.testing.assert_allclose(moments.scatter, direct.scatter, atol=1e-10)
        np.testing.assert_allclose(moments.mean, direct.mean, atol=1e-12)


def test_a_design_of_kinds_travels_and_others_keep_their_digest():
    design = Design.coded(("a", "b"), 1, ["count", "binary:0,1"])
    assert Design.from_dict(design.to_dict()) == design
    assert "kinds" not in Design.linear(("a", "b"), 1).to_dict()
    assert design.digest != Design.coded(("a", "b"), 1, ["count", "count"]).digest
