"""Whether a platform carries studies rightly: a suite for whoever writes an adapter.

`check` makes some sites with simulated data, has the adapter carry studies to them, and compares with what the same studies
give in one process: the same bits under masks. It also repeats, reorders and damages messages, and stops a study half-way.
What is wrong is raised as an `AssertionError` with one sentence; nothing here needs a test runner.

    def make_exchange(sites):                       # site -> its folder
        with my_platform(sites) as platform:        # starts what answers there
            yield platform.send                     # an Exchange

    print(check(contextmanager(make_exchange), Path("somewhere/new")))

An exchange that knows who calls may have a method ``call_as(caller, site, message)``; then callers are checked, too.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from feddbn.data.read import read_sites
from feddbn.engine.server import conduct
from feddbn.engine.site import make_sites
from feddbn.errors import FeddbnError, NotEnoughSites
from feddbn.federation.protocol.messages import Exchange, read_reply, read_request
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.study import Study, StudyResult, study_method
from feddbn.runtime.masked import read_secure_reply
from feddbn.runtime.settings import load_programs
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.site.kit_files import POLICY, SITE_SETTINGS
from feddbn.sim.simulation import simulate

MakeExchange = Callable[[Mapping[str, Path]], AbstractContextManager[Exchange]]
"""Starts what answers for these sites (name -> folder), and gives what carries messages to them."""

TOLERANCE = 1e-12
PARAMETERS: dict[str, dict[str, Any]] = {
    "oneshot": {"n_lags": 1, "noise_variance": "free"},
    "fdbnl": {"n_lags": 1, "lambda_w": 0.05, "lambda_a": 0.05, "schedule": "paper", "rounds.max_rounds": 40},
    "pfdbnl": {"n_lags": 1, "lambda_w": 0.05, "lambda_a": 0.05, "mu": 0.5, "rounds.max_rounds": 30},
}
"""Method -> settings of the studies that must give the same numbers however messages are carried."""

NAMES = ("east", "north", "south", "west")
CLOSED, AWAY = "closed", "away"
_D, _LIMIT_MB = 5, 8
_SHORT: dict[str, dict[str, Any]] = {
    "oneshot": {"check_residuals": False},
    "fdbnl": {"rounds.max_rounds": 4},
    "pfdbnl": {"rounds.max_rounds": 4},
}
"""What makes these studies short: messages are looked at, not methods."""
_KEPT_AS_IT_IS = ("task", "secagg")
_LARGE = 4 * 2**20 + 1
"""Bytes of a message that a platform must carry: a little more than many allow by default."""


# The studies, and what they give in this process.


def make_study(method: str, sites: Sequence[str], variables: Sequence[str], **changes: Any) -> Study:
    """Return a study of a method with the settings that are compared."""
    values: dict[str, Any] = {
        "name": method,
        "about": {
            "purpose": "to try how a platform carries studies",
            "contact": "whoever runs the trial",
            "retention": "until the trial has ended",
        },
        "method": method,
        "variables": tuple(variables),
        "sites": tuple(sites),
        "parameters": PARAMETERS.get(method, {}),
        "attendance": {"timeout_s": 60.0},
    }
    return Study(**{**values, **changes})


def _masks(sites: Sequence[str]) -> dict[str, Any]:
    return {"secure_aggregation": True, "protection": "exact", "min_sites": min(3, len(sites))}


def in_process(study: Study, data: Mapping[str, Path]) -> StudyResult:
    """Return what a study gives in this process, from the same files (site -> its data); masked if the study is."""
    load_programs(("feddbn.analysis.studies",))
    ends = {name: Site(name, site) for name, site in read_sites({n: data[n] for n in study.sites}).items()}
    if study.privacy.secure_aggregation:
        from feddbn.runtime.simulated.secure import secure_federation

        return study_method(study.method).run(
            study.parameters, secure_federation(ends, study.privacy.min_sites)
        )
    return study_method(study.method).run(study.parameters, InProcessFederation(ends))


def assert_same(found: StudyResult, expected: StudyResult, tolerance: float = TOLERANCE) -> None:
    """Raise `AssertionError` unless two results have the same numbers; a tolerance of 0 asks for the same bits."""
    _require(
        set(found.arrays) == set(expected.arrays),
        f"the result has {sorted(found.arrays)}, and not {sorted(expected.arrays)}",
    )
    for name, array in expected.arrays.items():
        other = found.arrays[name]
        if tolerance:
            is_same = other.shape == array.shape and np.allclose(
                other, array, rtol=0, atol=tolerance, equal_nan=True
            )
        else:
            is_same = (other.shape, other.tobytes()) == (array.shape, array.tobytes())
        _require(is_same, f"{name!r} of the result has other numbers than in one process")
    rounds = [one.summary.get("n_rounds") for one in (found, expected)]
    _require(rounds[0] == rounds[1], f"the result took {rounds[0]} rounds, and not {rounds[1]}")
    learned = [expected.arrays[name] for name in ("W_raw", "A_raw") if name in expected.arrays]
    _require(any(bool(np.any(one != 0)) for one in learned), "there is nothing to compare: no edge was found")


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise AssertionError(f"{sentence}.")


# The trial: sites with data, and an exchange to them.


@dataclass
class Trial:
    """Sites with simulated data below a folder, and an exchange to them; `exchange` is what an adapter made."""

    folder: Path
    sites: Mapping[str, Path]
    exchange: Exchange
    n_runs: int = 0
    expected: dict[str, StudyResult] = field(default_factory=dict)

    @property
    def variables(self) -> tuple[str, ...]:
        """What the sites measure."""
        return tuple(f"x{j}" for j in range(_D))

    def study(self, masked: bool = False, sites: Sequence[str] = NAMES, **attendance: Any) -> Study:
        """Return a short study: one sum beside the first look."""
        rules = {"timeout_s": 60.0, "when_missing": "abort", **attendance}
        more: dict[str, Any] = {"privacy": _masks(sites)} if masked else {}
        return make_study("summary", sites, self.variables, attendance=rules, **more)

    def run(self, study: Study, exchange: Exchange | None = None, run: str | None = None) -> StudyResult:
        """Conduct a study, over the adapter's exchange unless another one is given."""
        self.n_runs += 1
        with _quiet():
            return conduct(
                study,
                self.exchange if exchange is None else exchange,
                self.folder / "server",
                run=run or f"run-{self.n_runs}",
                here=tuple(self.sites),
                log=lambda sentence: None,
            )

    def compare(self, found: StudyResult, study: Study) -> None:
        """Raise unless this is what the study gives in one process on the sites that answer."""
        study = study.model_copy(update={"sites": tuple(name for name in study.sites if name in NAMES)})
        if study.digest not in self.expected:
            data = {name: place / "data" for name, place in self.sites.items()}
            with _quiet():
                self.expected[study.digest] = in_process(study, data)
        tolerance = 0.0 if study.privacy.secure_aggregation else TOLERANCE
        assert_same(found, self.expected[study.digest], tolerance)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What methods have to say of such short studies is not what is looked at."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def trial(make_exchange: MakeExchange, folder: str | Path) -> Iterator[Trial]:
    """Make sites with simulated data below a new folder, and have the adapter reach them."""
    root = Path(folder)
    sites = make_sites(root / "sites", (*NAMES, CLOSED))
    made = simulate(d=_D, n_sites=len(sites), n_samples=300 * len(sites), mean_degree=2, random_state=901)
    for (name, place), recordings in zip(sites.items(), made.sites.values(), strict=True):
        recordings[0].to_csv(place / "data" / "rows.csv", index=False, float_format="%.17g")
        policy = (place / POLICY).read_text(encoding="utf-8")
        policy = policy.replace('"step.personal"', '"step.fdbnl", "step.personal"')
        if name != CLOSED:
            policy = policy.replace("require_masking = true", "require_masking = false")
            policy += "approve_by_rule = true\n"
        (place / POLICY).write_text(policy, encoding="utf-8")
        settings = (place / SITE_SETTINGS).read_text(encoding="utf-8")
        (place / SITE_SETTINGS).write_text(f"max_message_mb = {_LIMIT_MB}\n{settings}", encoding="utf-8")
    with make_exchange(sites) as exchange:
        yield Trial(root, sites, exchange)


# What is checked. Each function raises `AssertionError`, and says in its first line what holds if it does not.


def studies(trial: Trial, methods: Sequence[str] = tuple(PARAMETERS)) -> None:
    """Studies give what they give in one process: the same bits under masks, rounding apart in the clear."""
    for method in methods:
        parameters = PARAMETERS[method] | _SHORT[method]
        for more in ({}, {"privacy": _masks(NAMES)}):
            study = make_study(method, NAMES, trial.variables, parameters=parameters, **more)
            trial.compare(trial.run(study), study)


def refusing_site(trial: Trial) -> None:
    """A site that refuses is told by name with its reason, and the others go on without it where the study allows it."""
    sites = (*NAMES, CLOSED)
    try:
        trial.run(trial.study(sites=sites))
    except NotEnoughSites as error:
        reasons = error.values.get("reasons")
        _require(
            reasons == {CLOSED: "not-approved"},
            f"site {CLOSED!r} has not approved the study, and what came are the reasons {reasons}",
        )
    else:
        raise AssertionError(f"site {CLOSED!r} refuses all studies, and the study that needs it has ended.")
    study = trial.study(sites=sites, when_missing="continue", min_sites=3)
    trial.compare(trial.run(study), study)


def silent_site(trial: Trial) -> None:
    """A site that cannot be reached is missing from the replies; nothing is raised, and the others are heard."""
    study = trial.study(sites=(*NAMES, AWAY), when_missing="continue", min_sites=3)
    trial.compare(trial.run(study), study)
    _require(not trial.exchange({}), "no message was sent, and there are replies")


def repeated_messages(trial: Trial) -> None:
    """A message that is sent again gets the same bytes again, and the result does not change."""

    def twice(messages: Mapping[str, bytes]) -> Mapping[str, bytes]:
        first, second = (dict(trial.exchange(messages)) for _ in range(2))
        _require(
            all(type(reply) is bytes for reply in first.values()), "a reply is not bytes, as it left the site"
        )
        for site, reply in first.items():
            if read_request(messages[site]).kind in _KEPT_AS_IT_IS:
                _require(second.get(site) == reply, f"site {site!r} gave two replies to one message")
        return second

    for masked in (False, True):
        study = trial.study(masked)
        trial.compare(trial.run(study, twice), study)


def stale_messages(trial: Trial) -> None:
    """Messages that come late, in another order or in parts are refused or answered as they should, and change nothing."""

    def disturbed(messages: Mapping[str, bytes]) -> Mapping[str, bytes]:
        for old in sent[:-1]:
            for site, reply in trial.exchange(old).items():
                _require(_is_refusal(reply), f"site {site!r} answered a question that is not open any more")
        if read_request(next(iter(messages.values()))).kind in _KEPT_AS_IT_IS:
            sent.append(dict(messages))
            del sent[:-3]
        names = sorted(messages, reverse=True)
        replies: dict[str, bytes] = {}
        for some in (names[:1], names[1:]):
            replies |= trial.exchange({name: messages[name] for name in some}) if some else {}
        return replies

    for masked in (False, True):
        sent: list[dict[str, bytes]] = []
        study = trial.study(masked)
        trial.compare(trial.run(study, disturbed), study)


def _is_refusal(reply: bytes) -> bool:
    try:
        found = read_reply(reply)
        if found.kind == "secagg":
            read_secure_reply(found.arrays["message"].tobytes())
    except FeddbnError:
        return True
    return False


def damaged_messages(trial: Trial) -> None:
    """Bytes that are no message are answered with a refusal, large ones too, and the sites go on."""
    rng = np.random.default_rng(901)
    site = NAMES[0]
    heard: list[bytes] = []

    def listening(messages: Mapping[str, bytes]) -> Mapping[str, bytes]:
        heard.append(messages[site])
        return trial.exchange(messages)

    study = trial.study()
    trial.compare(trial.run(study, listening), study)
    whole = heard[0]
    cut, flipped = whole[:-7], bytearray(whole)
    flipped[len(whole) // 2] ^= 255
    for garbage in (b"", b"\x00", bytes(range(256)), rng.bytes(999), cut, bytes(flipped), rng.bytes(_LARGE)):
        replies = trial.exchange({site: garbage})
        _require(
            list(replies) == [site] and _is_refusal(replies[site]),
            f"{len(garbage):,} bytes that are no message were not answered with the site's refusal",
        )
    too_long = trial.exchange({site: bytes(_LIMIT_MB * 2**20 + 1)})
    _require(not too_long or _is_refusal(too_long[site]), "a message above the site's limit was not refused")
    trial.compare(trial.run(study), study)


def other_callers(trial: Trial) -> None:
    """Only the server is answered, where the platform says who calls."""
    call = getattr(trial.exchange, "call_as", None)
    if call is None:
        return
    heard: list[bytes] = []

    def listening(messages: Mapping[str, bytes]) -> Mapping[str, bytes]:
        heard.append(messages[NAMES[0]])
        return trial.exchange(messages)

    trial.run(trial.study(), listening)
    for caller in (NAMES[1], "", "Server"):
        _require(
            _is_refusal(call(caller, NAMES[0], heard[0])), f"a site has answered {caller!r}, who is no server"
        )


class _StoppedError(Exception):
    """The lead's process has ended here."""


def stopped_lead(trial: Trial) -> None:
    """A study whose lead is stopped goes on where it was, with the same result."""
    # In the clear between two sums; under masks also with keys, and with an input that is not opened yet.
    for masked, n_sent in ((False, 3), (True, 2), (True, 5)):
        study, run, left = trial.study(masked), f"stopped-{int(masked)}-{n_sent}", [n_sent]

        def until_stopped(messages: Mapping[str, bytes], left: list[int] = left) -> Mapping[str, bytes]:
            if not left[0]:
                raise _StoppedError
            left[0] -= 1
            return trial.exchange(messages)

        try:
            trial.run(study, until_stopped, run)
        except _StoppedError:
            trial.compare(trial.run(study, run=run), study)
        else:
            raise AssertionError("a study has ended before it could be stopped.")


CHECKS: tuple[Callable[[Trial], None], ...] = (
    refusing_site,
    silent_site,
    repeated_messages,
    stale_messages,
    damaged_messages,
    other_callers,
    stopped_lead,
)
"""All checks but that of whole studies."""


def check(
    make_exchange: MakeExchange,
    folder: str | Path,
    methods: Sequence[str] = tuple(PARAMETERS),
) -> list[str]:
    """Check an adapter; return what holds, one sentence each.

    Parameters
    ----------
    make_exchange
        Takes site -> folder and returns a context manager that gives an `Exchange` to them. It is entered once.
    folder
        A new folder for sites and runs.
    methods
        The methods whose studies are compared. All are compared in seconds where a message takes milliseconds; where it takes
        seconds, ``("oneshot",)`` is enough.

    Raises
    ------
    AssertionError
        With the first thing that does not hold.
    """
    with trial(make_exchange, folder) as made:
        knows_callers = hasattr(made.exchange, "call_as")
        checks = [one for one in CHECKS if one is not other_callers or knows_callers]
        studies(made, methods)
        for one in checks:
            one(made)
        return [one.__doc__ or "" for one in (studies, *checks)]
