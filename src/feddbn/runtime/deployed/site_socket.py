"""A site's endpoint behind a socket file, for engines that start a new process for every message.

`serve` keeps one endpoint in memory (secure aggregation needs that) and answers on a Unix socket that only
its owner can open; `ask` is what the engine's short-lived process calls. A message is an 8-byte length and
its bytes, one question and one answer per connection.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from feddbn.errors import FileError, ProtocolError
from feddbn.federation.protocol.messages import MAX_MESSAGE_BYTES

__all__ = ["SOCKET_NAME", "ask", "serve"]

SOCKET_NAME = "_site.sock"
"""Begins as no run may: what a server calls a run can never take its place."""
_log = logging.getLogger("feddbn.site")


def ask(path: Path, message: bytes, timeout_s: float = 600.0) -> bytes | None:
    """Return the endpoint's reply, or None if nobody listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        connection.settimeout(timeout_s)
        _send(connection, message)
        return _receive(connection, 2 * MAX_MESSAGE_BYTES)


def serve(
    handle: Callable[[bytes], bytes], path: Path, max_bytes: int, ready: Callable[[], None] | None = None
) -> None:
    """Answer messages until the process is ended."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if ask_is_answered(path):
        raise FileError(f"{path} is in use: this site is already being served.")
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            old = os.umask(0o177)
            try:
                listener.bind(str(path))
            finally:
                os.umask(old)
        except OSError as error:
            raise FileError(
                f"the socket {path} cannot be opened: {error}; its path may be too long."
            ) from None
        listener.listen()
        if ready is not None:
            ready()
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(60.0)
                # A peer that breaks the connection off must not end the service.
                with contextlib.suppress(OSError, ProtocolError):
                    _send(connection, handle(_receive(connection, 2 * max_bytes)))


def ask_is_answered(path: Path) -> bool:
    """Whether somebody listens at `path`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return False
    return True


def _send(connection: socket.socket, message: bytes) -> None:
    connection.sendall(struct.pack("<Q", len(message)) + message)


def _receive(connection: socket.socket, limit: int) -> bytes:
    (length,) = struct.unpack("<Q", _exactly(connection, 8))
    if length > limit:
        raise ProtocolError(f"this message has {length} bytes; the limit is {limit}.")
    return _exactly(connection, length)


def _exactly(connection: socket.socket, n: int) -> bytes:
    parts: list[bytes] = []
    while n > 0:
        part = connection.recv(min(n, 2**20))
        if not part:
            raise ProtocolError("the connection ended in the middle of a message.")
        parts.append(part)
        n -= len(part)
    return b"".join(parts)
