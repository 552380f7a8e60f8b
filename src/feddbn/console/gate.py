"""Who may ask the console anything, and what a browser may do with its answers.

Theory of operation
-------------------
The console signs approvals, so every page that the owner's browser has open is a possible enemy, and so is every other
program that listens on this machine. In the order in which they are checked:

- *Host.* Only the console's own address. A name that somebody else's server points at 127.0.0.1 (DNS rebinding) is not.
- *Other pages.* A browser says where a request comes from (Sec-Fetch-Site, Origin). What another page started is refused,
  that of another port of this machine, too.
- *Token.* The address printed at start holds a random token. It is turned into a cookie with another random value: HttpOnly,
  SameSite=Strict, and only for a path with a random part, since cookies do not tell the ports of one machine apart and would
  otherwise be sent to any other server on it.
- *Forms.* A POST has to bring a third random value, which only the console's own pages hold.

Every answer forbids to be kept, framed, or to load anything from elsewhere; no script or style stands in a page.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode

from feddbn.errors import ParameterError

if TYPE_CHECKING:
    import uvicorn

Scope = MutableMapping[str, Any]


Message = MutableMapping[str, Any]


Receive = Callable[[], Awaitable[Message]]


Send = Callable[[Message], Awaitable[None]]


Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


FORM = "feddbn.form"
"""Where the gate leaves the fields of a form in a request's scope."""

MOST_BYTES = 1_000_000
MOST_IDLE, IDLE_S = 32, 10.0
"""Connections on which nobody is being answered: more are closed, the oldest first, and all after so many seconds."""
COOKIE = "feddbn_console"
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)

REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""A report is one file with its script inside; in a sandbox it has no origin, so it can ask the console for nothing."""

_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}

_CLOSED = "Open the address that the console printed in its terminal when it was started."


def _secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True)
class Keys:
    """The secrets of one console, new at every start: of the address, the path, the cookie, and the forms."""

    token: str = field(default_factory=_secret, repr=False)
    room: str = field(default_factory=lambda: secrets.token_urlsafe(12), repr=False)
    cookie: str = field(default_factory=_secret, repr=False)
    form: str = field(default_factory=_secret, repr=False)

    @property
    def base(self) -> str:
        """The path below which everything lies, without a slash at its end."""
        return f"/{self.room}"

    def address(self, host: str) -> str:
        """Return what the person at the terminal opens; `host` is with its port."""
        return f"http://{host}/enter?{urlencode({'token': self.token})}"


class Gate:
    """Lets through, to the app behind it, what comes from a page of the console itself.

    The app sees paths without the random part; `hosts` are the Host headers that are the console's own, with port.
    """

    def __init__(self, app: Asgi, keys: Keys, hosts: Iterable[str]) -> None:
        self._app = app
        self._keys = keys
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            # No sockets that stay open, and nothing to prepare.
            return
        heads = _heads(scope)
        answer = _Answer(send)
        if heads.get("host", [""]) not in ([host] for host in self._hosts):
            return await answer.refuse(421, "This console answers only under its own address.")
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return await answer.refuse(405, "This console accepts only GET and POST.")
        if scope["path"] == "/enter":
            return await self._enter(scope, answer)
        if heads.get("sec-fetch-site", ["none"]) not in (["same-origin"], ["none"]):
            return await answer.refuse(403, "Another web page made this request, so it was refused.")
        if not self._is_known(scope["path"], heads):
            return await answer.refuse(403, _CLOSED)
        if scope["method"] == "POST":
            origins = [f"http://{host}" for host in self._hosts]
            if any(origin not in origins for origin in heads.get("origin", [])):
                return await answer.refuse(403, "Another web page sent this form, so it was refused.")
            kind = heads.get("content-type", [""])[0].split(";")[0].strip().lower()
            if kind != "application/x-www-form-urlencoded":
                return await answer.refuse(415, "This console accepts only forms.")
            body = await _body(receive)
            if body is None:
                return await answer.refuse(413, f"More than {MOST_BYTES} bytes were sent.")
            fields = _fields(body)
            if not _same(fields.get("form", ""), self._keys.form):
                return await answer.refuse(
                    403,
                    "This form does not belong to this console, or the console was restarted; load the page again.",
                )
            scope = {**scope, FORM: fields}
        path = scope["path"][len(self._keys.base) :] or "/"
        inner = {**scope, "path": path, "raw_path": path.encode(), "root_path": ""}
        return await self._app(inner, receive, answer.send)

    async def _enter(self, scope: Scope, answer: _Answer) -> None:
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        if scope["method"] != "GET" or not _same(given, self._keys.token):
            return await answer.refuse(403, _CLOSED)
        cookie = f"{COOKIE}={self._keys.cookie}; Path={self._keys.base}/; HttpOnly; SameSite=Strict"
        await answer.plain(303, "", {"location": f"{self._keys.base}/", "set-cookie": cookie})

    def _is_known(self, path: str, heads: dict[str, list[str]]) -> bool:
        if not path.startswith(f"{self._keys.base}/"):
            return False
        crumbs = [crumb.strip() for head in heads.get("cookie", []) for crumb in head.split(";")]
        given = [crumb[len(COOKIE) + 1 :] for crumb in crumbs if crumb.startswith(f"{COOKIE}=")]
        return any(_same(one, self._keys.cookie) for one in given)


class _Answer:
    """What goes back, with the headers that every answer has."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def send(self, message: Message) -> None:
        """Pass a message on; headers that the app has set itself stay."""
        if message["type"] == "http.response.start":
            own = [(name.lower(), value) for name, value in message.get("headers", [])]
            has = {name.decode("latin-1") for name, _ in own}
            ours = {**_HEADERS, "content-security-policy": PAGE_POLICY}
            own += [(k.encode(), v.encode()) for k, v in ours.items() if k not in has]
            message = {**message, "headers": own}
        await self._send(message)

    async def refuse(self, status: int, sentence: str) -> None:
        """Answer with one sentence."""
        await self.plain(status, f"{sentence}\n", {})

    async def plain(self, status: int, text: str, more: dict[str, str]) -> None:
        """Answer with text."""
        body = text.encode()
        heads = {"content-type": "text/plain; charset=utf-8", "content-length": str(len(body)), **more}
        headers = [(name.encode(), value.encode()) for name, value in heads.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


def _heads(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


async def _body(receive: Receive) -> bytes | None:
    """Return all of it, None if it is too long."""
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if len(body) > MOST_BYTES:
            return None
        if message["type"] != "http.request" or not message.get("more_body"):
            return body


def _fields(body: bytes) -> dict[str, str]:
    try:
        found = parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=80, errors="strict")
    except (UnicodeDecodeError, ValueError):
        return {}
    return {name: values[-1] for name, values in found.items()}


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def loopback(host: str) -> str:
    """Return the address of a host of this machine alone; refuse every other."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        found = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        found = None
    if found is None or not found.is_loopback:
        raise ParameterError(
            f"--host {host}: the console is for the person at this machine and listens on loopback only; leave --host out, "
            "and reach it from elsewhere through `ssh -L`."
        )
    return str(found)


def serve(make: Callable[[Keys], Asgi], host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve a console until it is interrupted; `say` is told the address to open."""
    with bound(loopback(host), port) as listening:
        keys = Keys()
        names = host_names(listening)
        server = server_of(Gate(make(keys), keys, names))
        say(keys.address(names[0]))
        server.run(sockets=[listening])


def host_names(listening: socket.socket) -> tuple[str, ...]:
    """Return what a browser that asks this socket says in its Host header."""
    address, port = listening.getsockname()[:2]
    return (f"[{address}]:{port}" if ":" in address else f"{address}:{port}", f"localhost:{port}")


def _impatient() -> type[asyncio.Protocol]:
    """Return connections that close when nobody asks anything: many that stay open would keep the owner out."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Impatient(H11Protocol):
        @property
        def is_idle(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            opened.append(self)
            for one in [one for one in opened if one.is_idle][:-MOST_IDLE]:
                one.transport.close()
            self.loop.call_later(IDLE_S, self._look)

        def connection_lost(self, exc: Exception | None) -> None:
            opened.remove(self)
            super().connection_lost(exc)

        def _look(self) -> None:
            if self.is_idle:
                self.transport.close()
            else:
                self.loop.call_later(IDLE_S, self._look)

    opened: list[Impatient] = []
    return Impatient


def server_of(gate: Asgi) -> uvicorn.Server:
    """Return the server of a console, not yet running."""
    import uvicorn

    config = uvicorn.Config(
        gate,
        http=_impatient(),
        ws="none",
        lifespan="off",
        # The address with its token must not stand in a log, and nobody is before this server.
        access_log=False,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=2,
        limit_concurrency=64,
    )
    return uvicorn.Server(config)


def bound(address: str, port: int) -> socket.socket:
    """Return a socket that listens there; a place that cannot be had is refused."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address, port))
        # Whoever opens the address as soon as it is printed waits for the server to start.
        listening.listen()
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or error
        raise ParameterError(
            f"--port {port}: the console cannot listen there ({reason}); choose another port, or 0 for any that is free."
        ) from None
    return listening
