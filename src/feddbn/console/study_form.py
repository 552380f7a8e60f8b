"""A study as a form: its fields become the text of a study file, which is what is checked, shown and sent.

Nothing is judged here. A field that makes no sense makes a text that makes none, and whoever reads the text says so.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from feddbn.federation.protocol.study import Study
from feddbn.method_table import METHODS

USUAL = ("oneshot", "pfdbnl", "mixed", "changing", "continuous")
"""The methods that are listed first."""
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Asked:
    """One key of the table [about]: its name, the question that it answers, and an example."""

    key: str
    label: str
    example: str
    is_required: bool = False


ABOUT = (
    Asked("purpose", "What is it for?", "Which drugs lower blood pressure within hours?", True),
    Asked("contact", "Whom can owners ask?", "Ada Byron, +44 20 7946 0000, ada@example.org", True),
    Asked("retention", "How long is the result kept?", "ten years, then deleted", True),
    Asked("legal_basis", "Legal basis", "GDPR Art. 6(1)(e), 9(2)(j)"),
    Asked("ethics", "Ethics approval", "EK 2026/117"),
    Asked("recipients", "Who gets the result?", "the five hospitals of the study"),
    Asked("publication", "Will it be published?", "yes, as one network of all sites"),
)


def methods() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return (name, what it gives) of the usual methods that a study can name, and of the others."""
    known = {row.name: f"{row.name}: {row.summary}" for row in METHODS.values() if row.in_studies}
    usual = [(name, known[name]) for name in USUAL if name in known]
    return usual, [(name, words) for name, words in known.items() if name not in USUAL]


def blank(lead: str, sites: tuple[str, ...]) -> dict[str, str]:
    """Return the fields of a new study: all sites, masks."""
    return {
        "lead": lead,
        "method": USUAL[0],
        "goal": "network",
        "n_lags": "1",
        "sites": "\n".join(sites),
        "masks": "yes",
        "min_sites": str(max(min(len(sites), 3), 2)),
        "unit": "recording",
        "when_missing": "wait",
    }


def text_of(fields: Mapping[str, str]) -> str:
    """Return the study file that some fields make."""
    given = {name: value.strip() for name, value in fields.items()}
    given |= {one.key: " ".join(given.get(one.key, "").split()) for one in ABOUT}
    variables = [line.partition("=") for line in _lines(given.get("variables", ""))]
    units = {name.strip(): unit.strip() for name, _, unit in variables if unit.strip()}
    privacy: dict[str, Any] = {"secure_aggregation": True} if given.get("masks") else {}
    privacy |= {"min_sites": number(given.get("min_sites", "")), "epsilon": number(given.get("epsilon", ""))}
    privacy |= {"unit": given.get("unit")} if given.get("epsilon") else {}
    more = given.get("more", "")
    try:
        rest: dict[str, Any] = tomllib.loads(more)
    except tomllib.TOMLDecodeError:
        rest = {}
    values = {
        "name": given.get("name"),
        "lead": given.get("lead"),
        "method": given.get("method"),
        "goal": given.get("goal") if given.get("goal") != "network" else None,
        "variables": [name.strip() for name, _, _ in variables],
        "sites": [*_lines(given.get("sites", "")), *_lines(given.get("more_sites", "").replace(",", "\n"))],
        "step": given.get("step"),
        "about": {one.key: given.get(one.key) for one in ABOUT},
        "parameters": {"n_lags": number(given.get("n_lags", ""))},
        "units": units,
        "privacy": privacy,
        "attendance": {"when_missing": given.get("when_missing")},
    }
    text = toml_text(_merged(values, rest))
    # What cannot be read stands where whoever reads the file says so.
    return text if rest or not more else f"{text}\n{more}\n"


def fields_of(study: Study) -> dict[str, str]:
    """Return the fields that make a study again: what has no field of its own is the text of `more`."""
    rest: dict[str, Any] = study.model_dump(mode="json", exclude_defaults=True)
    units = rest.pop("units", {})
    found = {
        "variables": "\n".join(
            f"{name} = {units[name]}" if name in units else name for name in rest.pop("variables")
        ),
        "sites": "\n".join(rest.pop("sites")),
        "masks": "yes" if study.privacy.secure_aggregation else "",
    }
    tables = {
        "": ("name", "lead", "method", "goal", "step"),
        "about": tuple(one.key for one in ABOUT),
        "parameters": ("n_lags",),
        "privacy": ("min_sites", "epsilon", "unit"),
        "attendance": ("when_missing",),
    }
    rest.get("privacy", {}).pop("secure_aggregation", None)
    for table, names in tables.items():
        inner = rest.get(table, {}) if table else rest
        found |= {name: str(inner.pop(name)) for name in names if inner.get(name) is not None}
    return {**blank("", study.sites), "n_lags": "", "min_sites": "", **found, "more": toml_text(rest)}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def number(text: str) -> int | float | str | None:
    """Return what was typed as a number; what is none stays as it is, and nothing is None."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text or None


def _merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(values)
    for name, value in more.items():
        old = both.get(name)
        both[name] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return both


def toml_text(values: Mapping[str, Any]) -> str:
    """Return values as TOML, one table for each that is a table; what is empty is left out."""
    tables = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    parts = [_entries({name: value for name, value in values.items() if name not in tables})]
    parts += [[f"[{_key(name)}]", *lines] for name, table in tables.items() if (lines := _entries(table))]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + ("\n" if any(parts) else "")


def _entries(values: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_value(value)}" for name, value in values.items() if value not in (None, "")]


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _value(value: object) -> str:
    # Strings, numbers, truth values and lists are written as in JSON.
    if isinstance(value, Mapping):
        return f"{{ {', '.join(_entries(value))} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False)
