"""What happens around a site: clocks that jump, connections nobody uses, names that steer a terminal, damaged collections."""

import json
import socket
import time
import urllib.request

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("uvicorn")
from feddbn.cli.terminal import complain, print_json, print_table, remark, say
from feddbn.console import gate
from feddbn.errors import FeddbnError, NotEnoughSites, ParameterError
from feddbn.federation.protocol.study import study_from_json
from feddbn.runtime import store
from feddbn.runtime.store import Store
from support.console_kits import served
from support.consortium import Consortium, by_rule, plain

DAY = 86400
ESCAPE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"


def consortium(place, n_sites=3):
    return Consortium(place, plain(n_sites), by_rule())


def test_a_clock_that_jumps_deletes_nothing(tmp_path, monkeypatch):
    """One start with a clock 40 days ahead deleted every run."""
    sites = consortium(tmp_path)
    sites.run(sites.study(), "run")
    place, now = sites.state() / "run", time.time()
    kept = sorted(path.name for path in place.iterdir())
    # Ahead and back again, then ahead for two days: that is still a jump.
    for days in (40, 0, 400, 401, 1, 2):
        monkeypatch.setattr(store.time, "time", lambda days=days: now + days * DAY)
        sites.restart("s0")
        assert sorted(path.name for path in place.iterdir()) == kept, days
    for days in (40, 41, 42, 43):
        monkeypatch.setattr(store.time, "time", lambda days=days: now + days * DAY)
        sites.restart("s0")
    # What people read stays.
    assert [path.name for path in place.iterdir()] == ["result.feddbn"]


def test_idle_connections_do_not_keep_the_owner_out(monkeypatch):
    """F20: 70 connections that say nothing locked the console for as long as they stayed open."""
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    monkeypatch.setattr(gate, "IDLE_S", 0.5)
    app = Starlette(routes=[Route("/", lambda request: PlainTextResponse("here"))])
    with served(lambda keys: app) as (address, _):
        host, port = address.split("/")[2].split(":")
        idle = [socket.create_connection((host, int(port))) for _ in range(70)]
        idle[-1].sendall(b"GET / HTTP/1.1\r\nHost: ")
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(address, timeout=300) as answer:
            assert answer.read() == b"here"
        for connection in idle:
            connection.settimeout(300)
            assert connection.recv(1) == b""
            connection.close()


def test_no_text_steers_a_terminal(capsys):
    """A method's or a site's name reached the terminal as it came, in `site studies` and others."""
    for tell in (say, remark, complain):
        tell(f"a {ESCAPE} b")
    print_table([ESCAPE, "what"], [[ESCAPE, "[bold]x"]], title=ESCAPE, n_text=2)
    print_json({"name": ESCAPE})
    shown = capsys.readouterr()
    text = shown.out + shown.err
    assert [letter for letter in text if not letter.isprintable() and letter != "\n"] == []
    assert "[bold]x" in text
    assert json.loads(text[text.index("{") : text.index("}") + 1]) == {"name": ESCAPE}


@pytest.mark.parametrize("where", ["method", "variables", "parameters"])
def test_a_study_has_names_that_can_be_read(tmp_path, where):
    """What a site logs about a study is shown by other programs, too."""
    values = json.loads(consortium(tmp_path).study().to_json())
    values |= {"method": ESCAPE} if where == "method" else {}
    values |= {"variables": ["x0", ESCAPE]} if where == "variables" else {}
    values["parameters"] |= {"features": [{ESCAPE: 1}]} if where == "parameters" else {}
    with pytest.raises(ParameterError) as caught:
        study_from_json(json.dumps(values))
    assert caught.value.code == "study-unreadable"
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("fault", ["restart", "flip", "delete"])
def test_a_collection_goes_on_with_the_same_bits_or_ends(tmp_path, fault):
    """Secrets on disk that were altered or lost open nothing; a site that restarts all the time loses nothing."""
    sites = consortium(tmp_path / fault, 4)
    study = sites.study(attendance={"when_missing": "collect", "window_h": 1.0})
    store, seen = Store(sites.state("s1")), []

    def exchange(messages):
        replies = {}
        for name, message in messages.items():
            secrets = store.get("run", "masks")
            if name == "s1" and secrets is not None and (fault == "restart" or not seen):
                content = bytearray(secrets)
                content[len(content) // 2] ^= 1
                if fault == "flip":
                    store.put("run", "masks", bytes(content))
                elif fault == "delete":
                    store.drop("run", "masks")
                seen.append(fault)
                sites.restart("s1")
            replies[name] = sites.endpoints[name].handle(message)
        return replies

    if fault != "restart":
        with pytest.raises((NotEnoughSites, FeddbnError)):
            sites.run(study, "run", exchange)
        return
    whole = consortium(tmp_path / "calm", 4).run(study, "run")[0].arrays
    found = sites.run(study, "run", exchange)[0].arrays
    assert len(seen) > 3
    assert all(np.array_equal(found[name], whole[name]) for name in whole)
