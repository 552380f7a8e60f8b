from itertools import product

import pytest

from feddbn.data.sources import _UNITS, conversion
from feddbn.errors import ParameterError


@pytest.mark.parametrize(
    ("value", "have", "want", "expected"),
    [
        (16.0, "kPa", "mmHg", 120.00986),
        (98.6, "F", "C", 37.0),
        (37.0, "°C", "[degF]", 98.6),
        (37.0, "Cel", "K", 310.15),
        (90.0, "bpm", "Hz", 1.5),
        (95.0, "%", "1", 0.95),
        (10.0, "cm[H2O]", "mm[Hg]", 7.35559),
        (1.0, "bar", "psi", 14.503774),
        (2.0, "µg/mL", "mg/L", 2.0),
        (150.0, "lb", "kg", 68.0388555),
        (3.6, "m3/h", "L/s", 1.0),
    ],
)
def test_numbers_change_as_textbooks_say(value, have, want, expected):
    factor, offset = conversion(have, want)
    assert factor * value + offset == pytest.approx(expected, rel=1e-6)


def test_a_way_and_back_is_no_change():
    for have, want in product(_UNITS, _UNITS):
        if _UNITS[have][0] == _UNITS[want][0]:
            (a, b), (c, d) = conversion(have, want), conversion(want, have)
            assert c * (a * 7.25 + b) + d == pytest.approx(7.25, rel=1e-9)


def test_the_same_word_needs_no_table():
    assert conversion("drops per hour", "drops per hour ") == (1.0, 0.0)


@pytest.mark.parametrize(
    ("have", "want", "code"),
    [
        ("mmGh", "kPa", "unknown-unit"),
        ("kPa", "C", "other-quantity"),
        ("mg/dL", "mmol/L", "other-quantity"),
        ("mmhg", "kPa", "unknown-unit"),
        ("mw", "W", "unknown-unit"),
    ],
)
def test_what_cannot_be_converted_is_refused(have, want, code):
    with pytest.raises(ParameterError) as refused:
        conversion(have, want)
    assert refused.value.code == code
