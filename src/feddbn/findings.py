"""Everything a person is told: one finding has a code, a level, numbers, what it is about, and what cures it.

A finding holds no sentence. `feddbn.words.say` makes one from its code, for whoever reads it: somebody who types Python,
somebody at the command line, the owner of a site, or the lead of a study. So a sentence can be rewritten in one place, and
tests assert codes and numbers.

Findings have an order: what can turn the result over comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from feddbn.shown import Shown

__all__ = ["HARM", "LEVELS", "Finding", "Findings", "Level", "together"]

Level = Literal["error", "warning", "unknown", "note", "good"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""From what matters most: "error" (a fit is refused or cannot be right), "warning" (it can turn the result over), "unknown"
(it could not be looked at), "note" (good to know), "good" (it was looked at and holds)."""

HARM = (
    # Rows are not what they seem, or hardly any is used.
    *("refused", "too-few-rows", "data-do-not-tell", "usable-rows", "edges-differ"),
    # Columns are not what they seem.
    *("mixed-columns", "other-units", "definition-far"),
    # Rows do not follow each other as they seem to.
    *("shuffled-time", "glued", "undeclared-time", "slower-rows"),
    # Cells are not measured.
    *("sentinel", "made-up-values", "constant", "empty-column"),
    # Sites differ, and the model is contradicted.
    *("sites-disagree", "disagreement", "other-relations", "two-rates", "scales"),
    *("could-be-hidden", "residuals", "near-identity", "pairs-unseen", "not-converged"),
)
"""Codes of what turns a result over most surely, the worst first; within a level they come before all others."""


@dataclass(frozen=True)
class Finding:
    """One thing that a person should know.

    Attributes
    ----------
    code
        What it is: short, lower case, such as ``"cells-bounded"``; every code has its words in `feddbn.words`.
    level
        How much it matters, one of `LEVELS`.
    values
        The numbers and names that the words need; plain values, so that they can be stored as JSON. ``site`` and
        ``recording`` among them say where it was found.
    about
        The variables (or edges, or sites) concerned.
    cure
        Settings that decide otherwise or cure it: name -> value, with the room before a dot where there is one
        (``{"prepare.robust": "off"}``).
    parts
        What it sums up: findings that a person need not read one by one.

    Examples
    --------
    >>> from feddbn.findings import Finding
    >>> Finding("sentinel", "warning", {"site": "a", "value": -999}, about=("x",)).where
    "site 'a'"
    """

    code: str
    level: Level
    values: Mapping[str, Any] = field(default_factory=dict)
    about: tuple[str, ...] = ()
    cure: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[Finding, ...] = ()

    @property
    def harm(self) -> tuple[int, int]:
        """Its place among findings: by its level, then by how surely it turns a result over."""
        within = [Finding.from_dict(self.values["finding"])] if "finding" in self.values else []
        codes = {self.code, *(one.code for one in (*self.parts, *within))}
        return LEVELS.index(self.level), min(
            HARM.index(code) if code in HARM else len(HARM) for code in codes
        )

    @property
    def where(self) -> str:
        """Where it was found, in words; empty for everywhere."""
        return ", ".join(
            f"{what} {self.values[what]!r}"
            for what in ("site", "recording")
            if self.values.get(what) is not None
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        told = {**vars(self), "values": dict(self.values), "about": list(self.about), "cure": dict(self.cure)}
        return told | {"parts": [part.to_dict() for part in self.parts]}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Finding:
        """Return what `to_dict` gave; a level that is not known raises ValueError."""
        if stored["level"] not in LEVELS:
            raise ValueError(f"level={stored['level']!r} is not one of {', '.join(LEVELS)}.")
        values, cure = (dict(stored.get(name, {})) for name in ("values", "cure"))
        about = tuple(map(str, stored.get("about", ())))
        parts = tuple(map(cls.from_dict, stored.get("parts", ())))
        return cls(str(stored["code"]), stored["level"], values, about, cure, parts)


def together(code: str, found: Sequence[Finding]) -> list[Finding]:
    """Return one finding that sums up several, as grave as the gravest of them; one alone stays as it is."""
    if len(found) < 2:
        return list(found)
    parts = tuple(Findings(found))
    about = tuple(dict.fromkeys(name for part in parts for name in part.about))
    return [Finding(code, parts[0].level, about=about, parts=parts)]


class Findings(list[Finding], Shown):
    """Findings in their order: what can turn the result over comes first (`Finding.harm`), equals as they were found.

    Examples
    --------
    >>> from feddbn.findings import Finding, Findings
    >>> Findings([Finding("a", "note"), Finding("b", "error")]).codes
    ('b', 'a')
    """

    def __init__(self, found: Iterable[Finding] = ()) -> None:
        super().__init__(sorted(found, key=lambda one: one.harm))

    @classmethod
    def stored_in(cls, result: Mapping[str, Any]) -> Findings:
        """Return what a stored result tells."""
        return cls(Finding.from_dict(one) for one in result.get("findings") or ())

    @property
    def single(self) -> Findings:
        """One by one: parts instead of what sums them up."""
        return Findings(part for one in self for part in (one.parts or (one,)))

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of single findings, in order."""
        return tuple(one.code for one in self.single)

    def of(self, code: str) -> list[Finding]:
        """Those with this code, also parts of others."""
        return [one for one in (*(whole for whole in self if whole.parts), *self.single) if one.code == code]
