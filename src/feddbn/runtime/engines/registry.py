"""The engines by name; each is imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from feddbn.errors import FileError, ParameterError, missing_extra

if TYPE_CHECKING:
    from feddbn.runtime.engines.interface import Engine

__all__ = ["DEFAULT_ENGINE", "engine", "engine_names", "engine_of"]


class _Entry(NamedTuple):
    """The module whose `ENGINE` it is, and what only its kits hold."""

    module: str
    mark: str


DEFAULT_ENGINE = "nvflare"
_ENGINES = {
    "nvflare": _Entry("feddbn.runtime.engines.nvflare.engine", "startup"),
}


class _Gone(NamedTuple):
    """An engine of earlier versions: what only its kits hold, and why it is not offered."""

    mark: str
    why: str


_GONE = {
    "flower": _Gone(
        "ca.pem", "whoever reaches a Flower server's port can run code at the sites and read their keys"
    ),
}


def engine_names() -> tuple[str, ...]:
    """Return the names of all engines."""
    return tuple(_ENGINES)


def engine(name: str = DEFAULT_ENGINE) -> Engine:
    """Return the engine of this name."""
    if name in _GONE:
        raise ParameterError(
            f"engine {name!r} is no longer offered, because {_GONE[name].why}; choose {' or '.join(_ENGINES)}."
        )
    if name not in _ENGINES:
        raise ParameterError(f"engine {name!r} is not known; choose {' or '.join(_ENGINES)}.")
    try:
        found: Engine = import_module(_ENGINES[name].module).ENGINE
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None
    return found


def engine_of(kit: Path) -> Engine:
    """Return the engine a kit was made for; of what is no kit, the default, which will say what is missing.

    Raises
    ------
    FileError
        If the kit is one of an engine that is not offered any more.
    """
    marks = {name: entry.mark for name, entry in _ENGINES.items()}
    marks |= {name: gone.mark for name, gone in _GONE.items()}
    found = next((name for name, mark in marks.items() if (Path(kit) / mark).exists()), DEFAULT_ENGINE)
    if found in _GONE:
        raise FileError(
            f"{kit} is a kit of the engine {found!r}, which is no longer offered, because {_GONE[found].why}; destroy it "
            f"and make new kits with `feddbn federation init`, which uses {DEFAULT_ENGINE}."
        )
    return engine(found)
