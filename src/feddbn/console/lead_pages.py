"""The pages of a lead."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from feddbn.console.gate import Keys
from feddbn.console.lead_facts import LeadResults, RunFacts, course_of, run_facts, site_facts, study_of
from feddbn.console.lead_watch import LeadWatch
from feddbn.console.web import Pages, json_answer, make_app, report_answer
from feddbn.errors import StateError
from feddbn.federation.protocol.messages import check_run_id
from feddbn.runtime.engines.interface import Job, Session

__all__ = ["lead_app"]

MOST_RUNS = 50


def lead_app(
    session: Session, watch: LeadWatch, out: Path, keys: Keys, clock: Callable[[], float] = time.time
) -> Starlette:
    """Return the console of a lead; `watch` looks through `session`, and results are fetched to ``out/<run>``."""
    who = Path(session.kit).resolve().name
    pages = Pages(keys, f"{who} – feddbn", f"Lead {who}", (("/", "Federation"),))
    lead = _LeadPages(session, watch, LeadResults(out), pages, clock)
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
    """Requests to pages; every method is a route."""

    def __init__(
        self,
        session: Session,
        watch: LeadWatch,
        results: LeadResults,
        pages: Pages,
        clock: Callable[[], float],
    ) -> None:
        self._session = session
        self._watch = watch
        self._results = results
        self._pages = pages
        self._clock = clock

    def overview(self, request: Request) -> Response:
        """Show sites and runs."""
        sight, now = self._watch.look(), self._clock()
        newest = list({job.run: job for job in reversed(sight.jobs)}.values())[::-1]
        newest.sort(key=lambda job: job.submitted, reverse=True)
        runs = [self._facts(job) for job in newest[:MOST_RUNS]]
        named = [site for run in runs if run.study is not None for site in run.study.sites]
        return self._pages.show(
            "lead_overview.html",
            "/",
            sight=sight,
            sites=site_facts(sight, named, now),
            runs=runs,
            n_runs=len(newest),
        )

    def _facts(self, job: Job) -> RunFacts:
        study, outcome = study_of(self._session, job.run), self._results.outcome(job.run)
        return run_facts(self._watch.look(), job, study, outcome, self._clock())

    def _job(self, request: Request) -> Job:
        run = check_run_id(request.path_params["run"])
        job = self._watch.look().job_of(run)
        if job is None:
            raise HTTPException(404)
        return job

    def run(self, request: Request) -> Response:
        """Show one run, live."""
        job = self._job(request)
        return self._pages.show(
            "lead_run.html",
            "/",
            facts=self._facts(job),
            trouble=self._watch.look().trouble,
            place=self._results.place(job.run),
            outcome=self._results.outcome(job.run),
            has_report=self._results.has_report(job.run),
        )

    def course(self, request: Request) -> Response:
        """Return the curves of a run for our script."""
        job = self._job(request)
        points = self._watch.look().points.get(job.run, ())
        curves = course_of(points, self._results.place(job.run) if job.has_ended else None)
        return json_answer({"curves": curves, "ended": job.has_ended})

    def fetch(self, request: Request) -> Response:
        """Fetch the result of a run that has ended."""
        run = self._job(request).run
        state = self._watch.do(lambda session: self._results.fetch(session, run))
        if state == "finished":
            self._pages.say(f"The result of {run} was fetched.")
        else:
            self._pages.say(f"Run {run} has not finished; what it said is below.", "caution")
        return self._pages.go(f"/runs/{run}")

    def stop(self, request: Request) -> Response:
        """Stop a run that waits or goes on, as `feddbn stop` does."""
        run = self._job(request).run

        def abort(session: Session) -> None:
            job = session.job_of(run)
            if job.has_ended:
                raise StateError(f"run {run!r} has ended already, so there is nothing to stop: {job.words}.")
            session.abort(job.job)

        self._watch.do(abort)
        self._pages.say(f"Run {run} was stopped; `feddbn resume {run}` goes on with it.")
        return self._pages.go(f"/runs/{run}")

    def report(self, request: Request) -> Response:
        """Open the report."""
        return report_answer(self._results.report(check_run_id(request.path_params["run"])))
