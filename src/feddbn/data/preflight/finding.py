"""One thing that a person should know about data before a fit."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pandas as pd

from feddbn.shown import Shown

__all__ = ["SEVERITIES", "Finding", "Findings", "named", "option", "times"]

SEVERITIES = ("note", "warning", "error")


@dataclass(frozen=True)
class Finding:
    """What was found, where, and what cures it.

    Attributes
    ----------
    what
        A short code, such as ``"sentinel"``; the list is in docs/preparing-data.md.
    severity
        "note": good to know; "warning": a fit is likely to be wrong; "error": a fit is refused or cannot be right.
    sentence
        The finding in plain words. It names columns and counts, and no value but a well-known code for "missing".
    cure
        The option or action that cures it; options are written as arguments of `fit`.
    site, recording
        Where; None is all of them.
    columns
        The columns concerned.

    Examples
    --------
    >>> from feddbn.data.preflight import Finding
    >>> Finding("sentinel", "warning", "column 'x' has -999.", "missing=-999", site="a").where
    "site 'a'"
    """

    what: str
    severity: str
    sentence: str
    cure: str
    site: str | None = None
    recording: str | None = None
    columns: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """Where it was found, in words; empty for everywhere."""
        parts = (("site", self.site), ("recording", self.recording))
        return ", ".join(f"{what} {name!r}" for what, name in parts if name is not None)


class Findings(list[Finding], Shown):
    """What a check found, errors first.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.data.preflight import preflight
    >>> found = preflight({"a": np.column_stack([np.arange(50.0), np.ones(50)])})
    >>> found.to_frame()[["what", "severity"]].values.tolist()[:1]
    [['constant', 'error']]
    """

    def to_frame(self) -> pd.DataFrame:
        """One row per finding: what, severity, sentence, cure, site, recording, columns."""
        return pd.DataFrame([asdict(one) for one in self], columns=list(Finding.__dataclass_fields__))


def named(columns: Sequence[str], most: int = 6) -> str:
    """Return "column 'a'" or "columns 'a', 'b' and 3 more"."""
    shown = ", ".join(repr(name) for name in columns[:most])
    rest = f" and {len(columns) - most} more" if len(columns) > most else ""
    return f"column{'' if len(columns) == 1 else 's'} {shown}{rest}"


def option(argument: str, column: str) -> str:
    """Return an argument as a cure writes it, such as ``series=patient`` or ``time='local time'``."""
    return f"{argument}={shlex.quote(column)}"


def times(n: int) -> str:
    """Return "once" or "n times"."""
    return "once" if n == 1 else f"{n} times"
