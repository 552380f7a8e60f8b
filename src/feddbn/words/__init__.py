"""The sentences: what each finding says, by its code and by who reads it.

A module here holds the sentences of one family. A sentence is a function of what is said, registered by its code::

    @says("cells-bounded")
    def _(it: Said) -> str:
        return f"far cells of {it.names} count for less. {it.cure} uses them as they are."

`it` gives values by name (``it["n"]``), the names it is about, and its cure as the reader writes it: an argument in
Python, ``-p`` at the command line, a line of the study's file for its lead. Nobody who typed no Python is shown Python.
May import: errors, findings.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal

from feddbn.errors import Given
from feddbn.findings import Finding, Findings

Audience = Literal["python", "cli", "owner", "lead"]
"""Who reads it: in Python, at the command line, the owner of a site, the lead of a study."""


@dataclass(frozen=True)
class Card:
    """A finding that answers a question: what a report shows as a card."""

    question: str
    answer: str
    detail: str = ""
    advice: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.question, self.answer, self.detail, self.advice) if part)


@dataclass(frozen=True)
class Said:
    """A finding and who reads it."""

    finding: Finding
    audience: Audience

    def __getitem__(self, name: str) -> Any:
        return self.finding.values[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A value, or the default where the finding does not have it."""
        return self.finding.values.get(name, default)

    @property
    def names(self) -> str:
        """What it is about, with commas."""
        return ", ".join(self.finding.about)

    @property
    def cure(self) -> str:
        """The settings that decide otherwise, as the reader writes them."""
        return " and ".join(self.setting(name, value) for name, value in self.finding.cure.items())

    def setting(self, name: str, value: Any) -> str:
        """A setting as the reader writes it."""
        return setting(name, value, self.audience)

    def option(self, name: str) -> str:
        """A setting without a value, as the reader names it."""
        return argument(name, self.audience)

    def method(self, cls: str, name: str) -> str:
        """A method, as the reader names it."""
        if self.audience == "cli":
            return f"--method {name}"
        return cls if self.in_python else f'method = "{name}"'

    @property
    def in_python(self) -> bool:
        """Whether the reader types Python."""
        return self.audience == "python"

    @property
    def parts(self) -> str:
        """What it sums up: the first clause of each part, with its site."""
        said = (say(part, self.audience) for part in self.finding.parts)
        cut = (re.match(r"(site '[^']*'[^:]*: )?(.*)", text, re.S) for text in said)
        return "; ".join(
            (one[1] or "") + re.split(r"[.;:] |[.]$", one[2], maxsplit=1)[0] for one in cut if one
        )

    @property
    def where_single(self) -> str:
        """Where a reader finds the parts, each with the setting that decides otherwise."""
        return {"cli": "--all shows", "python": "`findings_.single` has"}.get(self.audience, "the report has")


Sentence = Callable[[Said], "str | Card"]
_SENTENCES: dict[str, Sentence] = {}


def says(*codes: str) -> Callable[[Sentence], Sentence]:
    """Register the words of some codes."""

    def register(sentence: Sentence) -> Sentence:
        for code in codes:
            if code in _SENTENCES:
                raise ValueError(f"code {code!r} has its words already.")
            _SENTENCES[code] = sentence
        return sentence

    return register


def says_as(words: Mapping[str, str | tuple[str, ...]]) -> None:
    """Register words in which only values change, ``{name}`` or ``{it.names}``; the parts of a card are a tuple."""
    for code, template in words.items():
        says(code)(partial(_filled_in, template))


def _filled_in(words: str | tuple[str, ...], it: Said) -> str | Card:
    values = it.finding.values
    if isinstance(words, str):
        return words.format(it=it, **values)
    return Card(*(part.format(it=it, **values) for part in words))


@cache
def _sentences() -> Mapping[str, Sentence]:
    """Every code and its words."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return _SENTENCES


def say(finding: Finding, audience: Audience = "python") -> str:
    """Return a finding as text for a reader.

    Examples
    --------
    >>> from feddbn.findings import Finding
    >>> from feddbn.words import say
    >>> say(Finding("text", "note", {"text": "all is well."}))
    'all is well.'
    """
    return str(_said(finding, audience))


def _said(finding: Finding, audience: Audience) -> str | Card:
    plain = f"{finding.code}: {', '.join(f'{name} {value}' for name, value in finding.values.items())}."
    sentence = _sentences().get(finding.code)
    try:
        # A file of a later version, or of a method of another package, may have other codes, or other values of one.
        return plain if sentence is None else sentence(Said(finding, audience))
    except KeyError:
        return plain


def card(finding: Finding, audience: Audience = "python") -> Card:
    """Return a finding as a question with its answer; a plain sentence is the detail of one."""
    said = _said(finding, audience)
    return said if isinstance(said, Card) else Card("", "", said)


_SHOWN_AS = {"unknown": "not checked"}


def first_lines(
    findings: Iterable[Finding], audience: Audience = "python", every: bool = False, levels: bool = False
) -> list[str]:
    """Return what a person is shown first: errors and what has a cure, then how many more there are; `every` shows all.

    With `levels` each line begins with how much it matters.
    """
    told = [one for one in Findings(findings).single if one.level != "good"]
    shown = [one for one in told if every or one.cure or one.level == "error"]
    lines = [
        (f"{_SHOWN_AS.get(one.level, one.level)}: " if levels else "") + say(one, audience) for one in shown
    ]
    more = len(told) - len(shown)
    if more:
        where = {"cli": " (--all shows them)", "python": " (findings_ has them)"}.get(audience, "")
        lines.append(f"and {more} more finding{'' if more == 1 else 's'}{where}.")
    return lines


def setting(name: str, value: Any, audience: Audience = "python") -> str:
    """Return a setting as a reader writes it.

    Examples
    --------
    >>> from feddbn.words import setting
    >>> setting("prepare.robust", "off")
    "Prepare(robust='off')"
    >>> setting("prepare.robust", "off", "cli"), setting("prepare.robust", "off", "lead")
    ('-p prepare.robust=off', 'prepare.robust = "off"')
    """
    room, _, inner = name.rpartition(".")
    if audience == "cli":
        if name == "kinds":
            said = (shlex.quote(f"{column}={_kind(kind)}") for column, kind in value.items())
            return " ".join(f"--kinds {one}" for one in said)
        if name in _OPTIONS:
            return (
                f"--{name} {shlex.quote(','.join(value) if isinstance(value, (list, tuple)) else str(value))}"
            )
        if isinstance(value, Mapping):
            return f"-p {shlex.quote(f'{name}={json.dumps(value)}')}"
        if (name, value) in _SWITCHES:
            return _SWITCHES[name, value]
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        return f"-p {name}={shown}"
    if audience in ("lead", "owner"):
        return f"{name} = {_toml(value)}"
    return f"{room.capitalize()}({inner}={value!r})" if room else f"{name}={value!r}"


_OPTIONS = (
    *("site", "series", "time", "variables", "freq", "jitter", "separator", "decimal", "encoding"),
    *("names", "values", "irregular", "limits", "units"),
)
"""Arguments that say how data are read, and options of their own at the command line."""
_SWITCHES = {
    ("sort", True): "--sort",
    ("day_first", True): "--day-first",
    ("day_first", False): "--month-first",
}


def argument(name: str, audience: Audience = "python") -> str:
    """Return how a reader names a setting without giving it a value.

    Examples
    --------
    >>> from feddbn.words import argument
    >>> argument("variables"), argument("variables", "cli"), argument("variables", "lead")
    ('variables=', '--variables', '`variables`')
    """
    if audience == "cli":
        return f"--{name}" if name in (*_OPTIONS, "kinds") else f"-p {name}"
    if audience != "python":
        return f"`{name}`"
    room, _, inner = name.rpartition(".")
    return f"{room.capitalize()}({inner}=...)" if room else f"{name}="


def told(parts: Iterable[str | Given], audience: Audience) -> str:
    """Return the sentence of an error (`FeddbnError.parts`) with its arguments as the reader writes them.

    Examples
    --------
    >>> from feddbn.errors import DataError, Given
    >>> from feddbn.words import told
    >>> error = DataError(f"leave it out with {Given('variables')}, or give {Given('freq', '1h')}.")
    >>> told(error.parts, "cli")
    'leave it out with --variables, or give --freq 1h.'
    >>> print(error)
    leave it out with variables=, or give freq='1h'.
    """

    def written(part: str | Given) -> str:
        if isinstance(part, str) or audience == "python":
            return str(part)
        if part.value is ... or isinstance(part.value, (list, tuple, dict)):
            value = "" if part.value is ... else f" {part.value}"
            return f"{argument(part.name, audience)}{value}"
        return setting(part.name, part.value, audience)

    return "".join(map(written, parts))


def _kind(said: Any) -> str:
    """A kind of variable as ``--kinds`` takes it."""
    if isinstance(said, Mapping):
        ((kind, levels),) = said.items()
        return f"{kind}:{levels if isinstance(levels, int) else ','.join(levels)}"
    return said if isinstance(said, str) else ",".join(said)


def _toml(value: Any) -> str:
    """A value as a study's or a site's file has it; of strings, numbers and lists JSON writes the same."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{json.dumps(str(name))} = {_toml(one)}' for name, one in value.items())} }}"
    # Such a file has no word for nothing; an empty list says the same.
    return "[]" if value is None else json.dumps(value)


def names_of(columns: Sequence[str], most: int = 6) -> str:
    """Return "column 'a'" or "columns 'a', 'b' and 3 more"."""
    shown = ", ".join(repr(name) for name in columns[:most])
    rest = f" and {len(columns) - most} more" if len(columns) > most else ""
    return f"column{'' if len(columns) == 1 else 's'} {shown}{rest}"


def times(n: int) -> str:
    """Return "once" or "n times"."""
    return "once" if n == 1 else f"{n} times"


def counted(n: int, noun: str) -> str:
    """Return "1 row" or "1,200 rows"."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def percent(share: float) -> str:
    """Return a share in percent; some is never told as none, nor most as all.

    Examples
    --------
    >>> from feddbn.words import percent
    >>> percent(0.0304), percent(0.71), percent(0.99996), percent(1.0), percent(0.0001)
    ('3.0%', '71%', 'more than 99%', '100%', 'less than 0.1%')
    """
    if 0 < share < 0.001:
        return "less than 0.1%"
    if 0.995 <= share < 1:
        return "more than 99%"
    return f"{share:.1%}" if 0 < share < 0.0995 else f"{share:.0%}"


STEERS = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069]")
"""Control characters but those of plain text, and what turns the direction of a line around."""


def one_line(text: str, most: int) -> str:
    r"""Return what somebody else wrote as one line of at most so many characters, without what steers a screen.

    Examples
    --------
    >>> from feddbn.words import one_line
    >>> one_line("not this year:\n  \x1b[2Jask again", 30)
    'not this year: [2Jask again'
    """
    written = text.encode(errors="replace").decode()
    return " ".join(STEERS.sub(" ", written).split())[:most].rstrip()


def full_sentence(text: str) -> str:
    """Return a text with a capital and a full stop."""
    text = text.strip()
    return (
        f"{text[:1].upper()}{text[1:].rstrip('.')}{'' if text.endswith(('!', '?')) else '.'}" if text else ""
    )


@says("text")
def _text(it: Said) -> str | Card:
    """A sentence that has no code."""
    text, cure = (str(it.get(part) or "") for part in ("text", "cure"))
    return Card("", "", text, cure) if cure else text
