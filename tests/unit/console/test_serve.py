import re
import urllib.error
import urllib.request
from importlib.resources import files

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
from feddbn.console.gate import bound, host_names, loopback
from feddbn.errors import ParameterError
from support.console_kits import served


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("localhost", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("127.0.0.2", "127.0.0.2"),
    ],
)
def test_loopback_has_several_names(host, address):
    assert loopback(host) == address


def test_a_port_that_is_taken_is_refused_with_the_cure():
    with bound("127.0.0.1", 0) as first:
        first.listen()
        port = first.getsockname()[1]
        assert host_names(first) == (f"127.0.0.1:{port}", f"localhost:{port}")
        with pytest.raises(ParameterError, match=f"--port {port}"):
            bound("127.0.0.1", port)
    with pytest.raises(ParameterError, match="--port 70000"):
        bound("127.0.0.1", 70000)


def test_the_printed_address_opens_the_console_and_the_server_says_nothing_of_itself():
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    def make(keys):
        return Starlette(routes=[Route("/", lambda request: PlainTextResponse("here"))])

    with served(make) as (address, keys):
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(address, timeout=300) as answer:
            assert answer.read() == b"here"
            assert answer.url.endswith(f"{keys.base}/")
            assert "server" not in {name.lower() for name in answer.headers}
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(address.split("/enter")[0] + "/", timeout=300)
        refused.value.close()
        assert refused.value.code == 403


def test_every_colour_and_level_of_a_page_is_one_of_the_report():
    report, own = (
        (files(package) / folder / name).read_text(encoding="utf-8")
        for package, folder, name in (
            ("feddbn.report", "templates", "report.css"),
            ("feddbn.console", "static", "console.css"),
        )
    )
    assert set(re.findall(r"var\((--[a-z]+)\)", own)) <= set(re.findall(r"(--[a-z]+):", report))
    assert all(
        f".{level} .mark::before" in report and f".said.{level}" in own
        for level in ("good", "warning", "error")
    )
