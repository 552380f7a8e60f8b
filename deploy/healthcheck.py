"""Whether a server listens, or a site is connected to its server: exit code 0, or 1 with one sentence.

    python healthcheck.py KIT

Only what is open here is looked at: nothing is sent, and no data are read.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

_ESTABLISHED = "01"


def service(kit: Path) -> tuple[str, int]:
    """Return the role of a kit and the port at which its server listens for sites."""
    for role, name in (("server", "fed_server.json"), ("site", "fed_client.json")):
        path = kit / "startup" / name
        if path.exists():
            target = json.loads(path.read_text(encoding="utf-8"))["servers"][0]["service"]["target"]
            return role, int(target.rsplit(":", 1)[1])
    raise SystemExit(f"{kit} is not the kit of a server or a site.")


def listens(port: int) -> bool:
    """Whether somebody listens at a port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=3).close()
    except OSError:
        return False
    return True


def is_connected_to(port: int, tables: tuple[str, ...] = ("/proc/net/tcp", "/proc/net/tcp6")) -> bool:
    """Whether a connection to this port of another machine is open."""
    for table in tables:
        lines = Path(table).read_text(encoding="ascii").splitlines()[1:] if Path(table).exists() else []
        for _, _, remote, state, *_ in map(str.split, lines):
            if state == _ESTABLISHED and int(remote.rsplit(":", 1)[1], 16) == port:
                return True
    return False


def main(arguments: list[str]) -> int:
    """Return the exit code."""
    role, port = service(Path(arguments[0]))
    if role == "server" and not listens(port):
        print(f"the server does not listen at port {port}.")
        return 1
    if role == "site" and not is_connected_to(port):
        print(f"the site is not connected to port {port} of its server.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
