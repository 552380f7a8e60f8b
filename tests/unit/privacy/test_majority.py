import pytest

from feddbn.errors import ProtocolError
from feddbn.privacy.secagg import odd_ones
from support.saying import refused


@pytest.mark.parametrize(
    ("found", "odd"),
    [
        ({}, []),
        ({"a": 3}, []),
        ({"a": 3, "b": 3}, []),
        ({"a": 2, "b": 3, "c": 3}, [("a", 2, 3)]),
        ({"a": 3, "b": 2, "c": 3, "d": 4, "e": 3}, [("b", 2, 3), ("d", 4, 3)]),
    ],
)
def test_who_differs_from_more_than_half_is_odd_wherever_it_stands(found, odd):
    assert odd_ones(found, "length") == odd


@pytest.mark.parametrize(
    "found", [{"a": 2, "b": 3}, {"a": 2, "b": 2, "c": 3, "d": 3}, {"a": 2, "b": 2, "c": 3, "d": 4}]
)
def test_without_a_majority_nobody_is_named_alone(found):
    with refused(ProtocolError, code="no-majority") as caught:
        odd_ones(found, "length")
    assert all(f"{site}" in str(caught.value) for site in found)
