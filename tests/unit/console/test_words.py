from feddbn.console.words import ago, when
from feddbn.runtime.deployed.store import iso_time


def test_times_of_today_are_hours_and_others_have_a_day():
    today = iso_time()
    assert when(today) == f"{today[11:16]} UTC"
    assert when("2024-03-01T07:08:09Z") == "2024-03-01 07:08 UTC"
    assert when("never") == "never"
    assert ago(2) == "just now"
    assert ago(90) == "1 min 30 s ago"
