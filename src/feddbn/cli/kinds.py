"""Kinds of variables on the command line: ``--kinds visits=count --kinds ward=north,south --kinds pain=ordinal:no,bad``."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from feddbn.errors import FileError, ParameterError
from feddbn.method_table import Method

__all__ = ["give_kinds", "kinds_as_options", "parse_kinds"]

_FILES = (".toml", ".json")


def parse_kinds(texts: Iterable[str] | None) -> dict[str, Any] | None:
    """Return what the options say as `feddbn.core.kinds.read_kinds` takes it; None if there are none."""
    found: dict[str, Any] = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if sign and not name.strip():
            raise ParameterError(f"--kinds {text!r} must begin with a variable, such as visits=count.")
        is_file = not sign and Path(text).suffix.lower() in _FILES
        said = _from_file(Path(text)) if is_file else {name.strip(): _kind(text, value)}
        twice = [key for key in said if key in found]
        if twice:
            raise ParameterError(f"--kinds says what {twice[0]!r} is twice; keep one of them.")
        found |= said
    return found or None


def _kind(text: str, value: str) -> Any:
    from feddbn.core.kinds import KINDS

    word, colon, levels = value.partition(":")
    word, names = word.strip(), [name.strip() for name in (levels if colon else value).split(",")]
    if colon and word in KINDS and all(names):
        return {word: int(names[0]) if len(names) == 1 and names[0].isdigit() else names}
    if not colon and value.strip() in KINDS:
        return value.strip()
    # "x1=binary,count" is meant as two kinds, not as two levels.
    if not colon and len(names) > 1 and all(names) and not set(names) & set(KINDS):
        return names
    raise ParameterError(
        f"--kinds {text!r} must look like visits=count, ward=north,south or pain=ordinal:no,some,bad, with a kind of "
        f"{', '.join(KINDS)}; or name a .toml or .json file."
    )


def _from_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text) if path.suffix.lower() == ".toml" else json.loads(text)
    except OSError as error:
        raise FileError(f"--kinds {str(path)!r} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise FileError(f"--kinds {str(path)!r} is no valid {path.suffix[1:].upper()}: {error}.") from None
    inner = values.get("kinds", values) if isinstance(values, dict) else None
    if not isinstance(inner, dict) or not inner:
        raise ParameterError(
            f'--kinds {str(path)!r} must hold kinds by variable, such as visits = "count", alone or in a table [kinds].'
        )
    return inner


def give_kinds(methods: Method | Iterable[Method], parameters: dict[str, Any], read: dict[str, Any]) -> None:
    """Move the kinds from what says how data are read to the parameters of methods; refuse methods that know none."""
    kinds = read.pop("kinds")
    if kinds is None:
        return
    for method in [methods] if isinstance(methods, Method) else methods:
        if "kinds" not in method.parameters():
            raise ParameterError(
                f"--kinds needs a method that knows kinds of variables, and {method.name} treats all as numbers on a line; "
                "use --method mixed."
            )
    if "kinds" in parameters:
        raise ParameterError("kinds is given by --kinds and by --param; keep one of them.")
    parameters["kinds"] = kinds


def kinds_as_options(kinds: Mapping[str, Any]) -> str:
    """Return the options that say these kinds."""
    return " ".join(f"--kinds {shlex.quote(f'{name}={_text(said)}')}" for name, said in kinds.items())


def _text(said: Any) -> str:
    if isinstance(said, Mapping):
        ((kind, levels),) = said.items()
        return f"{kind}:{levels if isinstance(levels, int) else ','.join(levels)}"
    return said if isinstance(said, str) else ",".join(said)
