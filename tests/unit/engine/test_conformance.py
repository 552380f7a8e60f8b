"""The suite for adapters: a good one passes, and each thing that one can do wrong is found."""

from contextlib import contextmanager
from dataclasses import replace
from functools import partialmethod
from itertools import count

import pytest

from feddbn import engine
from feddbn.engine import conformance
from feddbn.errors import FeddbnError
from feddbn.federation.protocol.messages import read_request
from feddbn.runtime.server.coordinator import Coordinator
from support.places import quick_folder

pytestmark = pytest.mark.promise

pytest.importorskip("cryptography")
NUMBERS = count(1000, 1000)


class InMemory:
    """Endpoints in this process, and who calls them."""

    def __init__(self, sites):
        self.ends = {name: engine.open_site(place) for name, place in sites.items()}

    def __call__(self, messages):
        return {
            name: self.ends[name].handle(message) for name, message in messages.items() if name in self.ends
        }

    def call_as(self, caller, site, message):
        return self.ends[site].handle(message, caller)


@contextmanager
def in_memory(sites):
    yield InMemory(sites)


@pytest.fixture(scope="module")
def sites():
    with quick_folder() as folder, conformance.trial(in_memory, folder / "new") as made:
        yield made


@pytest.fixture
def with_exchange(sites, tmp_path, monkeypatch):
    """The same sites over another exchange, made of the good one; nobody is waited for."""
    before = Coordinator.__init__
    monkeypatch.setattr(Coordinator, "__init__", partialmethod(before, pause_s=0.0, opening_s=0.0))
    return lambda change: replace(
        sites, folder=tmp_path, exchange=change(sites.exchange), n_runs=next(NUMBERS)
    )


def test_an_adapter_that_carries_bytes_passes_and_hears_what_was_checked():
    with quick_folder() as folder:
        said = conformance.check(in_memory, folder / "new", methods=["fdbnl"])
    assert len(said) == 1 + len(conformance.CHECKS)
    assert all(said)


@pytest.mark.slow
def test_all_methods_give_the_same(sites):
    conformance.studies(sites)


def to_nobody_raises(good):
    def exchange(messages):
        if set(messages) - set(good.ends):
            raise KeyError(sorted(messages))
        return good(messages)

    return exchange


def no_refusals(good):
    def exchange(messages):
        return {name: reply for name, reply in good(messages).items() if b'"refusal"' not in reply}

    return exchange


def answers_of_another(good):
    def exchange(messages):
        replies = good(messages)
        return dict(zip(replies, [*list(replies.values())[1:], *list(replies.values())[:1]], strict=True))

    return exchange


def forgets_to_ask_again(good):
    """The same answer to the last question of a kind, whatever is asked."""
    last = {}

    def exchange(messages):
        for name, message in messages.items():
            kind = ("", "") if len(message) < 99 else (read_request(message).kind, name)
            last.setdefault(kind, good({name: message}).get(name, b""))
            yield name, last[kind]

    return lambda messages: dict(exchange(messages))


def as_arrays(good):
    return lambda messages: {name: bytearray(reply) for name, reply in good(messages).items()}


def new_answers(good):
    """Something is added to each reply."""
    numbers = count()
    return lambda messages: {
        name: reply + bytes([next(numbers) % 256]) for name, reply in good(messages).items()
    }


def small_messages_only(good):
    def exchange(messages):
        return good({name: message for name, message in messages.items() if len(message) < 2**20})

    return exchange


class AnyCaller:
    """Whoever calls is the server."""

    def __init__(self, good):
        self.good = good

    def __call__(self, messages):
        return self.good(messages)

    def call_as(self, caller, site, message):
        return self.good({site: message})[site]


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (no_refusals, conformance.refusing_site),
        (no_refusals, conformance.damaged_messages),
        (to_nobody_raises, conformance.silent_site),
        (answers_of_another, conformance.silent_site),
        (as_arrays, conformance.repeated_messages),
        (new_answers, conformance.repeated_messages),
        (forgets_to_ask_again, conformance.stale_messages),
        (small_messages_only, conformance.damaged_messages),
        (AnyCaller, conformance.other_callers),
    ],
)
def test_what_an_adapter_does_wrong_is_found(with_exchange, change, check):
    wrong = with_exchange(change)
    with pytest.raises((AssertionError, KeyError, FeddbnError)):
        check(wrong)


def test_a_result_that_differs_in_one_bit_is_no_same_result(sites):
    study = sites.study(masked=True)
    found = sites.run(study)
    sites.compare(found, study)
    other = found.arrays["A_raw"].copy()
    other.view("u8")[0, 0, 0] ^= 1
    with pytest.raises(AssertionError, match="A_raw"):
        sites.compare(replace(found, arrays={**found.arrays, "A_raw": other}), study)
