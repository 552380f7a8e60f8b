"""The pages of a lead; what was fetched lies in ``<out>/<run>``, as `feddbn study results` leaves it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from feddbn.console.gate import Keys
from feddbn.console.lead_facts import RunFacts, course_of, run_facts, site_facts
from feddbn.console.lead_watch import LeadWatch
from feddbn.console.web import Pages, make_app, report_answer
from feddbn.errors import FeddbnError, FileError, StateError
from feddbn.federation.protocol.messages import check_run_id
from feddbn.federation.protocol.study import Study
from feddbn.findings import Finding
from feddbn.runtime.engines.interface import Job, Session
from feddbn.runtime.server.results import export_result, read_outcome
from feddbn.runtime.store import run_directory

MOST_RUNS = 50


def lead_app(
    session: Session, watch: LeadWatch, out: Path, keys: Keys, clock: Callable[[], float] = time.time
) -> Starlette:
    """Return the console of a lead; `watch` looks through `session`, and results are fetched to ``out/<run>``."""
    who = Path(session.kit).resolve().name
    pages = Pages(keys, "lead", f"{who} – feddbn", f"Lead {who}", (("/", "Federation"),))
    lead = _LeadPages(session, watch, Path(out), pages, clock)
    return make_app(
        pages,
        [
            Route("/", lead.overview),
            Route("/runs/{run}", lead.run),
            Route("/runs/{run}/course", lead.course),
            Route("/runs/{run}/fetch", lead.fetch, methods=["POST"]),
            Route("/runs/{run}/stop", lead.stop, methods=["POST"]),
            Route("/runs/{run}/report", lead.report),
        ],
    )


class _LeadPages:
    """Requests to pages; every public method is a route."""

    def __init__(
        self, session: Session, watch: LeadWatch, out: Path, pages: Pages, clock: Callable[[], float]
    ) -> None:
        self._session = session
        self._watch = watch
        self._out = out
        self._pages = pages
        self._clock = clock

    def overview(self, request: Request) -> Response:
        """Show sites and runs."""
        sight, now = self._watch.look(), self._clock()
        newest = list({job.run: job for job in reversed(sight.jobs)}.values())[::-1]
        newest.sort(key=lambda job: job.submitted, reverse=True)
        runs = [self._facts(job) for job in newest[:MOST_RUNS]]
        named = [site for run in runs if run.study is not None for site in run.study.sites]
        sites = site_facts(sight, named, now)
        return self._pages.show(
            "lead_overview.html", "/", sight=sight, sites=sites, runs=runs, n_runs=len(newest)
        )

    def _facts(self, job: Job) -> RunFacts:
        return run_facts(self._watch.look(), job, self._study(job.run), self._outcome(job.run))

    def _study(self, run: str) -> Study | None:
        """Return the study that was sent under this name with this kit; None for a run of another lead."""
        try:
            return self._session.study_of(run)
        except (FeddbnError, OSError):
            return None

    def _place(self, run: str) -> Path:
        """Return where the files of a run are, or will be."""
        return run_directory(self._out, run, create=False)

    def _outcome(self, run: str) -> Mapping[str, Any] | None:
        """Return how a run ended, if that was fetched."""
        try:
            return read_outcome(self._place(run))
        except FileError:
            return None

    def _job(self, request: Request) -> Job:
        run = check_run_id(request.path_params["run"])
        job = self._watch.look().job_of(run)
        if job is None:
            raise HTTPException(404)
        return job

    def run(self, request: Request) -> Response:
        """Show one run, live."""
        job = self._job(request)
        place = self._place(job.run)
        return self._pages.show(
            "lead_run.html",
            "/",
            facts=self._facts(job),
            trouble=self._watch.look().trouble,
            place=place,
            outcome=self._outcome(job.run),
            has_report=(place / "dbn.json").exists(),
        )

    def course(self, request: Request) -> Response:
        """Return the curves of a run for our script."""
        job = self._job(request)
        points = self._watch.look().points.get(job.run, ())
        curves = course_of(points, self._place(job.run) if job.has_ended else None)
        return JSONResponse({"curves": curves, "ended": job.has_ended})

    def fetch(self, request: Request) -> Response:
        """Fetch the result of a run that has ended, as `feddbn study results` does."""
        run = self._job(request).run

        def fetched(session: Session) -> bool:
            job = session.job_of(run)
            if not job.has_ended:
                raise StateError(f"run {run!r} has not ended: {job.words}.", code="not-ended")
            place = session.fetch(job.job, run_directory(self._out, run))
            is_finished = bool(read_outcome(place)["state"] == "finished")
            if is_finished:
                export_result(place)
            return is_finished

        is_finished = self._watch.do(fetched)
        code = "run-fetched" if is_finished else "run-unfinished"
        self._pages.tell(Finding(code, "good" if is_finished else "warning", {"run": run}))
        return self._pages.go(f"/runs/{run}")

    def stop(self, request: Request) -> Response:
        """Stop a run that waits or goes on, as `feddbn study stop` does."""
        run = self._job(request).run

        def abort(session: Session) -> None:
            job = session.job_of(run)
            if job.has_ended:
                raise StateError(
                    f"run {run!r} has ended already, so there is nothing to stop: {job.words}.",
                    code="has-ended",
                )
            session.abort(job.job)

        self._watch.do(abort)
        self._pages.tell(Finding("run-aborted", "good", {"run": run}))
        return self._pages.go(f"/runs/{run}")

    def report(self, request: Request) -> Response:
        """Open the report; what draws it is imported now, since the first page does not need it."""
        from feddbn.report import render_report
        from feddbn.report.record import read_edges
        from feddbn.results.result import Result

        run = check_run_id(request.path_params["run"])
        place = self._place(run)
        if not (place / "dbn.json").exists():
            raise StateError(
                f"no network of run {run!r} was fetched; fetch its result first.", code="not-fetched"
            )
        stored = Result.load(place / "result.json").to_dict()
        edges = read_edges(place / "edges.csv") if (place / "edges.csv").exists() else None
        return report_answer(render_report(stored, edges=edges, audience="lead"))
