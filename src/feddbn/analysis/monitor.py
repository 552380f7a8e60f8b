"""Tell when a network changes, from the sums of new rows, however often one looks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.constraints import topological_order
from feddbn.core.statistics.evidence import (
    is_alarm,
    noise_evidence,
    noise_sums,
    over_starts,
    products,
    weight_evidence,
)
from feddbn.core.statistics.moments import Moments, as_of_rows, independent, safe_roots
from feddbn.core.threads import one_thread
from feddbn.data import check_sites, read_sites
from feddbn.data.layout import Layout
from feddbn.errors import DataError, FileError, Given, InputError, ParameterError
from feddbn.federation.protocol.rows import Treatment
from feddbn.federation.protocol.task import Federation, run_program
from feddbn.federation.sums.tally import Tally, new_moments_program
from feddbn.findings import Finding
from feddbn.methods.base import in_process
from feddbn.methods.updating import UpdatedEstimator
from feddbn.model.dbn import DBN
from feddbn.model.dynamics import lagged_covariance
from feddbn.results.result import Result, plain, read_json, write_json
from feddbn.results.text import rows_of_errors
from feddbn.settings import number
from feddbn.shown import Shown

__all__ = ["EVIDENCE", "Look", "Monitor"]

EVIDENCE = ("look", "rows", "what", "source", "target", "lag", "e_value")
FORMAT = "feddbn-monitor"
VERSION = 1
_MOST_PARTS = 64
# What was done to cells by rules that a result does not hold in full.
_OF_CELLS = ("prepare.empty_values", "prepare.made_up", "prepare.definitions")
# Two standard errors on either side.
_WIDE = 1.96


@dataclass(frozen=True)
class Look:
    """One look at new rows.

    Attributes
    ----------
    number
        1 for the first look.
    n_rows
        How many new rows it had.
    alarms
        What it tells for the first time: findings with the codes "edge-gone", "edge-new", "edge-changed", "level-changed",
        "noise-changed", and the values source, target, lag, before, after, evidence, since.
    """

    number: int
    n_rows: int
    alarms: tuple[Finding, ...]


@dataclass(frozen=True)
class _Part:
    """Rows since one possible start: the look's number, products of columns, rows, and sums of the noise test."""

    start: int
    gram: FloatArray
    n: float
    noise: FloatArray


class Monitor(Shown):
    """Watches a network: says when an edge, a level or a noise variance has changed, valid however often one looks.

    Every look asks for one sum: the moments of the new rows, treated as the rows of the fit were. Each variable has a
    mechanism: its regression on everything that comes before it. The evidence that its mechanism has changed is an e-value
    (`feddbn.core.statistics.evidence`). An alarm comes where e-BH at level `alpha` rejects "nothing has changed here".

    If nothing changes, the probability that a false alarm ever comes is at most `alpha`, whatever the number of looks. A
    change of one mechanism is no change of the variables it acts on. After a true alarm the expected share of false ones
    among the mechanisms over the bar is still at most `alpha` at every look. One thing is named within a mechanism (which
    edge, its level or its noise, and since when): the most probable explanation; no probability is promised for it.

    An alarm stays on record, and the monitor goes on with the old network: once it has changed, fit it again to rows since
    the change and watch the new fit.

    Evidence counts rows at what they are worth: ``residuals_`` of the fit says by how much unequal noise overstates it. A fit
    without ``residuals_`` (``check_residuals=False``, an update) counts every row in full. Tails heavier than those of a
    t distribution with five degrees of freedom make more false alarms; ``Prepare(robust="auto")`` bounds far cells.

    Run at one site on its own rows, it says whether that site drifts away from the network of all; nothing leaves the site.

    Parameters
    ----------
    network
        A fitted estimator to which rows can be added (`OneShotDBN`, `Dynotears`), or a `Result`. Of a result without its
        sums (``keep_sums=True``) the sums that its network implies are used; levels are then not watched.
    alpha
        Largest probability of a false alarm over all looks.

    Attributes
    ----------
    looks
        One `Look` for every look.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=600, random_state=0)
    >>> first, later = ({name: [rows[0].iloc[part]] for name, rows in data.sites.items()}
    ...                 for part in (slice(0, 200), slice(199, 300)))
    >>> monitor = feddbn.Monitor(feddbn.OneShotDBN().fit(first))
    >>> look = monitor.look(later)
    >>> look.number, look.n_rows, look.alarms
    (1, 200, ())
    """

    def __init__(self, network: Any, alpha: float = 0.05) -> None:
        number(above=0, below=1).check("alpha", alpha)
        tally, dbn, inputs, residuals = _known(network)
        inflation = max(1.0, float(residuals.get("inflation", 1.0)))
        self._begin(float(alpha), tally, dbn, inputs, 1.0 / inflation)

    def _begin(self, alpha: float, tally: Tally, dbn: DBN, inputs: tuple[str, ...], worth: float) -> None:
        self.alpha = alpha
        self.looks: tuple[Look, ...] = ()
        self._tally, self._dbn, self._inputs, self._worth = tally, dbn, inputs, worth
        base, d = tally.whole, len(tally.variables)
        # Inputs only act on others: what they do by themselves is no change of the network.
        outputs = [j for j, name in enumerate(tally.variables) if name not in inputs]
        order = [j for j in topological_order(np.asarray(dbn.W) != 0) if j in outputs]
        level = [] if tally.treatment.center == "recording" else [-1]
        before = [*level, *range(d, base.q), *(j for j in range(d) if j not in outputs)]
        self._columns = np.array([*before, *order], dtype=np.intp)
        self._origin = base.mean
        self._scale = safe_roots(np.diag(base.scatter) / max(base.n, 1.0))
        gram = products(base, self._columns, self._origin, self._scale)
        # What follows exactly from columns before it has no mechanism of its own.
        kept = independent(gram / max(base.n, 1.0))
        self._first, self._columns = sum(k < len(before) for k in kept), self._columns[kept]
        self._base = self._part(0, tally)
        if self._base.n <= len(kept) + 1 or len(kept) == self._first:
            raise DataError(
                f"the network was learned from rows worth {self._base.n:.0f}, too few for regressions on {len(kept)} "
                "columns; watch a network of more rows or fewer variables or lags.",
                code="few-rows",
            )
        self._parts: list[_Part] = []
        self._settled = np.full((len(kept) - self._first, len(kept) + 1), -np.inf)
        self._found: list[FloatArray] = []
        # All that was summed, and the look by which rows or sums were counted; 0 is the fit.
        self._total, self._seen = tally, {self._digest(tally): 0}

    def _part(self, start: int, tally: Tally) -> _Part:
        moments, rank = as_of_rows(tally.whole), 0.0
        if tally.treatment.center == "recording":
            # Recordings that have lost their own levels have no common one, and fewer rows.
            moments, rank = replace(moments, mean=self._origin), tally.rank
        gram = products(moments, self._columns, self._origin, self._scale) * self._worth
        n = (moments.n - rank) * self._worth
        return _Part(start, gram, n, noise_sums(gram, n, self._first))

    def look(
        self,
        data: Any = None,
        *,
        federation: Federation | None = None,
        layout: Layout | None = None,
        **columns: Any,
    ) -> Look:
        """Look at new rows, and return what this look tells.

        Where a recording goes on, give its last `n_lags` rows again in front of the new ones (`UpdatedEstimator.update`).

        Parameters
        ----------
        data
            New rows, as `fit` takes them, of the same variables. None with ``federation=``.
        federation
            Where the new rows are, if not in `data`.
        layout, columns
            As in `fit`.
        """
        if (data is None) == (federation is None):
            raise ParameterError(
                f"look needs either data or {Given('federation')}: the rows that are new, or the sites that hold them."
            )
        if federation is None:
            read = replace(Layout.of(layout, columns, "look"), variables=self._tally.variables)
            sites = read_sites(data, layout=read)
            check_sites(sites, self._tally.n_lags)
            federation = in_process(sites)
        return self.look_at(run_program(new_moments_program(self._tally), federation))

    def look_at(self, tally: Tally) -> Look:
        """Look at sums of new rows that are there already, such as `Tally.minus` of two updates."""
        if (tally.variables, tally.n_lags) != (self._tally.variables, self._tally.n_lags):
            raise ParameterError(
                f"the sums have the variables {', '.join(tally.variables)} at {tally.n_lags} lags; the network has "
                f"{', '.join(self._tally.variables)} at {self._tally.n_lags}."
            )
        self._refuse_twice(tally)
        number = len(self.looks) + 1
        with one_thread():
            self._add(self._part(number, tally))
            by_start = self._by_start()
            starts = np.array([part.start for part in self._parts], dtype=np.float64)
            found = over_starts(by_start, starts, self._settled, number)
        found[by_start[0] == -np.inf] = -np.inf
        self._found.append(found)
        over, known = is_alarm(_mechanisms(found), self.alpha), {one.values["target"] for one in self.alarms}
        news = [c for c in np.flatnonzero(over).tolist() if self._name(c) not in known]
        alarms = [self._named(c, found[c], by_start[:, c]) for c in news]
        look = Look(number, round(tally.moments.n), tuple(alarms))
        self.looks, self._total = (*self.looks, look), self._total.plus(tally)
        self._seen |= {self._digest(one): number for one in (tally, self._total)}
        return look

    def look_at_update(self, newer: Tally) -> Look:
        """Look at the rows by which the sums of an update exceed those of the fit and of all looks so far.

        Whoever has the sums of two updates has their difference, so this asks no site and shows nothing that was not there.
        """
        self._refuse_twice(newer)
        if newer.n_parts <= self._tally.n_parts:
            raise DataError(
                "these sums come from a fit of their own, not from an update of the network.",
                code="no-update",
            )
        return self.look_at(newer.minus(self._total))

    def _refuse_twice(self, tally: Tally) -> None:
        seen = self._seen.get(self._digest(tally))
        if seen is not None:
            raise DataError(
                f"these rows were counted {f'in look {seen}' if seen else 'in the fit'}; leave them out, so that they do not "
                "count twice.",
                code="counted-before",
                look=seen,
            )

    def _digest(self, tally: Tally) -> str:
        """Hash of moments that are rounded, since the last bits differ between machines and orders of addition."""
        one = tally.moments
        parts = (
            one.scatter / np.outer(self._scale, self._scale) / one.n,
            (one.mean - self._origin) / self._scale,
            [one.n],
        )
        rounded = np.round(np.concatenate([np.ravel(part) for part in parts]), 6) + 0.0
        return hashlib.sha256(rounded.tobytes()).hexdigest()[:16]

    def _add(self, part: _Part) -> None:
        self._parts.append(part)
        if len(self._parts) > _MOST_PARTS:
            # The second start is followed no longer: it keeps what it has.
            log_e = self._by_start()[1]
            first, second, *rest = self._parts
            self._settled = np.logaddexp(self._settled, log_e - np.log(second.start * (second.start + 1.0)))
            both = (getattr(first, name) + getattr(second, name) for name in ("gram", "n", "noise"))
            self._parts = [_Part(first.start, *both), *rest]

    def _by_start(self) -> FloatArray:
        """(k, m, Q + 1) log e-values of a change since each start: of the weight of each column, then of the noise."""
        since, noise = (
            np.cumsum([getattr(part, name) for part in self._parts[::-1]], axis=0)[::-1]
            for name in ("gram", "noise")
        )
        n = self._base.n + sum(part.n for part in self._parts)
        weights = weight_evidence(self._base.gram + since[0], since, n, self._first)
        return np.concatenate(
            [weights, noise_evidence(self._base.noise + noise[0], noise)[:, :, None]], axis=2
        )

    def _name(self, c: int) -> str:
        return self._tally.variables[int(self._columns[self._first + c])]

    def _what(self, column: int) -> tuple[str, str | None, int | None]:
        """What a test is about: "edge" with its source and lag, "level" or "noise"."""
        if column == len(self._columns):
            return "noise", None, None
        m, d = int(self._columns[column]), len(self._tally.variables)
        return ("level", None, None) if m < 0 else ("edge", self._tally.variables[m % d], m // d)

    def _named(self, c: int, found: FloatArray, by_start: FloatArray) -> Finding:
        """What has most probably changed in a mechanism over the bar, and since when."""
        starts = np.array([part.start for part in self._parts], dtype=np.float64)
        column = int(np.argmax(found))
        s = int(np.argmax(by_start[:, column] - np.log(starts * (starts + 1.0))))
        evidence = float(np.exp(min(_mechanisms(found[None])[0], 700.0)))
        what, source, lag = self._what(column)
        before, after, error = self._sizes(c, column, s)
        code, target = f"{what}-changed", self._name(c)
        if what == "edge":
            stack = np.concatenate([np.asarray(self._dbn.W)[None], np.asarray(self._dbn.A)])
            m, d = int(self._columns[column]), len(self._tally.variables)
            is_gone = abs(after) < _WIDE * error and abs(after) < abs(before) / 2
            is_there = stack[m // d, m % d, self._columns[self._first + c]] != 0
            code = ("edge-gone" if is_gone else code) if is_there else "edge-new"
        values = {"source": source, "target": target, "lag": lag, "before": before, "after": after}
        values |= {"evidence": evidence, "since": self._parts[s].start}
        return Finding(code, "warning", values, about=(target,) if source is None else (source, target))

    def _sizes(self, c: int, column: int, s: int) -> tuple[float, float, float]:
        """A weight, level or noise deviation before and since a start in units of the data; its standard error since then."""
        target = self._first + c
        own = self._scale[self._columns[target]]
        if column == len(self._columns):
            sums = [
                np.sum([part.noise[:, c] for part in parts], axis=0)
                for parts in ([self._base, *self._parts[:s]], self._parts[s:])
            ]
            before, after = (float(own * np.exp(u / max(weight, 1.0) / 2)) for _, weight, u, _ in sums)
            return before, after, 0.0
        # Beside the columns before the target one is there once more, from a start on.
        since = np.sum([part.gram for part in self._parts[s:]], axis=0)
        whole = self._base.gram + np.sum([part.gram for part in self._parts], axis=0)
        index = np.array([*range(target), column, target])
        M = whole[np.ix_(index, index)]
        M[target] = M[:, target] = since[column, index]
        inverse, y = np.linalg.pinv(M[:-1, :-1], hermitian=True), M[:-1, -1]
        b = inverse @ y
        rows = self._base.n + sum(part.n for part in self._parts) - len(y)
        both = np.isin(np.arange(len(y)), [column, len(y) - 1]).astype(np.float64)
        error = np.sqrt(max(float(M[-1, -1] - b @ y), 0.0) / max(rows, 1.0) * float(both @ inverse @ both))
        if self._columns[column] < 0:
            # A level is that of the target where its causes have the means of the rows of the fit.
            level, factor = self._origin[self._columns[target]], own
        else:
            level, factor = 0.0, own / self._scale[self._columns[column]]
        return float(level + b[column] * factor), float(level + both @ b * factor), float(error * factor)

    @property
    def alarms(self) -> tuple[Finding, ...]:
        """All alarms so far, the first one first."""
        return tuple(alarm for look in self.looks for alarm in look.alarms)

    @property
    def bar(self) -> float:
        """The e-value of a mechanism that makes a first alarm: the number of mechanisms over `alpha`."""
        return len(self._settled) / self.alpha

    @property
    def evidence(self) -> pd.DataFrame:
        """DataFrame look, rows, what, source, target, lag, e_value: all evidence after every look.

        `what` is "edge" (a weight has changed), "level" or "noise". "mechanism" is the mean of these for one target, which
        decides on alarms.
        """
        rows: list[tuple[Any, ...]] = []
        for look, found in zip(self.looks, self._found, strict=True):
            whole = _mechanisms(found)
            for c, tests in enumerate(found):
                told: list[tuple[Any, ...]] = [("mechanism", None, None, whole[c])]
                told += [(*self._what(m), tests[m]) for m in np.flatnonzero(tests > -np.inf).tolist()]
                rows += [
                    (look.number, look.n_rows, what, source, self._name(c), lag, float(np.exp(min(e, 700.0))))
                    for what, source, lag, e in told
                ]
        return pd.DataFrame(rows, columns=list(EVIDENCE)).astype({"lag": "Int64"})

    def is_of(self, result: Result) -> bool:
        """Whether a result has, or implies, the sums of the fit, or those of the fit and some looks."""
        if result.dbn.variables != self._tally.variables:
            return False
        tally = _known(result)[0]
        return tally.n_lags == self._tally.n_lags and self._digest(tally) in self._seen

    def told(self) -> dict[str, Any]:
        """Return what people read, as plain values: alpha, bar, looks with their alarms, evidence of each mechanism."""
        looks = [{**vars(look), "alarms": [one.to_dict() for one in look.alarms]} for look in self.looks]
        table = self.evidence
        evidence = table[table["what"] == "mechanism"][["look", "target", "e_value"]]
        return dict(plain({"alpha": self.alpha, "bar": self.bar, "looks": looks, "evidence": evidence}))

    def save(self, path: str | Path) -> Path:
        """Write all that later looks need to a JSON file; a crash leaves the old file or the new one, never a half."""
        return write_json(plain(self.to_dict()), path)

    @classmethod
    def load(cls, path: str | Path) -> Monitor:
        """Return the monitor in a file."""
        return cls.from_dict(read_json(path), f"file {str(path)!r}")

    def __repr__(self) -> str:
        return f"Monitor({len(self._tally.variables)} variables, {len(self.looks)} looks, {len(self.alarms)} alarms)"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, from which `from_dict` goes on with the same bits."""
        parts = [
            {**vars(part), "gram": part.gram.tolist(), "noise": part.noise.tolist()} for part in self._parts
        ]
        looks = [
            {**vars(look), "alarms": [alarm.to_dict() for alarm in look.alarms], "log_e": _plain(found)}
            for look, found in zip(self.looks, self._found, strict=True)
        ]
        told = {"format": FORMAT, "version": VERSION, "alpha": self.alpha, "worth": self._worth}
        told |= {"sums": self._tally.to_dict(), "network": self._dbn.to_dict(), "inputs": list(self._inputs)}
        told |= {"total": self._total.to_dict(), "seen": dict(self._seen)}
        return told | {"settled": _plain(self._settled), "parts": parts, "looks": looks}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], where: str = "this dict") -> Monitor:
        """Inverse of `to_dict`; `where` names the source in error messages."""
        try:
            if (stored["format"], stored["version"]) != (FORMAT, VERSION):
                raise ValueError(f"format {stored['format']!r}, version {stored['version']!r}")
            self = cls.__new__(cls)
            tally = Tally.from_dict(stored["sums"], where)
            dbn, inputs = DBN.from_dict(stored["network"]), tuple(map(str, stored["inputs"]))
            self._begin(float(stored["alpha"]), tally, dbn, inputs, float(stored["worth"]))
            shapes = self._base.gram.shape, self._base.noise.shape
            for part in stored["parts"]:
                gram, noise = (
                    _array(part[name], shape) for name, shape in zip(("gram", "noise"), shapes, strict=True)
                )
                self._parts.append(_Part(int(part["start"]), gram, float(part["n"]), noise))
            self._settled = _array(stored["settled"], self._settled.shape)
            self._total = Tally.from_dict(stored["total"], where)
            self._seen = {str(digest): int(look) for digest, look in stored["seen"].items()}
            for look in stored["looks"]:
                alarms = tuple(map(Finding.from_dict, look["alarms"]))
                self.looks = (*self.looks, Look(int(look["number"]), int(look["n_rows"]), alarms))
                self._found.append(_array(look["log_e"], self._settled.shape))
        except (KeyError, TypeError, ValueError, AttributeError, InputError) as error:
            raise FileError(
                f"{where} holds no monitor that can be read ({error}); begin a new one with the fitted network."
            ) from None
        return self


def _known(network: Any) -> tuple[Tally, DBN, tuple[str, ...], Mapping[str, Any]]:
    """The sums of a fit, its network, its inputs, and what its residuals say."""
    if isinstance(network, Result):
        tally = _implied(network) if network.sums is None else Tally.from_dict(network.sums, "the result")
        inputs = network.parameters.get("prepare.exogenous")
        return tally, network.dbn, tuple(inputs or ()), network.diagnostics.get("residuals") or {}
    if not isinstance(network, UpdatedEstimator):
        raise ParameterError(
            f"network={type(network).__name__} does not learn from summed moments alone, which a monitor needs; use a fitted "
            "OneShotDBN or FDBNL, or a result with its sums.",
            code="cannot-update",
        )
    dbn, residuals = network.dbn_, getattr(network, "residuals_", None)
    if network._tally is None:
        raise ParameterError(f"network: {network._why_not}", code=network._why_not.code)
    inputs = tuple(network._tally.variables[j] for j in network._inputs)
    return network._tally, dbn, inputs, {} if residuals is None else vars(residuals)


def _implied(result: Result) -> Tally:
    """The sums that a network implies: those of its own covariance, for as many rows as it was learned from.

    New rows lose their own levels, since a network says nothing of those of one recording.
    """
    done, rows = result.diagnostics.get("treatment") or {}, rows_of_errors(result)
    own = done.get("gains", "none") != "none" or any(result.parameters.get(name) for name in _OF_CELLS)
    if rows is None or own:
        raise ParameterError(
            "the network has kept no sums, which a monitor compares new rows with, and does not imply them; fit it again and "
            "keep them (in Python keep_sums=True, on the command line --keep-sums).",
            code="no-sums",
        )
    covariance = lagged_covariance(result.dbn)
    moments = Moments(float(rows), np.zeros(len(covariance)), rows * covariance)
    treatment = Treatment(
        center="recording",
        degree=int(done.get("degree", 0)),
        periods=tuple(done.get("periods", ())),
        robust=done.get("robust", "none"),
    )
    return Tally(tuple(result.dbn.variables), result.dbn.n_lags, moments, treatment)


def _mechanisms(found: FloatArray) -> FloatArray:
    """(m,) log of the mean e-value over what may change of each target."""
    return np.asarray(np.logaddexp.reduce(found, axis=1) - np.log((found > -np.inf).sum(axis=1)))


def _plain(log_e: FloatArray) -> list[list[float | None]]:
    """Lists for JSON, which has no infinity."""
    return [[None if value == -np.inf else value for value in row] for row in log_e.tolist()]


def _array(stored: Any, shape: tuple[int, ...]) -> FloatArray:
    values = np.array(stored, dtype=np.float64)
    values = np.where(np.isnan(values), -np.inf, values)
    if values.shape != shape or np.isposinf(values).any():
        raise ValueError(f"{values.shape} numbers instead of {shape}")
    return values
