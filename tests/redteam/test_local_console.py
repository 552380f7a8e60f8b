"""Attacks on the console: another page in the browser, another program on the machine, a hostile lead or site."""

import re

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("starlette")
from starlette.testclient import TestClient

from feddbn.console import site_facts
from feddbn.console.gate import COOKIE, MOST_BYTES, Gate, Keys, loopback
from feddbn.errors import ParameterError
from feddbn.runtime.site.owner import STUDIES
from feddbn.runtime.store import Store
from support.console_kits import (
    HOST,
    SCRIPT,
    SiteKits,
    codes,
    press,
)
from support.consortium import make_study

pytestmark = pytest.mark.promise

FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    made = SiteKits(tmp_path_factory.mktemp("kits"))
    made.owner().offered.keep(make_study(), "lead@example.org")
    return made


@pytest.fixture
def opened(kits):
    return kits.client()


def approvals(kits):
    return kits.owner().approvals.all()


def approving(keys, **fields):
    return {"form": keys.form, "runs": "1", "days": "30", **fields}


@pytest.mark.parametrize(
    "host", ["evil.example.org", "evil.example.org:8764", "127.0.0.1", "127.0.0.1:80", "", f"{HOST}."]
)
def test_a_name_that_points_here_is_not_our_name(opened, host):
    client, keys = opened
    for path in ("/", "/studies"):
        answer = client.get(path, headers={"host": host})
        assert answer.status_code == 421
        assert keys.form not in answer.text
    assert client.get(f"http://{HOST}/enter?token={keys.token}", headers={"host": host}).status_code == 421


def test_without_the_token_nothing_is_told_and_a_wrong_one_is_no_better(kits):
    keys = Keys()
    client = TestClient(Gate(kits.app(keys), keys, {HOST}), base_url=f"http://{HOST}", follow_redirects=False)
    said = set()
    for path in (
        "/",
        f"{keys.base}/",
        f"{keys.base}/studies",
        f"{keys.base}/static/console.js",
        "/studies",
        f"{keys.base}x/",
    ):
        answer = client.get(path)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
        said.add(answer.text)
    for token in ("", "x", keys.token[:-1], keys.token + "x", keys.cookie, keys.form):
        said.add(client.get("/enter", params={"token": token}).text)
    # Nobody can tell a wrong room from a wrong token.
    assert len(said) == 1
    assert "sepsis" not in said.pop()
    for crumb in ("", "x", keys.token, keys.form):
        answer = client.get(f"{keys.base}/", headers={"cookie": f"{COOKIE}={crumb}"})
        assert answer.status_code == 403


def test_the_cookie_is_for_this_console_alone(kits):
    keys = Keys()
    client = TestClient(Gate(kits.app(keys), keys, {HOST}), base_url=f"http://{HOST}", follow_redirects=False)
    answer = client.get("/enter", params={"token": keys.token})
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", f"Path={keys.base}/"} <= set(cookie.split("; "))
    # Cookies are sent to every port of a machine: without the room's random name another server does not get it.
    assert len(keys.room) >= 16
    assert keys.token not in cookie
    assert len({keys.token, keys.cookie, keys.form, keys.room, Keys().token}) == 5


@pytest.mark.parametrize(
    "heads",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example.org"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "null"},
    ],
)
def test_another_page_cannot_press_a_button_even_with_the_cookie(kits, opened, heads):
    client, keys = opened
    path = f"/studies/{make_study().digest}/approve"
    answer = client.post(path, data=approving(keys), headers=heads)
    assert answer.status_code == 403
    assert approvals(kits) == []


def test_another_page_cannot_read_one(opened):
    client, _ = opened
    for site in ("cross-site", "same-site"):
        answer = client.get("/", headers={"sec-fetch-site": site})
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("form", [None, "", "x", "token", "cookie"])
def test_a_form_without_its_own_key_does_nothing(kits, opened, form):
    client, keys = opened
    fields = approving(keys)
    if form is None:
        del fields["form"]
    else:
        fields["form"] = getattr(keys, form, form)
    for button in ("approve", "refuse", "revoke"):
        assert client.post(f"/studies/{make_study().digest}/{button}", data=fields).status_code == 403
    assert approvals(kits) == []
    assert [one.study.name for one in kits.owner().waiting()] == ["s"]


def test_a_link_or_a_body_of_another_kind_presses_no_button(kits, opened):
    client, keys = opened
    path = f"/studies/{make_study().digest}/approve"
    assert client.get(path, params=approving(keys)).status_code == 405
    for kind in ("text/plain", "multipart/form-data", "application/json", ""):
        answer = client.post(path, content=f"form={keys.form}&runs=1&days=1", headers={"content-type": kind})
        assert answer.status_code == 415
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
        assert client.request(method, path).status_code == 405
    assert approvals(kits) == []


def test_a_body_without_end_is_not_read_to_its_end(opened):
    client, keys = opened
    answer = client.post("/studies", content=b"form=" + b"x" * (MOST_BYTES + 1), headers=FORM)
    assert answer.status_code == 413
    odd = client.post("/studies", content=b"\xff\xfe" * 10, headers=FORM)
    assert odd.status_code == 403
    many = client.post(
        "/studies", content=b"&".join(b"a=1" for _ in range(99)) + f"&form={keys.form}".encode(), headers=FORM
    )
    assert many.status_code == 403


def pages(client, digest):
    return [
        client.get(path)
        for path in (
            "/",
            "/studies",
            f"/studies/{digest}",
            "/log",
            "/data",
            "/results",
            "/static/console.js",
            "/none",
        )
    ]


def test_no_page_may_be_kept_framed_or_load_anything(opened):
    client, _ = opened
    for answer in pages(client, make_study().digest):
        policy = dict(
            part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";")
        )
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["form-action"] == "'self'"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert "unsafe" not in answer.headers["content-security-policy"]


def test_a_hostile_study_is_text_and_nothing_else(tmp_path):
    kits = SiteKits(tmp_path)
    turned = "\u202egnp.exe"
    hostile = make_study(
        lead=f'{SCRIPT}" onmouseover="alert(2)"',
        units={"u": f"<img src=x onerror=alert(3)>{SCRIPT}"},
        parameters={"n_lags": 1, f"{SCRIPT}": f"{{{{ 7*7 }}}}{SCRIPT}"},
    )
    kits.owner().offered.keep(hostile, f"{SCRIPT}{turned}@example.org")
    kits.owner().approve(make_study(name="earlier"), 30.0, 1, None)
    client, keys = kits.client()
    for answer in pages(client, hostile.digest)[:-2]:
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text
        assert "<img" not in answer.text
        assert 'onmouseover="' not in answer.text
        assert "49" not in re.findall(r"&#34;n_lags.*", answer.text)
        # Letters that turn the text around are not sent on.
        assert "\u202e" not in answer.text
        # Every script has a file of ours, and no element has a handler or a style of its own.
        assert re.findall(r"<script(?! src=\"/[\w-]+/static/)", answer.text) == []
        assert re.findall(r"<[^>]+\s(?:on\w+|style)=", answer.text) == []
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in client.get(f"/studies/{hostile.digest}").text
    # A study that no method could run is not approved by a button either.
    answer = press(client, keys, f"/studies/{hostile.digest}/approve", runs="1", days="30")
    assert answer.status_code == 400
    assert [approval.study for approval, _ in approvals(kits)] == ["earlier"]


def test_the_text_that_was_shown_is_the_text_that_is_approved(tmp_path):
    kits = SiteKits(tmp_path)
    shown, swapped = make_study(), make_study(privacy={"secure_aggregation": False})
    kits.owner().offered.keep(shown)
    client, keys = kits.client()
    store = Store(kits.settings().state)
    # Whoever can write the store puts another study under the name of the one that the owner has read.
    text = store.get(STUDIES, shown.digest)
    other = text.replace(b'\\"secure_aggregation\\":true', b'\\"secure_aggregation\\":false')
    assert other != text
    store.put(STUDIES, shown.digest, other)
    for digest in (shown.digest, swapped.digest):
        assert press(client, keys, f"/studies/{digest}/approve", runs="1", days="30").status_code == 400
    for digest in (shown.digest[:12], "..%2f..%2fidentity", "0" * 64, "A" * 64):
        assert press(client, keys, f"/studies/{digest}/approve", runs="1", days="30").status_code in (
            400,
            404,
        )
        assert client.get(f"/studies/{digest}").status_code in (400, 404)
    assert approvals(kits) == []


def test_no_path_leads_out_of_the_console(opened, kits):
    client, _ = opened
    for path in (
        "/static/../../gate.py",
        "/static/%2e%2e/gate.py",
        "/static/..%2f..%2fgate.py",
        "/static//etc/passwd",
        "/results/..%2f..%2f/report",
        "/results/%2e%2e/report",
        "/results/_audit/report",
    ):
        answer = client.get(path)
        assert answer.status_code in (400, 403, 404), path
        assert "import" not in answer.text


def test_a_report_has_no_origin(tmp_path):
    kits = SiteKits(tmp_path)
    study = make_study()
    kits.approve(study)
    kits.run(study)
    client, _ = kits.client()
    policy = client.get("/results/run-1/report").headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts allow-downloads;")
    assert "allow-same-origin" not in policy
    assert "connect-src" not in policy
    assert "default-src 'none'" in policy


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0",
        "::",
        "192.168.1.5",
        "10.0.0.1",
        "example.org",
        "127.0.0.1.example.org",
        "",
        "::ffff:10.0.0.1",
    ],
)
def test_no_other_address_than_loopback_is_listened_on(host):
    with pytest.raises(ParameterError):
        loopback(host)


def test_somebody_who_sends_many_studies_pushes_out_none_that_was_approved(tmp_path, monkeypatch):
    monkeypatch.setattr("feddbn.runtime.site.owner.MOST_STUDIES", 5)
    kits = SiteKits(tmp_path)
    kits.owner().approve(make_study(), 30.0, 1, None)
    for k in range(9):
        kits.owner().offered.keep(make_study(name=f"spam-{k}"), "mallory@example.org")
    kept = kits.owner().offered.all()
    assert len(kept) == 5
    assert "s" in {one.study.name for one in kept}
    too_long = make_study(variables=tuple(f"v{k:06}" for k in range(50_000)))
    kits.owner().offered.keep(too_long)
    assert kits.owner().offered.find(too_long.digest) is None


def test_what_cannot_be_told_in_words_cannot_be_approved(kits, opened, monkeypatch):
    def broken(study, settings):
        raise TypeError("a parameter that nobody thought of")

    monkeypatch.setattr(site_facts, "about_study", broken)
    client, keys = opened
    page = client.get(f"/studies/{make_study().digest}")
    assert "study-untold" in codes(page)
    assert "/approve" not in page.text
    assert (
        press(client, keys, f"/studies/{make_study().digest}/approve", runs="1", days="30").status_code == 400
    )
    assert approvals(kits) == []
