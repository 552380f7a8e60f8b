"""What a federation agreed to release: one matrix of second moments, with all that is needed to read it.

Columns are ``[x_t, x_{t-1}, ..., x_{t-p}]``: the variables now, then at lag 1, ..., at lag p. Every algorithm that reads a
covariance matrix runs on it as it would on the pooled rows; `feddbn.interop` has adapters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.ancestral.search import PartialCorrelations
from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.moments import Moments, correlations
from feddbn.errors import FileError, ParameterError, reading
from feddbn.shown import Shown
from feddbn.words import counted

__all__ = ["Node", "Summary"]

FORMAT = "feddbn-summary"
VERSION = 1
Node = tuple[str, int]
"""A variable and a lag: ``("x", 1)`` is x one row before."""


@dataclass(frozen=True, eq=False)
class Summary(Shown):
    """Count, means and cross-products of the lagged rows of all sites.

    Attributes
    ----------
    moments
        The numbers. Where cells are empty or sites add noise, `moments.n` is what the rows are worth.
    variables
        Names of the d variables.
    n_lags
        Number of lags p.
    treatment
        What was done to the rows before (docs/preparing-data.md), or None.
    n_nuisances
        Numbers that were taken off each variable: means, trends and cycles of recordings beyond one mean for all.
    n_sites
        How many sites are in it.
    noise
        What protects it beyond the sum, in words; empty for nothing.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> released = feddbn.summary(data.sites, n_lags=1)
    >>> released.covariance().shape, round(released.n)
    ((6, 6), 200)
    >>> round(released.partial_correlation(("x0", 0), ("x1", 0), [("x2", 0)]), 2)
    0.23
    """

    moments: Moments
    variables: tuple[str, ...]
    n_lags: int
    treatment: Mapping[str, Any] | None = None
    n_nuisances: float = 0.0
    n_sites: int = 1
    noise: str = ""

    def __post_init__(self) -> None:
        names = tuple(str(name) for name in self.variables)
        object.__setattr__(self, "variables", names)
        if self.moments.q != (self.n_lags + 1) * len(names):
            raise ParameterError(
                f"moments have {self.moments.q} columns; {len(names)} variables and n_lags={self.n_lags} need "
                f"{(self.n_lags + 1) * len(names)}."
            )

    @property
    def d(self) -> int:
        """Number of variables."""
        return len(self.variables)

    @property
    def n(self) -> float:
        """Number of rows, or what they are worth."""
        return self.moments.n

    @property
    def n_effective(self) -> float:
        """Rows less the numbers that recordings lost beyond one mean: what tests should count."""
        return self.moments.n - self.n_nuisances

    @property
    def nodes(self) -> list[Node]:
        """(variable, lag) of each column."""
        return [(name, lag) for lag in range(self.n_lags + 1) for name in self.variables]

    @property
    def columns(self) -> list[str]:
        """Names of the columns: ``x``, ``x(t-1)``, ..."""
        return [name if lag == 0 else f"{name}(t-{lag})" for name, lag in self.nodes]

    def covariance(self) -> pd.DataFrame:
        """(q, q) covariances, divided by the number of rows."""
        return pd.DataFrame(self.moments.scatter / self.n, self.columns, self.columns)

    def position(self, variable: str | int, lag: int = 0) -> int:
        """Column of a variable (name or position) at a lag."""
        is_name = isinstance(variable, str) and variable in self.variables
        k = self.variables.index(str(variable)) if is_name else variable
        if k not in range(self.d) or lag not in range(self.n_lags + 1):
            raise ParameterError(
                f"({variable!r}, lag {lag}) is not in this summary; it has {', '.join(self.variables)} at lags 0 to "
                f"{self.n_lags}."
            )
        return int(lag) * self.d + int(k)

    def partial_correlation(self, x: Node, y: Node, given: Sequence[Node] = ()) -> float:
        """Correlation of two nodes given others, as of the pooled rows."""
        if any(isinstance(node, str) or len(node) != 2 for node in (x, y, *given)):
            raise ParameterError(
                f"{(x, y)!r} must be a variable and a lag each, such as ('{self.variables[0]}', 0)."
            )
        i, j, *others = (self.position(*node) for node in (x, y, *given))
        return self.independence.one(i, j, others)[0]

    @cached_property
    def independence(self) -> PartialCorrelations:
        """Tests of partial correlations of the columns, by the rows that tests should count."""
        return PartialCorrelations(correlations(self.moments.scatter)[0], self.n_effective)

    def rows_like(self, n_rows: int | None = None) -> FloatArray:
        """(n_rows, q) made-up rows with exactly these means and covariances, by default as many as there are.

        For algorithms that want rows but only use their covariances and their number. They are cosines mixed by a square
        root of the covariance matrix: nothing about single rows is in them.
        """
        q, n = self.moments.q, round(self.n_effective) if n_rows is None else int(n_rows)
        if n < q + 1:
            raise ParameterError(f"n_rows={n} must be at least {q + 1}: one more than there are columns.")
        waves = np.sqrt(2.0) * np.cos(np.pi / n * np.outer(np.arange(n) + 0.5, np.arange(1, q + 1)))
        values, vectors = np.linalg.eigh(self.moments.scatter / self.n)
        return np.asarray(self.moments.mean + waves @ (np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T))

    def with_lags(self, n_lags: int) -> Summary:
        """The part with fewer lags, over the same rows."""
        if not 0 <= n_lags <= self.n_lags:
            raise ParameterError(f"n_lags={n_lags} must be 0 to {self.n_lags}, which this summary has.")
        return replace(self, moments=self.moments.select(np.arange((n_lags + 1) * self.d)), n_lags=n_lags)

    def reveals(self) -> list[str]:
        """What whoever holds this file knows, in sentences."""
        q, n = self.moments.q, f"{self.n:,.0f} rows"
        said = [
            f"{q * (q + 3) // 2 + 1:,} numbers: how many rows there are, the mean of each of {q} columns, and the mean "
            "product of each pair of them.",
            f"They are sums over {self.n_sites} sites and {n}; no row and no site's own numbers can be read from them."
            if self.n_sites > 1
            else f"They are of one site and its {n}.",
            "Any linear question about these columns can be answered from them, by anybody who has the file and as often as "
            "they like: regressions, partial correlations, networks.",
            self.noise or "No noise was added: whoever knows all rows but one site's can subtract them.",
        ]
        if self.treatment is not None and self.treatment.get("center") == "recording":
            said.insert(3, "Means, and trends and cycles if any, of single recordings were taken off first.")
        return said

    def __str__(self) -> str:
        shown = ", ".join(self.variables[:10]) + (", ..." if self.d > 10 else "")
        head = f"Summary of {self.d} variables ({shown}) at lags 0 to {self.n_lags}"
        return "\n".join(
            [f"{head}: {counted(self.n_sites, 'site')}", *(f"- {line}" for line in self.reveals())]
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values; floats keep every bit in JSON."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "variables": list(self.variables),
            "n_lags": self.n_lags,
            **self.moments.to_dict(),
            "treatment": None if self.treatment is None else dict(self.treatment),
            "n_nuisances": self.n_nuisances,
            "n_sites": self.n_sites,
            "noise": self.noise,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Summary:
        """Inverse of `to_dict`."""
        if not isinstance(data, Mapping) or (data.get("format"), data.get("version")) != (FORMAT, VERSION):
            raise ParameterError(
                f"this is no summary of version {VERSION}; one is written by Summary.save or `feddbn fit --method summary`."
            )
        try:
            names, n_lags = tuple(map(str, data["variables"])), int(data["n_lags"])
            moments = Moments.from_dict(data, (n_lags + 1) * len(names))
            given = (data["treatment"], float(data["n_nuisances"]), int(data["n_sites"]), str(data["noise"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ParameterError(f"this summary is damaged: {error}.") from None
        return cls(moments, names, n_lags, *given)

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        Path(path).write_text(json.dumps(self.to_dict(), allow_nan=False), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Summary:
        """Read what `save` wrote, or the result of a fit with ``method="summary"``."""
        with reading(f"file {str(path)!r}", "JSON"):
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        try:
            return cls.from_dict(_in_result(data))
        except ParameterError as error:
            raise FileError(f"{path}: {error}") from None


def _in_result(data: Any) -> Any:
    """The summary within a stored result, or what was given."""
    facts = data.get("diagnostics") if isinstance(data, Mapping) else None
    return facts.get("summary", data) if isinstance(facts, Mapping) else data
