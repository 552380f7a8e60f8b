"""The engines by name; each is imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from feddbn.errors import ParameterError, missing_extra

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
    "flower": _Entry("feddbn.runtime.engines.flower.engine", "ca.pem"),
}


def engine_names() -> tuple[str, ...]:
    """Return the names of all engines."""
    return tuple(_ENGINES)


def engine(name: str = DEFAULT_ENGINE) -> Engine:
    """Return the engine of this name."""
    if name not in _ENGINES:
        raise ParameterError(f"engine {name!r} is not known; choose {' or '.join(_ENGINES)}.")
    try:
        found: Engine = import_module(_ENGINES[name].module).ENGINE
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None
    return found


def engine_of(kit: Path) -> Engine:
    """Return the engine a kit was made for; of what is no kit, the default, which will say what is missing."""
    marked = (name for name, entry in _ENGINES.items() if (Path(kit) / entry.mark).exists())
    return engine(next(marked, DEFAULT_ENGINE))
