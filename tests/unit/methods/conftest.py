"""Fits of these tests leave out which edges hidden causes could stand for: it takes half of their time."""

import pytest


@pytest.fixture(autouse=True)
def _without_doubts(request: pytest.FixtureRequest) -> None:
    """All but the tests that take the fixture `doubts`."""
    if "doubts" not in request.fixturenames:
        request.getfixturevalue("no_doubts")


@pytest.fixture
def doubts() -> None:
    """For tests of what is said about hidden causes."""
