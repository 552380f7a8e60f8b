"""A console's socket: on loopback, or not at all."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from feddbn.console.gate import Asgi, Gate, Keys
from feddbn.errors import ParameterError

if TYPE_CHECKING:
    import uvicorn

__all__ = ["bound", "host_names", "loopback", "serve", "server_of"]


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


def server_of(gate: Asgi) -> uvicorn.Server:
    """Return the server of a console, not yet running."""
    import uvicorn

    config = uvicorn.Config(
        gate,
        http="h11",
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
