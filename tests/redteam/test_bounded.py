"""What anybody may send costs little and never breaks a site: huge or nested studies, wide pages, a full disk, weak noise."""

import json
import resource
import signal

import numpy as np
import pytest

pytest.importorskip("cryptography")

from feddbn._version import __version__
from feddbn.console.site_facts import study_facts
from feddbn.errors import FeddbnError
from feddbn.federation.guards.noise import DpGuard
from feddbn.federation.protocol.messages import Request, encode_request, read_reply
from feddbn.runtime.site.protection import Protection
from feddbn.words import say
from support.bounded import in_child
from support.consortium import Consortium, Liar, by_rule, raw
from support.saying import only

pytestmark = pytest.mark.promise

PLAIN = {"center": "none", "detrend": 0, "period": [], "check_residuals": False}


def consortium(place, data):
    return Consortium(place, data, by_rule())


def normal(rng, **sizes):
    """Sites of one recording each."""
    return {name: [rng.normal(size=(n, 3))] for name, n in sizes.items()}


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    return consortium(
        tmp_path_factory.mktemp("sites"), normal(np.random.default_rng(0), s0=200, s1=200, s2=200)
    )


def greeting(text, run="run"):
    return encode_request(Request("hello", run, meta={"study": text, "version": __version__}))


@pytest.mark.parametrize("depth", [100_000, 900])
def test_nested_studies_get_one_sentence(sites, depth):
    """F9: `handle` raised."""
    values = json.loads(sites.study().to_json())
    text = json.dumps(values).replace('"n_lags": 1', '"n_lags": 1, "x": ' + "[" * depth + "]" * depth)
    with pytest.raises(FeddbnError) as caught:
        read_reply(sites.endpoints["s0"].handle(greeting(text, f"deep-{depth}")))
    assert caught.value.code == "study-too-deep"


HUGE = """
import json, sys
from pathlib import Path

import numpy as np
from feddbn.errors import FeddbnError
from feddbn.federation.protocol.messages import read_reply
from feddbn.federation.protocol.study import study_from_json
from support.bounded import at_most
from support.consortium import Consortium, by_rule

rng = np.random.default_rng(0)
data = {name: [rng.normal(size=(200, 3))] for name in ("s0", "s1", "s2")}
sites = Consortium(Path(sys.argv[1]), data, by_rule()).restart()
huge, levels = (Path(name).read_bytes() for name in sys.argv[2:])
codes = []
with at_most(mebibytes=150, seconds=5):
    for use in (
        lambda: read_reply(sites.endpoints["s0"].handle(huge)),
        lambda: study_from_json(" " * 300_000),
        lambda: read_reply(sites.endpoints["s0"].handle(levels)),
    ):
        try:
            use()
        except FeddbnError as error:
            codes.append(error.code or type(error).__name__)
print(json.dumps(codes))
"""


def test_huge_studies_take_no_memory(sites, tmp_path):
    """A greeting of 13 MiB took 220 MiB and three seconds; a number of levels takes any memory."""
    values = json.loads(sites.study().to_json())
    huge = {**values, "variables": [f"v{i}" for i in range(1_000_000)]}
    levels = {**values, "parameters": {"kinds": {"x0": {"ordinal": 10**10}}}}
    (tmp_path / "huge").write_bytes(greeting(json.dumps(huge), "huge"))
    (tmp_path / "levels").write_bytes(greeting(json.dumps(levels), "levels"))
    told = in_child(HUGE, tmp_path / "sites", tmp_path / "huge", tmp_path / "levels")
    assert json.loads(told) == ["too-long", "study-too-long", "ProtocolError"]


WIDE = """
import sys
from pathlib import Path

from feddbn.console.site_facts import study_facts
from feddbn.federation.protocol.study import Study, study_from_json
from feddbn.runtime.settings import read_policy, read_site_settings
from support.bounded import at_most

settings = read_site_settings(Path(sys.argv[1]))
policy = read_policy(settings.policy)
names = ("x0", *(f"a{i}" for i in range(5000)))
for what in ("units", "kinds", "sites"):
    study = Study(
        name="wide",
        method="pfdbnl",
        variables=names,
        sites=tuple(f"s{i}" for i in range(1000 if what == "sites" else 3)),
        units=dict.fromkeys(names, "mm") if what == "units" else {},
        parameters={"n_lags": 1, **({"kinds": dict.fromkeys(names, "count")} if what == "kinds" else {})},
        privacy={"secure_aggregation": True},
    )
    text = study.to_json()
    with at_most(mebibytes=500, seconds=4):
        print(what, study_facts(study_from_json(text), settings, policy).is_told)
"""


def test_pages_are_linear_in_variables(sites):
    """F16: 6,000 variables took 13 seconds, and 256 kB of text five minutes."""
    told = in_child(WIDE, sites.place / "s0" / "feddbn_site.toml")
    assert told.split() == ["units", "True", "kinds", "True", "sites", "True"]


def test_a_full_disk_is_answered_with_a_refusal_and_changes_nothing(tmp_path):
    """K2: `handle` raised where its own log could not be written; afterwards the study goes on with the same bits."""
    data = normal(np.random.default_rng(0), s0=200, s1=200, s2=200)
    no_limit = resource.RLIM_INFINITY
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def run(place, full):
        sites, count = consortium(place, data), [0]

        def exchange(messages):
            count[0] += 1
            replies = {}
            for name, message in messages.items():
                if name == "s1" and count[0] in full:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (100, no_limit))
                try:
                    replies[name] = sites.endpoints[name].handle(message)
                finally:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (no_limit, no_limit))
            return replies

        study = sites.study("oneshot")
        return sites.run(study, "run", exchange)[0].arrays, count[0]

    try:
        calm, n_calm = run(tmp_path / "calm", ())
        full, n_full = run(tmp_path / "full", range(3, 12))
    finally:
        signal.signal(signal.SIGXFSZ, old)
    assert n_full > n_calm
    assert all(np.array_equal(calm[name], full[name]) for name in calm)


@pytest.mark.parametrize("noise", [{"epsilon": 50.0, "delta": 1e-5}, {"epsilon": 1.0, "delta": 0.9}])
def test_weak_noise_switches_no_rule_off(tmp_path, noise):
    """With epsilon 1,700 a site answered for two rows, and the owner's console called that good."""
    sites = consortium(tmp_path, normal(np.random.default_rng(3), s0=2, s1=300, s2=300))
    study = sites.study("oneshot", {"n_lags": 0, **PLAIN}, {"unit": "row", "clip": 40.0, **noise})
    question = raw("gram.rows", {"n_lags": 0, "variables": sites.variables, "clip_bound": 40.0})
    Liar(sites, study).refused(question, "few-rows")
    facts = study_facts(study, sites.settings(), sites.policy())
    mark = only(facts.told, "study-noise")
    assert mark.level == "warning"
    assert say(mark, "owner")
    assert "few-rows" in {one.values["why"] for one in facts.refused}


@pytest.mark.parametrize("epsilon", [0.5, 20.0])
def test_rules_about_rows_are_the_same_with_weak_noise_as_without(tmp_path, epsilon):
    """One row with an empty cell came out of two totals to .9 standard deviations."""
    sites = consortium(tmp_path, normal(np.random.default_rng(3), s0=100, s1=100, s2=100))
    protection = Protection(sites.state(), "s0", sites.policy(), data=sites.endpoints["s0"].whole)
    exact, noisy = (
        {type(one) for one in protection.guards(run, sites.study(privacy=privacy))}
        for run, privacy in (("exact", {}), ("noisy", {"epsilon": epsilon}))
    )
    assert noisy - exact == {DpGuard}
    assert bool(exact - noisy) == (epsilon < 1)


ODD = {
    "one row": np.ones((1, 3)),
    "all empty": np.full((40, 3), np.nan),
    "a column empty": np.tile([1.0, 2.0, np.nan], (40, 1)),
    "huge": np.full((40, 3), 1e308),
    "tiny": np.full((40, 3), 5e-324),
    "constant": np.ones((40, 3)),
    "long": np.tile([1.0, -2.0, 0.5], (5000, 1)),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=list(ODD))
def test_under_much_noise_no_recording_makes_a_site_refuse(tmp_path, odd):
    """A refusal carries no noise, so with noise that hides rows none depends on one recording."""
    rng = np.random.default_rng(0)
    data = {f"s{i}": [rng.normal(size=(40, 3)) for _ in range(12)] for i in range(3)}
    data["s0"].append(odd)
    sites = consortium(tmp_path, data)
    study = sites.study("oneshot", {"n_lags": 1, **PLAIN}, {"epsilon": 1.0, "unit": "recording"})
    liar = Liar(sites, study)
    about = {"n_lags": 1, "variables": sites.variables}
    liar.sum(raw("counts.norms", {"of": "gram.rows", "unit": "recording", **about}))
    assert np.isfinite(liar.sum(raw("gram.rows", {"clip_bound": 30.0, **about})).value).all()
