import pytest

from feddbn.console.words import ago, lasting, when
from feddbn.runtime.deployed.store import iso_time


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0 s"),
        (0.4, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (135, "2 min 15 s"),
        (1215, "20 min"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (4 * 86400, "4 days"),
    ],
)
def test_lengths_of_time(seconds, words):
    assert lasting(seconds) == words


def test_times_of_today_are_hours_and_others_have_a_day():
    today = iso_time()
    assert when(today) == f"{today[11:16]} UTC"
    assert when("2024-03-01T07:08:09Z") == "2024-03-01 07:08 UTC"
    assert when("never") == "never"
    assert ago(2) == "just now"
    assert ago(90) == "1 min 30 s ago"
