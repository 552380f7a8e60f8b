"""Vantage6's own mock client carries studies; what its containers would print is looked at, too."""

import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
import warnings
from base64 import b32encode, b64decode, b64encode
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from feddbn import engine
from feddbn.engine import conformance
from feddbn.errors import FederationError, ParameterError, SiteRefused
from feddbn.federation.protocol.messages import read_reply
from feddbn.federation.protocol.study import StudyResult
from support.saying import refused
from support.study_files import as_toml

pytest.importorskip("cryptography")
ROOT = Path(__file__).parents[3]
STORE = json.loads((ROOT / "deploy" / "vantage6" / "algorithm_store.json").read_text(encoding="utf-8"))
AWAY_ID = 99


@pytest.fixture(scope="module")
def adapter():
    """The adapter, imported beside the platform's packages."""
    folder = Path(sys.prefix) / "vantage6"
    if folder.is_dir():
        sys.path.append(str(folder))
    if importlib.util.find_spec("vantage6") is None:
        pytest.skip("no packages of Vantage6; `make test` installs those in tests/support/vantage6.txt")
    before = sys.modules.pop("feddbn.adapters.vantage6", None)
    with warnings.catch_warnings(action="ignore"):
        yield importlib.import_module("feddbn.adapters.vantage6")
    sys.path[:] = [one for one in sys.path if one != str(folder)]
    sys.modules.pop("feddbn.adapters.vantage6")
    if before is not None:
        sys.modules["feddbn.adapters.vantage6"] = before


@pytest.fixture(autouse=True)
def own_log():
    """What `partial` does to the process of its container is undone."""
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []
    yield
    for one in root.handlers:
        one.close()
    root.handlers = handlers
    logging.captureWarnings(False)


@pytest.fixture
def client(adapter, monkeypatch):
    """Makes a mock client whose nodes have these folders; organisation 99 has none, and its tasks stay pending."""
    from vantage6.algorithm.tools.mock_client import MockAlgorithmClient

    def make(places):
        ids = {name: k for k, name in enumerate(places, 1)}
        folders = {ids[name]: place for name, place in places.items()}

        class Nodes(MockAlgorithmClient):
            class Task(MockAlgorithmClient.Task):
                def create(self, input_, organizations, name="mock", description="mock"):
                    (node,) = organizations
                    if node == AWAY_ID:
                        self.parent.runs.append({"task": {"id": AWAY_ID}, "status": "pending"})
                        return {"id": AWAY_ID}
                    # The client copies itself, with all that it has heard, for each task.
                    for heard in (self.parent.runs, self.parent.results):
                        del heard[:-9]
                    self.parent.tasks[:-9] = [None] * len(self.parent.tasks[:-9])
                    # Each node has an environment of its own, and arguments travel as text.
                    monkeypatch.setenv("FEDDBN_DATABASE_URI", str(folders[node]))
                    return super().create(json.loads(json.dumps(input_)), organizations, name, description)

        data = [[{"database": pd.DataFrame()}] for _ in ids]
        return Nodes(data, "feddbn.adapters.vantage6", organization_ids=list(folders)), ids

    return make


@pytest.mark.slow
def test_it_carries_studies_rightly(adapter, client, tmp_path):
    @contextmanager
    def nodes(places):
        made, ids = client(places)
        yield adapter.exchange(made, ids | {conformance.AWAY: AWAY_ID}, timeout_s=0.0)

    assert len(conformance.check(nodes, tmp_path / "trial", methods=("oneshot",))) >= 7


@pytest.mark.promise
@pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning")
def test_a_masked_study_runs_through_the_mock_client_with_the_bits_of_one_process(
    client, trial, places, tmp_path, monkeypatch, capfd
):
    monkeypatch.setenv("TEMPORARY_FOLDER", str(tmp_path / "runs"))
    made, ids = client(places)
    variables = tuple(f"x{j}" for j in range(5))
    masks = {"secure_aggregation": True, "protection": "exact", "min_sites": 3}
    study = conformance.make_study("oneshot", conformance.NAMES, variables, privacy=masks)
    asked = {"method": "central", "kwargs": {"study": as_toml(study), "sites": ids, "run": "one"}}
    (answer,) = made.wait_for_results(made.task.create(asked, [ids["north"]])["id"])
    assert answer["run"] == "one"
    trial.compare(StudyResult.from_bytes(b64decode(answer["result"])), study)
    # A run that has ended is there again, from where the owner of that node keeps runs.
    monkeypatch.setenv("FEDDBN_RUNS_DATABASE_URI", str(tmp_path / "runs"))
    (again,) = made.wait_for_results(made.task.create(asked, [ids["north"]])["id"])
    assert again == answer
    assert "x0" not in capfd.readouterr().out


def test_a_node_that_stays_away_or_answers_nonsense_does_not_stop_the_others(
    adapter, client, places, monkeypatch
):
    made, ids = client(places)
    carry = adapter.exchange(made, ids | {"away": AWAY_ID}, timeout_s=0.6)
    replies = carry({"north": b"no message", "away": b"no message"})
    assert list(replies) == ["north"]
    with pytest.raises(FederationError):
        read_reply(replies["north"])
    for odd in (None, {"a": 1}, "no base64 =", 7):
        monkeypatch.setattr(adapter, "partial", lambda message, odd=odd: odd)
        assert carry({"north": b"no message"}) == {"north": b""}


def test_every_site_needs_an_organisation(adapter, client, places):
    made, ids = client(places)
    study = conformance.make_study("summary", (*conformance.NAMES, "far"), ("x0", "x1"))
    with refused(ParameterError, "sites", "far"):
        adapter.central(as_toml(study), ids, mock_client=made)


def test_a_node_answers_from_the_folder_of_its_owner_alone(adapter, places, monkeypatch, capfd):
    monkeypatch.delenv("FEDDBN_DATABASE_URI", raising=False)
    with refused(SiteRefused, code="no-site"):
        adapter.partial("")
    place = places["north"]
    monkeypatch.setenv("FEDDBN_DATABASE_URI", str(place))
    for text in ("", "no base64 =", b64encode(b"no message").decode()):
        with pytest.raises(FederationError):
            read_reply(b64decode(adapter.partial(text)))
    # What is wrong with data or settings is for the owner: containers print to the platform's server.
    (place / "data" / "rows.csv").write_text("secret column\nsecret value\n")
    with pytest.raises(SiteRefused) as reply:
        read_reply(b64decode(adapter.partial(b64encode(hello()).decode())))
    (place / "feddbn_site.toml").write_text('name = "north"\ndata = "data"\nstate = "state"\nsecret = 1\n')
    with refused(SiteRefused, code="withheld") as settings:
        adapter.partial("")
    out, err = capfd.readouterr()
    for told in (out, err, str(reply.value), str(settings.value)):
        assert "secret" not in told
    assert "secret" in (place / "site.log").read_text(encoding="utf-8")


def test_the_command_of_the_image_answers_one_message_and_prints_nothing_of_the_site(
    adapter, places, tmp_path
):
    text = (ROOT / "deploy" / "vantage6" / "Dockerfile").read_text(encoding="utf-8")
    (command,) = [
        json.loads(line.removeprefix("CMD ")) for line in text.splitlines() if line.startswith("CMD ")
    ]
    (name,) = re.findall(r"PKG_NAME=(\S+)", text)
    (places["north"] / "data" / "rows.csv").write_text("secret column\nsecret value\n")
    asked = {"method": "partial", "kwargs": {"message": b64encode(hello()).decode()}}
    (tmp_path / "input").write_text(json.dumps(asked))
    # As a node writes it: encoded, with another sign for =.
    given = {
        "FEDDBN_DATABASE_URI": places["north"],
        "INPUT_FILE": tmp_path / "input",
        "OUTPUT_FILE": tmp_path / "output",
    }
    encoded = {key: b32encode(str(value).encode()).decode().replace("=", "!") for key, value in given.items()}
    inherited = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), "PKG_NAME": name}
    done = subprocess.run(
        [sys.executable, *command[1:]], env=inherited | encoded, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with refused(SiteRefused, code="withheld"):
        read_reply(b64decode(json.loads((tmp_path / "output").read_bytes())))
    assert "secret" not in done.stdout + done.stderr
    assert "secret" in (places["north"] / "site.log").read_text(encoding="utf-8")


class _HeardError(Exception):
    """Enough was heard."""


def hello():
    """The first message of a study to site north."""
    heard = []

    def listening(messages):
        heard.append(messages["north"])
        raise _HeardError

    study = conformance.make_study("summary", conformance.NAMES, ("x0", "x1"))
    with pytest.raises(_HeardError):
        engine.conduct(study, listening, os.environ["TEMPORARY_FOLDER"], log=lambda sentence: None)
    return heard[0]


@pytest.fixture(autouse=True)
def temporary_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TEMPORARY_FOLDER", str(tmp_path / "tmp"))


def test_the_algorithm_store_describes_the_functions_that_are_there(adapter):
    assert {"name", "image", "partitioning", "vantage6_version", "code_url", "functions"} <= STORE.keys()
    assert STORE["partitioning"] == "horizontal"
    kinds = {one["name"]: one["type"] for one in STORE["functions"]}
    assert kinds == {"central": "central", "partial": "federated"}
    for one in STORE["functions"]:
        function = getattr(adapter, one["name"])
        names = function.__wrapped__.__code__.co_varnames[1:4] if one["name"] == "central" else ("message",)
        assert tuple(argument["name"] for argument in one["arguments"]) == names
        assert not one["databases"], "researchers choose no database"
    (run,) = [argument for argument in STORE["functions"][0]["arguments"] if argument["name"] == "run"]
    assert run["has_default_value"]


def test_the_image_has_the_platform_that_is_tried_here_and_every_package_by_its_hash():
    tried = (ROOT / "tests" / "support" / "vantage6.txt").read_text(encoding="utf-8")
    lock = (
        (ROOT / "deploy" / "vantage6" / "requirements.lock").read_text(encoding="utf-8").replace("\\\n", " ")
    )
    entries = {line.split("==")[0]: line for line in lock.splitlines()}
    for name in ("vantage6-algorithm-tools", "vantage6-common"):
        (version,) = re.findall(rf"^{name}==(\S+)", tried, re.M)
        assert entries[name].startswith(f"{name}=={version} ")
    assert {"numpy", "pandas", "cryptography"} <= entries.keys()
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", line) for line in entries.values())
    assert STORE["vantage6_version"] == version


def test_a_request_to_the_platform_that_fails_ends_no_run():
    from feddbn.adapters.vantage6 import exchange

    made = []

    def once(answer):
        """A request that fails the first time."""
        calls = []

        def request(*of):
            calls.append(of)
            if len(calls) == 1:
                raise ConnectionError("502 Bad Gateway")
            return answer(*of)

        return request

    def create(asked, organizations, name):
        made.append(organizations[0])
        return {"id": organizations[0]}

    client = SimpleNamespace(
        task=SimpleNamespace(create=once(create)),
        run=SimpleNamespace(from_task=once(lambda task: [{"status": "completed"}])),
        result=SimpleNamespace(from_task=once(lambda task: [b64encode(b"yes").decode()])),
    )
    carry = exchange(client, {"north": 1, "south": 2}, timeout_s=60.0)
    # What could not be sent is silent, and the study asks again; a reply that could not be fetched is fetched again.
    assert carry({"north": b"m", "south": b"m"}) == {"south": b"yes"}
    assert carry({"north": b"m"}) == {"north": b"yes"}
    assert made == [2, 1]
