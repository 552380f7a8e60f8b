"""A federation on one machine, with an engine whose processes only sleep: who is awaited, and that nothing stays."""

import contextlib
import os
import socket
import subprocess
import sys
import time

import pytest

from feddbn.errors import FederationError, NotEnoughSites
from feddbn.runtime.engines.interface import Engine, Presence, Process, Session
from feddbn.runtime.engines.local import LocalFederation, end_with_all_it_started, free_ports

psutil = pytest.importorskip("psutil")

# A child in another session, a grandchild, and a parent that ignores requests to end: as engines' job processes are.
FAMILY = """
trap '' TERM INT
setsid sleep 1000 &
bash -c 'sleep 1001 & wait' &
echo started; wait
"""
WHERE = 'echo "$HOME $TMPDIR"; sleep 1000'
LISTENER = """
import socket, sys, time
opened = [socket.create_server(("127.0.0.1", int(port))) for port in sys.argv[1:]]
time.sleep(1000)
"""


class ToySession(Session):
    def __init__(self, kit, answers):
        super().__init__(kit)
        self.answers = answers

    def __enter__(self):
        if self.answers and self.answers[0] is None:
            self.answers.pop(0)
            raise FederationError("not yet")
        return self

    def __exit__(self, *error): ...

    def presence(self):
        there = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [Presence(name, True) for name in there]

    jobs = submit = progress = wait = abort = fetch = None


class ToyEngine(Engine):
    name, instead = "toy", "nothing"

    def __init__(self, *answers, listens=True):
        self.answers, self.listens = list(answers), listens

    def make_kits(self, plan, directory):
        self.plan = plan
        kits = {name: directory / "kits" / name for name in (plan.server, *plan.sites, plan.admin)}
        for kit in kits.values():
            kit.mkdir(parents=True)
        return kits

    def server_process(self, kit):
        ports = (self.plan.port, self.plan.admin_port) if self.listens else ()
        return Process([sys.executable, "-c", LISTENER, *map(str, ports)], os.environ)

    def site_process(self, kit):
        return Process(["bash", "-c", FAMILY], os.environ)

    def session(self, kit):
        return ToySession(kit, self.answers)

    check_site = site_settings = None


def alive(processes):
    return [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def test_all_descendants_end_also_those_in_other_sessions():
    process = subprocess.Popen(["bash", "-c", FAMILY], stdout=subprocess.PIPE, start_new_session=True)
    with process.stdout:
        process.stdout.readline()
        end = time.monotonic() + 300
        while len(below := psutil.Process(process.pid).children(recursive=True)) < 3:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert len({os.getsid(one.pid) for one in below}) == 2
        seconds = end_with_all_it_started(process)
    assert alive(below) == []
    assert seconds >= 0
    assert end_with_all_it_started(process) == 0


def test_a_federation_waits_for_every_site_and_ends_with_its_block(tmp_path):
    engine = ToyEngine(None, [], ["b"], ["a", "b"])
    heard, before = [], set(psutil.Process().children(recursive=True))
    with LocalFederation(engine, ("a", "b"), tmp_path) as federation:
        federation.start()
        federation.wait_until_up(300, heard.append)
        running = set(psutil.Process().children(recursive=True)) - before
        assert len(running) >= 3
        assert federation.log("a").exists()
    assert heard == ["b", "a"]
    assert alive(running) == []
    assert federation.seconds_used > 0


def test_what_processes_write_on_the_side_stays_below_the_federation(tmp_path):
    with LocalFederation(ToyEngine(), ("a",), tmp_path) as federation:
        federation.run("where", Process(["bash", "-c", WHERE], os.environ))
        end = time.monotonic() + 300
        while not (said := federation.log("where").read_text()) and time.monotonic() < end:
            time.sleep(0.01)
    assert said.split() == [str(tmp_path / "home"), str(tmp_path / "tmp")]
    assert all((tmp_path / name).stat().st_mode & 0o077 == 0 for name in ("home", "tmp", "logs"))


def test_processes_end_when_the_block_fails(tmp_path):
    before = set(psutil.Process().children(recursive=True))
    with contextlib.suppress(KeyboardInterrupt), LocalFederation(ToyEngine(), ("a",), tmp_path) as federation:
        federation.start()
        running = set(psutil.Process().children(recursive=True)) - before
        assert len(running) >= 2
        raise KeyboardInterrupt
    assert alive(running) == []


def test_a_server_that_is_missing_is_named(tmp_path):
    with LocalFederation(ToyEngine(listens=False), ("a",), tmp_path) as federation:
        federation.start()
        sentence = "the server does not answer in time; the last line of the log of localhost: there is none"
        with pytest.raises(NotEnoughSites, match=sentence):
            federation.wait_until_up(0.1)


def test_a_site_that_is_missing_is_named_with_the_end_of_its_log(tmp_path):
    federation = LocalFederation(ToyEngine(["a"]), ("a", "b"), tmp_path)
    federation.log("b").write_text("loading\nthe key is missing\n\n")
    plan = federation.plan
    with contextlib.ExitStack() as stack:
        for port in (plan.port, plan.admin_port):
            stack.enter_context(socket.create_server(("127.0.0.1", port)))
        sentence = (
            "b did not connect to the server in time; the last line of the log of b: the key is missing"
        )
        with pytest.raises(NotEnoughSites, match=sentence):
            federation.wait_until_up(0.1)


def test_free_ports_are_free_and_different():
    ports = free_ports(5)
    assert len(set(ports)) == 5
    for port in ports:
        with socket.socket() as one:
            one.bind(("127.0.0.1", port))
