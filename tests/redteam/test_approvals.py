"""A lead or a server that asks more than the owners approved gets one sentence, and learns nothing by asking in other ways.

The attack that this closes is a second, ordinary study: with one site fewer, the same rows, and sums whose difference is
that site's second moments.
"""

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn._version import __version__
from feddbn.errors import FeddbnError, NotEnoughSites, SiteRefused, StateError
from feddbn.federation.protocol.encoding import encode
from feddbn.federation.protocol.messages import Request, encode_request, read_reply
from feddbn.runtime.site.owner import MOST_GREETED
from support.consortium import Consortium, make_study
from support.saying import refused as says_no

pytestmark = pytest.mark.promise


@pytest.fixture
def sites(tmp_path):
    made = Consortium(tmp_path)
    made.approve(make_study())
    return made


def hello(study, run_id, version=__version__):
    return encode_request(Request("hello", run_id, meta={"study": study.to_json(), "version": version}))


def refused(endpoint, message):
    with pytest.raises(FeddbnError) as caught:
        read_reply(endpoint.handle(message))
    return caught.value


@pytest.mark.parametrize(
    "change",
    [
        {"sites": ("north", "south")},
        {"sites": ("north", "south", "west", "east")},
        {"privacy": {}},
        {"privacy": {"secure_aggregation": True, "min_sites": 2}},
        {"variables": ("u",)},
        {"parameters": {"n_lags": 0}},
    ],
)
def test_a_second_study_is_not_covered_by_the_approval_of_the_first(sites, change):
    sites.run(make_study(), "run-1")
    endpoint = sites.restart().endpoints["north"]
    error = refused(endpoint, hello(make_study(**change), "run-2"))
    assert isinstance(error, SiteRefused)
    assert not (sites.place / "north" / "state" / "run-2").exists()


def test_a_second_run_of_the_same_study_is_not_covered_either(sites):
    sites.run(make_study(), "run-1")
    with says_no(NotEnoughSites, 1):
        sites.run(make_study(), "run-2")


def test_what_a_site_has_cannot_be_probed_by_studies_that_nobody_approved(sites):
    """Whether a column exists, which lags are allowed, what the policy says: every refusal reads the same."""
    endpoint = sites.restart().endpoints["north"]
    said = set()
    for change in (
        {"variables": ("u", "w")},
        {"variables": ("u", "v")},
        {"parameters": {"n_lags": 99}},
        {"method": "toy"},
        {"privacy": {}},
        {"sites": ("south", "west", "east")},
    ):
        study = make_study(**{"name": "probe", **change})
        for version in (__version__, "0.0"):
            said.add(
                str(refused(endpoint, hello(study, "probe", version))).replace(study.digest[:12], "DIGEST")
            )
    assert len(said) == 1


def test_what_a_greeting_says_does_not_depend_on_rows(tmp_path):
    """A lead may greet as often as it likes; only the hash of the site's log differs, which tells nothing."""
    told = []
    for n in (30, 45):
        sites = Consortium(tmp_path / str(n))
        rows = "".join(f"{k % 7},{n * k % 5}\n" for k in range(n))
        (sites.place / "north" / "data" / "r000.csv").write_text(f"u,v\n{rows}")
        studies = [
            make_study(goal="check", parameters={"n_lags": 1}, units=units) for units in ({}, {"u": "mm"})
        ]
        for study in studies:
            sites.approve(study)
        endpoint = sites.restart().endpoints["north"]
        reply = read_reply(endpoint.handle(hello(studies[0], "run-1")))
        meta = {name: value for name, value in reply.meta.items() if name != "log"}
        told.append((meta, list(reply.arrays), str(refused(endpoint, hello(studies[1], "run-2")))))
    assert told[0] == told[1]


@pytest.mark.parametrize("kind", ["task", "secagg", "finish"])
def test_nothing_is_answered_before_the_greeting(sites, kind):
    endpoint = sites.restart().endpoints["north"]
    message = np.frombuffer(encode({"phase": "unmask"}, {}), dtype=np.uint8)
    error = refused(endpoint, encode_request(Request(kind, "run-9", 0, -1, {}, {"message": message})))
    assert (type(error), error.code) == (StateError, "unknown-run")


def test_a_run_that_was_approved_cannot_be_given_another_study(sites):
    exchange = sites.restart()
    sites.run(make_study(), "run-1", exchange=exchange)
    other = make_study(sites=("north", "south"))
    sites.approve(other, ("north",))
    error = refused(exchange.endpoints["north"], hello(other, "run-1"))
    assert error.code == "other-study"


@pytest.mark.parametrize("run_id", ["_site", "_approvals", "_audit", "../x", "a/b", "A", ""])
def test_no_run_can_be_called_like_the_owners_files(sites, run_id):
    endpoint = sites.restart().endpoints["north"]
    message = hello(make_study(), "run-1")
    forged = encode({**_envelope(message), "run": run_id}, {})
    assert refused(endpoint, forged).code == "bad-run-id"


def _envelope(message):
    from feddbn.federation.protocol.encoding import decode

    return decode(message)[0]


def test_a_server_that_greets_again_and_again_uses_up_runs_and_gains_none(sites):
    """Runs that compute nothing are borne for a while; then every one is refused, and all of it is in the log."""
    endpoint = sites.restart().endpoints["north"]
    for run in ("first", *(f"next-{number}" for number in range(MOST_GREETED))):
        read_reply(endpoint.handle(hello(make_study(), run)))
    for number in range(5):
        refused(endpoint, hello(make_study(), f"again-{number}"))
    events = [(entry.event, entry.run) for entry in sites.owner("north").audit.entries()]
    assert events[1] == ("agreed", "first")
    assert [event for event, _ in events].count("refused") == 5
