import pytest

pytest.importorskip("cryptography")
from feddbn.runtime.site.audit import logs_of
from support.consortium import Consortium, make_study


def test_decisions_on_several_studies_are_several_lines(tmp_path):
    sites = Consortium(tmp_path)
    for name in ("first", "second"):
        sites.approve(make_study(name=name), names=("north",))
    for name in ("third", "fourth"):
        sites.owner().refuse(make_study(name=name))
    (log,) = logs_of(sites.state())
    said = [(line.outcome, line.times, line.asked.split(": ")[1]) for line in log.lines()]
    assert said == [
        ("approved", 1, "first"),
        ("approved", 1, "second"),
        ("declined", 1, "third"),
        ("declined", 1, "fourth"),
    ]
