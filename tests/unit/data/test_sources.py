"""What is said of variables: where a table has them, their units and their limits."""

import pytest

from feddbn import Layout
from feddbn.data.sources import Change, read_limits, read_units
from feddbn.errors import ParameterError


def test_a_table_of_variables_says_where_they_are_and_how_they_change():
    layout = Layout(
        names="what",
        values="value",
        variables={
            "pulse": "HR",
            "sbp": {"name": 3004249, "unit": "kPa", "to": "mmHg", "limits": [20, 300]},
            "spo2": [40762499, 3016502],
            "glucose": {"unit": "mg/dL", "to": "mmol/L", "factor": 0.0555},
        },
    )
    assert layout.variables == ("pulse", "sbp", "spo2", "glucose")
    assert layout.sources == {
        "pulse": ("HR",),
        "sbp": ("3004249",),
        "spo2": ("40762499", "3016502"),
        "glucose": ("glucose",),
    }
    assert layout.units["sbp"].factor == pytest.approx(7.50062, rel=1e-6)
    assert layout.units["glucose"] == Change("mg/dL", "mmol/L", 0.0555, 0.0)
    assert layout.limits == {"sbp": (20.0, 300.0)}


def test_units_are_words_changes_or_numbers():
    found = read_units({"a": "1/min", "b": ("F", "C"), "c": 2, "d": (2, 1), "e": ("x", "y", 3.0)})
    assert found["a"] == Change("1/min", "1/min")
    assert found["b"].offset == pytest.approx(-160 / 9)
    assert found["c"] == Change("", "", 2.0, 0.0)
    assert found["d"] == Change("", "", 2.0, 1.0)
    assert found["e"] == Change("x", "y", 3.0, 0.0)
    assert read_units(found) == found


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"a": {"name": "x"}, "b": {"name": "x"}}, "mapping"),
        ({"a": ["x", "x"]}, "mapping"),
        ({"a": {"unt": "mmHg"}}, "mapping"),
        ({"a": {"to": "mmHg"}}, "mapping"),
        ({"a": {"name": 1.5}}, "mapping"),
        ({"a": {"name": []}}, "mapping"),
        ({"a": {"unit": "kPa", "factor": 2}}, "mapping"),
        ({"a": [{"name": "x"}, {"name": "y"}]}, "mapping"),
        ({"a": {"unit": "kpa", "to": "mmHg"}}, "unknown-unit"),
        ({"a": {"unit": "mg/dL", "to": "mmol/L"}}, "other-quantity"),
        ({"a": {"limits": [3, 1]}}, ""),
        ({"a": {"unit": "kPa", "to": "x", "factor": 0}}, ""),
    ],
)
def test_a_bad_mapping_is_refused(said, code):
    with pytest.raises(ParameterError) as refused:
        Layout(variables=said)
    assert refused.value.code == code


@pytest.mark.parametrize("given", [{"a": (1,)}, {"a": "wide"}, [1, 2], {"a": (float("nan"), 1)}])
def test_limits_are_two_numbers_in_order(given):
    with pytest.raises(ParameterError):
        read_limits(given)


@pytest.mark.parametrize(
    "given", ["mmHg", {"a": 0}, {"a": ()}, {"a": ("x", "y", "z")}, {"a": ("x", 1.0)}, {"a": ""}]
)
def test_units_that_say_nothing_are_refused(given):
    with pytest.raises(ParameterError):
        read_units(given)
