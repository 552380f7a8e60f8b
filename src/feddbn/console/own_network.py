"""A site's own network beside the federation's: from the run's own file, or learned here from the site's rows alone.

Methods and reports are imported when they are needed: the console's first page does not wait for them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from feddbn.console.two_networks import TwoNetworks, compared
from feddbn.errors import FeddbnError, StateError
from feddbn.federation.programs.alone import verdict_of
from feddbn.federation.protocol.study import Study
from feddbn.findings import Finding, Level
from feddbn.model.dbn import DBN
from feddbn.privacy.audit import AuditEntry
from feddbn.runtime.settings import SiteSettings
from feddbn.runtime.site.open_site import read_data
from feddbn.runtime.store import FileStore, iso_time, run_directory

if TYPE_CHECKING:
    from feddbn.results.result import Result


@dataclass(frozen=True)
class RunHere:
    """A run whose result is at this site."""

    run: str
    ended: str
    has_own: bool
    study: str = ""


def verdict_here(settings: SiteSettings, run: str) -> Finding | None:
    """What this site found when it compared the two networks of a run; None if the run did not ask, or its record is gone."""
    try:
        record = FileStore(settings.state, settings.name).load(run)
    except FeddbnError:
        return None
    found = None if record is None else verdict_of(record.current.state)
    if found is None:
        return None
    level: Level = "warning" if found.sign < 0 else "good" if found.is_told else "unknown"
    return Finding("alone-here", level, found.to_dict())


class OwnNetworks:
    """The results at one site; what was learned here is remembered until the console is closed."""

    def __init__(self) -> None:
        self._learned: dict[str, tuple[DBN, tuple[Finding, ...]]] = {}

    def runs(self, settings: SiteSettings, studies: Mapping[str, str]) -> list[RunHere]:
        """Return the runs with a result at this site, the newest first; `studies` says of which study a run is."""
        found = [
            RunHere(
                path.parent.name,
                iso_time(path.stat().st_mtime),
                path.with_name("personal.feddbn").exists(),
                studies.get(path.parent.name, ""),
            )
            for path in settings.state.glob("*/result.feddbn")
        ]
        return sorted(found, key=lambda run: run.ended, reverse=True)

    def report(
        self, settings: SiteSettings, run: str, study: Study | None = None, sent: Sequence[AuditEntry] = ()
    ) -> str:
        """Return the report on a run as HTML: the site's own network where it has one, otherwise the federation's.

        `study` tells what protected the sums, `sent` what left this site.
        """
        from feddbn.report import render_report

        place = _place(settings, run)
        own = place / "personal.feddbn"
        stored = _result(own if own.exists() else place / "result.feddbn").to_dict()
        if study is not None:
            stored["privacy"] = study.privacy.model_dump(mode="json")
        return render_report(stored, audit=[asdict(entry) for entry in sent] or None, audience="owner")

    def learn(self, settings: SiteSettings, run: str) -> None:
        """Learn a network from this site's rows alone, with the variables and lags of the run's; nothing leaves."""
        from feddbn.methods.oneshot import OneShotDBN

        shared = _result(_place(settings, run) / "result.feddbn").dbn
        data = read_data(settings, shared.variables)
        with warnings.catch_warnings():
            # They are shown on the page.
            warnings.simplefilter("ignore", UserWarning)
            fitted = OneShotDBN(n_lags=shared.n_lags).fit({settings.name: data})
        self._learned[run] = (fitted.dbn_, tuple(one for one in fitted.findings_ if one.level != "good"))

    def compare(self, settings: SiteSettings, run: str) -> TwoNetworks:
        """Return the federation's network and the site's own, edge by edge."""
        place = _place(settings, run)
        try:
            shared = _result(place / "result.feddbn").dbn
            own = place / "personal.feddbn"
            if own.exists():
                return replace(compared(shared, _result(own).dbn), by_study=True)
            if run not in self._learned:
                return TwoNetworks(Finding("networks-not-compared", "note", {"why": "none"}))
            learned, remarks = self._learned[run]
            return replace(compared(shared, learned), remarks=remarks)
        except FeddbnError as error:
            return TwoNetworks(
                Finding("networks-not-compared", "error", {"why": error.code, "sentence": str(error)})
            )


def _result(path: Path) -> Result:
    from feddbn.results.result import Result

    return Result.load(path)


def _place(settings: SiteSettings, run: str) -> Path:
    place = run_directory(settings.state, run, create=False)
    if not (place / "result.feddbn").exists():
        raise StateError(f"no result of run {run!r} is at this site.", code="no-result")
    return place
