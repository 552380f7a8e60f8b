"""A session that is opened while something else is done is used or closed, whatever happens."""

from threading import Event

import pytest

from feddbn.cli import submit
from feddbn.cli.submit import EarlySession
from feddbn.errors import FederationError


class Session:
    """Opened when `may_open` is set; counts."""

    def __init__(self, error=None):
        self.may_open, self.closed, self.n_open = Event(), Event(), 0
        self.error = error

    def __enter__(self):
        assert self.may_open.wait(10)
        if self.error:
            raise self.error
        self.n_open += 1
        return self

    def __exit__(self, *error):
        self.closed.set()


def test_it_is_opened_beside_the_caller_and_closed_after_use():
    session = Session()
    early = EarlySession(session)  # does not wait
    session.may_open.set()
    with early as opened:
        assert opened is session
        assert not session.closed.is_set()
    assert session.n_open == 1
    assert session.closed.is_set()


def test_what_goes_wrong_is_told_when_it_is_entered():
    session = Session(FederationError("the server cannot be reached."))
    session.may_open.set()
    early = EarlySession(session)
    with pytest.raises(FederationError, match="reached"), early:
        pass
    early.give_up()
    assert not session.closed.is_set()


@pytest.mark.parametrize("is_slow", [False, True])
def test_one_that_is_not_wanted_any_more_is_closed_even_if_it_opens_late(monkeypatch, is_slow):
    monkeypatch.setattr(submit, "_LINGER_S", 0.01 if is_slow else 10)
    session = Session()
    early = EarlySession(session)
    if is_slow:
        early.give_up()
        assert not session.closed.is_set()
        session.may_open.set()
    else:
        session.may_open.set()
        early.give_up()
    assert session.closed.wait(10)
