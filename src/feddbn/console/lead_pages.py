"""The pages of a lead: the federation, a run, a new study, two results side by side."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from feddbn.console import study_form
from feddbn.console.gate import Keys
from feddbn.console.lead_facts import RunFacts, course_of, result_numbers, run_facts, site_facts
from feddbn.console.lead_results import LeadResults
from feddbn.console.lead_watch import MOST_RUNS, LeadWatch
from feddbn.console.two_networks import TwoNetworks, compared
from feddbn.console.web import Pages, fields_of, make_app, report_answer
from feddbn.errors import FeddbnError, StateError
from feddbn.federation.protocol.messages import check_run_id
from feddbn.federation.protocol.study import Study, parse_study, study_from_json
from feddbn.findings import Finding
from feddbn.runtime.engines.interface import Job, Session
from feddbn.runtime.engines.planning import ask_sites, check_red, known_rows, last_round
from feddbn.runtime.server.plan import dry_round
from feddbn.words import told as sentence_for

_MENU = (("/", "Federation"), ("/write", "New study"), ("/compare", "Compare"))
MOST_DRAFTS = 20
"""So many texts that were checked are remembered until the console is closed."""


def lead_app(
    session: Session,
    watch: LeadWatch,
    results: LeadResults,
    check: Callable[[Study], None],
    keys: Keys,
    clock: Callable[[], float] = time.time,
) -> Starlette:
    """Return the console of a lead; `watch` looks through `session`, and `check` refuses what no site could take part in."""
    pages = Pages(keys, "lead", f"{session.lead} – feddbn", f"Lead {session.lead}", _MENU)
    lead = _LeadPages(session, watch, results, check, pages, clock)
    return make_app(
        pages,
        [
            Route("/", lead.overview),
            Route("/write", lead.write),
            Route("/write", lead.rewrite, methods=["POST"]),
            Route("/check", lead.check, methods=["POST"]),
            Route("/check/{key}", lead.checked),
            Route("/plan", lead.ask, methods=["POST"]),
            Route("/send", lead.send, methods=["POST"]),
            Route("/compare", lead.compare),
            Route("/runs/{run}", lead.run),
            Route("/runs/{run}/course", lead.course),
            Route("/runs/{run}/fetch", lead.fetch, methods=["POST"]),
            Route("/runs/{run}/stop", lead.stop, methods=["POST"]),
            Route("/runs/{run}/resume", lead.resume, methods=["POST"]),
            Route("/runs/{run}/report", lead.report),
        ],
    )


class _LeadPages:
    """Requests to pages; every public method is a route."""

    def __init__(
        self,
        session: Session,
        watch: LeadWatch,
        results: LeadResults,
        check: Callable[[Study], None],
        pages: Pages,
        clock: Callable[[], float],
    ) -> None:
        self._session = session
        self._watch = watch
        self._results = results
        self._check = check
        self._pages = pages
        self._clock = clock
        self._drafts: dict[str, str] = {}
        self._possible: dict[str, Study] = {}

    # The federation and its runs.

    def overview(self, request: Request) -> Response:
        """Show sites and runs."""
        sight, now = self._watch.look(), self._clock()
        runs = [self._facts(job) for job in sight.newest()]
        named = [site for run in runs if run.study is not None for site in run.study.sites]
        return self._pages.show(
            "lead_overview.html",
            "/",
            sight=sight,
            sites=site_facts(sight, named, now),
            connects=self._session.connects,
            runs=runs,
            most=MOST_RUNS,
        )

    def _facts(self, job: Job) -> RunFacts:
        sight, outcome = self._watch.look(), self._results.outcome(job)
        return run_facts(sight, job, self._study(job.run), outcome, self._session.connects)

    def _study(self, run: str) -> Study | None:
        """Return the study that was sent under this name with this kit; None for a run of another lead."""
        try:
            return self._session.study_of(run)
        except (FeddbnError, OSError):
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
        place = self._results.place(job.run)
        note = self._results.note(job)
        return self._pages.show(
            "lead_run.html",
            "/",
            facts=self._facts(job),
            trouble=self._watch.look().trouble,
            connects=self._session.connects,
            folder=self._session.folder_of(job.run),
            place=place,
            note=note,
            has_report=note == "" and (place / "dbn.json").exists(),
        )

    def course(self, request: Request) -> Response:
        """Return the curves of a run for our script."""
        job = self._job(request)
        points = self._watch.look().points.get(job.run, ())
        curves = course_of(points, self._results.place(job.run) if job.has_ended else None)
        return JSONResponse({"curves": curves, "ended": job.has_ended})

    def fetch(self, request: Request) -> Response:
        """Fetch the result of a run that has ended, as `feddbn study results` does."""
        run = self._job(request).run

        def fetched(session: Session) -> None:
            job = session.job_of(run)
            if not job.has_ended:
                raise StateError(f"run {run!r} has not ended: {job.words}.", code="not-ended")
            self._results.fetch(session, job)

        self._watch.do(fetched)
        self._pages.tell(Finding("run-fetched", "good", {"run": run}))
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

    def resume(self, request: Request) -> Response:
        """Go on with a run where it stopped, as `feddbn study resume` does; by files take the next step."""
        run = self._job(request).run
        self._begin(self._session.study_of(run), run)
        self._pages.tell(Finding("run-resumed", "good", {"run": run}))
        return self._pages.go(f"/runs/{run}")

    def _begin(self, study: Study, run: str) -> None:
        def begin(session: Session) -> None:
            self._refuse_twice(session, run)
            session.begin(study, run, told.append)

        told: list[str] = []
        self._watch.do(begin)
        self._results.forget(run)
        for sentence in told:
            self._pages.tell(Finding("text", "warning", {"text": sentence}))

    @staticmethod
    def _refuse_twice(session: Session, run: str) -> None:
        if session.connects and any(job.run == run and not job.has_ended for job in session.jobs()):
            raise StateError(f"run {run!r} is already running.", code="goes-on")

    def report(self, request: Request) -> Response:
        """Open the report; what draws it is imported now, since the first page does not need it."""
        from feddbn.report import render_report
        from feddbn.report.record import read_edges
        from feddbn.results.result import Result

        run = check_run_id(request.path_params["run"])
        place = self._results.place(run)
        if not (place / "dbn.json").exists():
            raise StateError(
                f"no network of run {run!r} was fetched; fetch its result first.", code="not-fetched"
            )
        stored = Result.load(place / "result.json").to_dict()
        edges = read_edges(place / "edges.csv") if (place / "edges.csv").exists() else None
        return report_answer(render_report(stored, edges=edges, audience="lead"))

    # A new study: fields make a text, and the text is checked and sent.

    def write(self, request: Request) -> Response:
        """Show the form of a new study, empty or as an earlier run has it."""
        run = request.query_params.get("from", "")
        fields = study_form.blank(self._session.lead, self._watch.look().sites)
        if run:
            fields |= study_form.fields_of(self._session.study_of(check_run_id(run)))
        return self._form(fields)

    def rewrite(self, request: Request) -> Response:
        """Show the form with the fields of a text, or what is wrong with the text."""
        text = _text_in(request)
        try:
            return self._form(study_form.fields_of(parse_study(text, "the text")))
        except FeddbnError:
            return self._draft(text)

    def _form(self, fields: Mapping[str, str]) -> Response:
        usual, others = study_form.methods()
        chosen = fields.get("sites", "").splitlines()
        sites = sorted({*self._watch.look().sites, *chosen})
        return self._pages.show(
            "lead_write.html",
            "/write",
            fields=fields,
            usual=usual,
            others=others,
            about=study_form.ABOUT,
            sites=[(site, site in chosen) for site in sites],
        )

    def check(self, request: Request) -> Response:
        """Take the text that the fields make, or that was typed, and show what is wrong with it."""
        return self._draft(_text_in(request) or study_form.text_of(fields_of(request)))

    def _draft(self, text: str) -> Response:
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._drafts.pop(key, None)
        self._drafts[key] = text
        for old in [*self._drafts][:-MOST_DRAFTS]:
            del self._drafts[old]
        return self._pages.go(f"/check/{key}")

    def checked(self, request: Request) -> Response:
        """Show a text, what is wrong with it, or its plan, and the button that sends it."""
        key = request.path_params["key"]
        if key not in self._drafts:
            raise HTTPException(404)
        text = self._drafts[key]
        shown = {"key": key, "text": text, "study": None, "rows": [], "red": False, "asked": None}
        try:
            study = self._read(text)
        except FeddbnError as error:
            wrong = Finding("text", "error", {"text": sentence_for(error.parts, "lead")})
            return self._pages.show("lead_check.html", "/write", **shown, verdict=wrong)
        sight = self._watch.look()
        rows = known_rows(self._session, study, sight.trouble, sight.jobs)
        asked = sight.job_of(last_round(self._session, study))
        shown |= {
            "study": study,
            "rows": rows,
            "red": any(row.colour == "red" for row in rows),
            "asked": None if asked is None else self._facts(asked),
            "run": self._free_name(study.name),
            "can_ask": dry_round(study) is not None,
        }
        return self._pages.show(
            "lead_check.html", "/write", **shown, verdict=Finding("study-possible", "good")
        )

    def _free_name(self, name: str) -> str:
        """Return a name for a run that was not used with this kit."""
        used = {*self._session.studies_sent(), *(job.run for job in self._watch.look().jobs)}
        return next(one for k in itertools.count(1) if (one := name if k == 1 else f"{name}-{k}") not in used)

    def ask(self, request: Request) -> Response:
        """Ask the sites for a check of their data, as `feddbn study plan` does; nobody waits for it."""
        text = _text_in(request)
        study = self._read(text)
        told: list[str] = []
        run = last_round(self._session, study)

        def asked(session: Session) -> str:
            self._refuse_twice(session, run)
            return ask_sites(session, study, again=True, tell=told.append, stay=False)

        why = self._watch.do(asked)
        if run:
            self._results.forget(run)
        for sentence in (*told, *((why,) if why else ())):
            self._pages.tell(Finding("text", "warning", {"text": sentence}))
        return self._draft(text)

    def _read(self, text: str) -> Study:
        """Return the study of a text; what was checked once is not tried out again."""
        if text not in self._possible:
            study = parse_study(text, "the text")
            self._check(study)
            self._possible = {**dict([*self._possible.items()][-MOST_DRAFTS:]), text: study}
        return self._possible[text]

    def send(self, request: Request) -> Response:
        """Send exactly the text that was shown, as `feddbn study submit` does; red lines need a reason."""
        fields = fields_of(request)
        study = self._read(_text_in(request))
        if despite := fields.get("despite", "").strip():
            study = study_from_json(study.model_copy(update={"despite": despite}).to_json())
        run = check_run_id(fields.get("run", "").strip())
        self._session.claim(study, run)
        check_red(study, known_rows(self._session, study, jobs=self._watch.look().jobs))
        self._begin(study, run)
        self._pages.tell(Finding("run-sent", "good", {"run": run}))
        return self._pages.go(f"/runs/{run}")

    # Two results.

    def compare(self, request: Request) -> Response:
        """Show two networks that were fetched side by side."""
        from feddbn.results.result import Result

        runs = [job.run for job in self._watch.look().newest() if self._has_network(job)]
        chosen = [request.query_params.get(name, "") for name in ("first", "second")]
        beside: TwoNetworks | None = None
        numbers: list[tuple[str, str, str]] = []
        if all(run in runs for run in chosen):
            found = [Result.load(self._results.place(run) / "result.json") for run in chosen]
            beside = compared(found[0].dbn, found[1].dbn)
            first, second = (
                result_numbers(result, self._study(run)) for result, run in zip(found, chosen, strict=True)
            )
            numbers = [(name, first[name], second[name]) for name in first]
        return self._pages.show(
            "lead_compare.html", "/compare", runs=runs, chosen=chosen, beside=beside, numbers=numbers
        )

    def _has_network(self, job: Job) -> bool:
        return self._results.note(job) == "" and (self._results.place(job.run) / "dbn.json").exists()


def _text_in(request: Request) -> str:
    """The text of a study in a form; browsers end lines in their own way."""
    return fields_of(request).get("text", "").replace("\r\n", "\n")
