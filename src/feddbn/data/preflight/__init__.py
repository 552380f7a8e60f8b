"""Pre-flight: what a person should know about data before a fit, each with what cures it.

One pass over the tables as they were given (`raw`) fills a bounded `profile` of every recording; the checks look at
profiles only. A second pass reads the data as a fit would, so that its refusals and usable rows are told, too.
`quick` is the part that every fit runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from feddbn.data.checks import check_sites, summary
from feddbn.data.layout import Layout
from feddbn.data.preflight.between import check_between, check_columns, shape
from feddbn.data.preflight.dynamics import check_dynamics
from feddbn.data.preflight.finding import SEVERITIES, Finding, Findings, named
from feddbn.data.preflight.keys import check_index, check_keys
from feddbn.data.preflight.kinds import propose_kinds
from feddbn.data.preflight.profile import SiteProfile, profile_sites
from feddbn.data.preflight.quick import quick_warnings, remarked
from feddbn.data.preflight.raw import chunks
from feddbn.data.preflight.usable import few_usable
from feddbn.data.preflight.values import centred, check_values, sentinels
from feddbn.data.read import read_sites
from feddbn.errors import DataError

__all__ = ["Finding", "Findings", "preflight", "quick_warnings"]

_MOST_ROWS = 100_000
_KEYS = ("undeclared-time", "shuffled-time", "glued", "undeclared-id", "blocks")


def preflight(
    data: Any,
    n_lags: int = 1,
    *,
    whole_rows: bool = True,
    **read: Any,
) -> Findings:
    """Return what was found in `data`, errors first; `read` are the arguments of `feddbn.data.read_sites`.

    `whole_rows` says whether the method needs rows without missing cells, or uses the cells that are there.

    Counts are of all rows; trends, cycles, spikes and comparisons look at a bounded part of each recording. Nothing here
    needs more memory for more rows.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.data.preflight import preflight
    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> rows[5, 0] = -999.0
    >>> [(one.what, one.severity) for one in preflight({"a": rows})]
    [('spikes', 'note')]
    """
    chosen = read.get("variables")
    layout = Layout(**{**read, "variables": None if chosen is None else tuple(chosen)})
    sites = profile_sites(chunks(data, layout))
    out: list[Finding] = []
    keys: set[str] = set()
    for profile in sites.values():
        about = check_keys(profile)
        if profile.index is not None:
            about += check_index(profile.index, profile.name)
        keys |= {c for finding in about if finding.what in _KEYS for c in finding.columns}
        keys |= {c for c in profile.chosen if c.startswith("Unnamed: ")}
        out += about + _header(profile)
    settled = {name for name, kind in layout.kinds.items() if kind.name != "continuous"}
    proposed = propose_kinds(sites, keys | set(layout.kinds))
    out += proposed
    glued = {str(f.site) for f in out if f.what in ("glued", "shuffled-time", "ignored-index")}
    # Of declared kinds a fit refuses what does not fit; trends, spikes and levels mean nothing there.
    told = {name for finding in proposed for name in finding.columns}
    out += _values(sites, keys | settled, glued, told)
    read = {**read, "missing": "drop" if whole_rows else "keep"}
    out = _explained(out, _usable(data, n_lags, read, whole_rows))
    return Findings(sorted(out, key=lambda finding: -SEVERITIES.index(finding.severity)))


def _values(
    sites: Mapping[str, SiteProfile], keys: set[str], glued: set[str], told: set[str]
) -> list[Finding]:
    """Return findings about measurements; columns that seem to be something else are left out where they would mislead.

    Of `told` columns the kind is proposed already.
    """
    out: list[Finding] = []
    codes = {name: sentinels(one) for name, one in sites.items()}
    shared = [set(one.numeric) for one in sites.values()]
    first = next(iter(sites.values()), None)
    common = () if first is None else tuple(c for c in first.numeric if all(c in s for s in shared))
    columns = tuple(name for name in common if name not in keys)
    shapes = {}
    for name, one in sites.items():
        rows, medians = centred(one, codes[name])
        about = check_values(one, codes[name], rows, told | keys)
        out += [f for f in about if not (f.columns and set(f.columns) <= keys)]
        if name not in glued:
            # The course over glued recordings means nothing.
            out += check_dynamics(one, tuple(c for c in one.numeric if c not in keys), codes[name])
        if columns:
            shapes[name] = shape(one, columns, rows, medians)
    out = _everywhere(out, len(sites))
    if shapes:
        some = max(1, _MOST_ROWS // len(shapes))
        out += check_columns(columns, np.concatenate([one.rows[:some] for one in shapes.values()]))
        out += check_between(columns, shapes, sites)
    return out


def _everywhere(found: list[Finding], n_sites: int) -> list[Finding]:
    """A column that is constant at every site is refused by a fit: one error instead of many warnings."""
    flat = [finding for finding in found if finding.what == "constant"]
    if not flat or len(flat) < n_sites:
        return found
    common = tuple(c for c in flat[0].columns if all(c in finding.columns for finding in flat))
    if not common:
        return found
    text = f"{named(common)} never change{'s' if len(common) == 1 else ''} within any site."
    error = Finding("constant", "error", text, "choose the other columns with variables=", columns=common)
    return [f for f in found if f.what != "constant" or not set(f.columns) <= set(common)] + [error]


def _header(site: SiteProfile) -> list[Finding]:
    names = [name for name in site.chosen if not name.startswith("Unnamed: ")]
    if not site.is_file or not names or not all(_is_number(name) for name in names):
        return []
    text = "all column names are numbers: the file seems to have no header, or variables in rows instead of columns."
    return [
        Finding(
            "header",
            "error",
            text,
            "write one column per variable, with its name in the first line",
            site.name,
        )
    ]


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _usable(data: Any, n_lags: int, read: dict[str, Any], whole_rows: bool) -> list[Finding]:
    try:
        sites = read_sites(data, **read)
        table = summary(sites, n_lags)
    except DataError as error:
        return [_refusal(error)]
    out = []
    for name, row in table.iterrows():
        out += remarked(str(name), sites[str(name)])
        try:
            check_sites({str(name): sites[str(name)]}, n_lags)
        except DataError as error:
            out.append(_refusal(error, str(name)))
            continue
        out += few_usable(str(name), row, n_lags, whole_rows=whole_rows)
    return out


def _explained(found: list[Finding], about_rows: list[Finding]) -> list[Finding]:
    """Return both lists without a refusal that a better finding explains; that one becomes an error."""
    if any(finding.what == "header" for finding in found):
        # The columns' names are values then, and belong into no sentence.
        about_rows = []
    for refusal in about_rows:
        text = refusal.sentence
        because = [
            f
            for f in found
            if f.what != "kinds" and any(f"column {c!r}, which is not numeric" in text for c in f.columns)
        ]
        if refusal.what == "refused" and because:
            about_rows = [one for one in about_rows if one is not refusal]
            found = [replace(f, severity="error") if f in because else f for f in found]
    return found + about_rows


def _refusal(error: DataError, site: str | None = None) -> Finding:
    # The sentences of the reader end with the cure.
    found, _, cure = str(error).partition("; ")
    return Finding("refused", "error", f"{found.rstrip('.')}.", cure.rstrip(".") or "see the sentence", site)
