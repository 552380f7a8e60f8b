"""The pages of a site's owner."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from feddbn.console.gate import Keys
from feddbn.console.site_facts import SiteFacts, study_facts
from feddbn.console.web import Pages, field_number, fields_of, make_app, report_answer
from feddbn.errors import ParameterError
from feddbn.federation.protocol.study import Study
from feddbn.findings import Finding
from feddbn.runtime.settings import about_policy

_MENU = (
    ("/", "Overview"),
    ("/studies", "Studies"),
    ("/log", "What left"),
    ("/data", "Data check"),
    ("/results", "Results"),
)


def site_app(kit: Path, check: Callable[[Study], None], keys: Keys) -> Starlette:
    """Return the console of a site; `check` refuses a study that no site could take part in."""
    facts = SiteFacts(kit, check)
    name = facts.settings.name
    pages = Pages(keys, f"{name} – feddbn", f"Site {name}", _MENU)
    site = _SitePages(facts, pages)
    return make_app(
        pages,
        [
            Route("/", site.overview),
            Route("/studies", site.studies),
            Route("/studies", site.add, methods=["POST"]),
            Route("/studies/{digest}", site.study),
            Route("/studies/{digest}/page", site.page),
            Route("/studies/{digest}/approve", site.approve, methods=["POST"]),
            Route("/studies/{digest}/refuse", site.refuse, methods=["POST"]),
            Route("/studies/{digest}/revoke", site.revoke, methods=["POST"]),
            Route("/log", site.log),
            Route("/data", site.data),
            Route("/results", site.results),
            Route("/results/{run}/report", site.report),
        ],
    )


class _SitePages:
    """Requests to pages; every method is a route."""

    def __init__(self, facts: SiteFacts, pages: Pages) -> None:
        self._facts = facts
        self._pages = pages

    def overview(self, request: Request) -> Response:
        """Show what waits, what runs, the budget and what left."""
        facts = self._facts
        return self._pages.show(
            "site_overview.html",
            "/",
            waiting=facts.waiting(),
            running=facts.running(),
            valid=[approval for approval, state in facts.approvals() if state == "valid"],
            by_rule=facts.policy.approve_by_rule,
            budget=facts.budget(),
            left=facts.left(),
            damaged=facts.damaged(),
        )

    def studies(self, request: Request) -> Response:
        """List studies: waiting, approved, refused; and a form for one more."""
        facts = self._facts
        return self._pages.show(
            "site_studies.html",
            "/studies",
            waiting=facts.waiting(),
            approvals=facts.approvals(),
            refused=[one for one in facts.owner.offered.all() if one.refused],
            by_rule=facts.policy.approve_by_rule,
            policy=about_policy(facts.policy),
        )

    def add(self, request: Request) -> Response:
        """Take the text of a study file."""
        study = self._facts.add(fields_of(request).get("text", ""))
        return self._pages.go(f"/studies/{study.digest}")

    def study(self, request: Request) -> Response:
        """Show one study in plain words, with the buttons that fit it."""
        facts = self._facts
        offered = facts.offered(request.path_params["digest"])
        study = offered.study
        approval, state = next(
            (one for one in facts.approvals() if one[0].digest == study.digest), (None, "")
        )
        return self._pages.show(
            "site_study.html",
            "/studies",
            offered=offered,
            study=study,
            facts=study_facts(study, facts.settings, facts.policy),
            approval=approval,
            state=state,
            before=facts.before(study),
            text=json.dumps(json.loads(study.to_json()), indent=1, ensure_ascii=False),
            budget=facts.budget(),
            by_rule=facts.policy.approve_by_rule,
            is_named=facts.settings.name in study.sites,
        )

    def page(self, request: Request) -> Response:
        """Show the page that is signed, to print."""
        facts = self._facts
        study = facts.offered(request.path_params["digest"]).study
        return report_answer(study_facts(study, facts.settings, facts.policy).html())

    def approve(self, request: Request) -> Response:
        """Approve exactly the study that was shown."""
        fields = fields_of(request)
        days, runs = field_number(fields, "days", "Days"), field_number(fields, "runs", "Runs")
        if runs != round(runs):
            raise ParameterError(f"Runs: {runs:g} is not a whole number; type one such as 1.")
        epsilon = field_number(fields, "epsilon", "Epsilon") if fields.get("epsilon", "").strip() else None
        try:
            given = self._facts.approve(
                self._digest(request), days, round(runs), epsilon, fields.get("page", "")
            )
        except ParameterError as error:
            # The fields have the names of the command's options, without the dashes.
            words = re.sub(r"--(runs|days|epsilon)", lambda found: found[1].capitalize(), str(error))
            raise ParameterError(words, code=error.code) from None
        self._pages.tell(Finding("approval-given", "good", {"study": given.study, "expires": given.expires}))
        return self._pages.go("/")

    def refuse(self, request: Request) -> Response:
        """Put a study aside."""
        study = self._facts.offered(self._digest(request)).study
        self._facts.owner.refuse(study, fields_of(request).get("reason", ""))
        self._pages.tell(Finding("approval-refused", "good", {"study": study.name}))
        return self._pages.go("/")

    def revoke(self, request: Request) -> Response:
        """Take an approval back."""
        taken = self._facts.owner.revoke(self._digest(request), fields_of(request).get("reason", ""))
        self._pages.tell(Finding("approval-revoked", "good", {"study": taken.study}))
        return self._pages.go("/studies")

    @staticmethod
    def _digest(request: Request) -> str:
        """The whole digest: a beginning of one would do for a command, and could be another study here."""
        digest = str(request.path_params["digest"])
        if len(digest) != 64:
            raise ParameterError(f"{digest!r} is not the digest of a study.")
        return digest

    def log(self, request: Request) -> Response:
        """Show what left, run by run."""
        run = request.query_params.get("run", "")
        logs: list[dict[str, Any]] = []
        for one in self._facts.logs(run):
            lines = list(one.lines())
            noisy = any(line.epsilon != "-" for line in lines)
            logs.append({"title": one.title, "run": one.run, "lines": lines, "has_noise": noisy})
        return self._pages.show(
            "site_log.html", "/log", logs=logs, run=run, left=self._facts.left(), budget=self._facts.budget()
        )

    def data(self, request: Request) -> Response:
        """Check the site's own data, policy and state."""
        found = self._facts.findings()
        wrong = [finding for finding in found if finding.level == "error"]
        return self._pages.show("site_data.html", "/data", findings=found, wrong=wrong)

    def results(self, request: Request) -> Response:
        """List the results at this site, and whether each shared network is better here than the site's own."""
        return self._pages.show("site_results.html", "/results", runs=self._facts.results())

    def report(self, request: Request) -> Response:
        """Open the report."""
        return report_answer(self._facts.report(request.path_params["run"]))
