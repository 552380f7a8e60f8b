"""Templates, routes and errors of the owner's console."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from feddbn._version import __version__
from feddbn.console.gate import FORM, REPORT_POLICY, Keys
from feddbn.errors import FeddbnError, ParameterError
from feddbn.findings import Finding
from feddbn.shown import with_code
from feddbn.words import card, say, told
from feddbn.words.studies import day, when

EVERY_MS = 3000
"""How often an open page looks for news."""
_CSS, _SCRIPT = "text/css; charset=utf-8", "text/javascript; charset=utf-8"
_STATIC = {
    # Colours, tables and verdicts look as in a report.
    "report.css": ("feddbn.report", "templates", _CSS),
    "console.css": ("feddbn.console", "static", _CSS),
    "console.js": ("feddbn.console", "static", _SCRIPT),
    "icon.svg": ("feddbn.console", "static", "image/svg+xml"),
}
"""Name -> package, folder and kind of a file that pages load."""


def _begun(sentence: str) -> str:
    """A sentence with a capital letter and a full stop, by itself on a page; an address stays as it is."""
    first = sentence[:1] if "@" in sentence.split(" ", 1)[0] else sentence[:1].upper()
    return f"{first}{sentence[1:]}{'' if sentence.endswith(('.', '!')) or not sentence else '.'}"


def printable(value: Any) -> Any:
    """Names come from others: letters that turn text round or hide in it are shown as what they are."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join(
        letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in value
    )


def _coded(sentence: str) -> Markup:
    return with_code(printable(sentence))


@dataclass
class Pages:
    """What every page of one console knows, and what it has to say about the last button.

    `menu` is (path, words) of the pages; `who` is shown above them.
    """

    keys: Keys
    title: str
    who: str
    menu: Sequence[tuple[str, str]]
    _said: list[Finding] = field(default_factory=list)
    _templates: Environment = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._templates = Environment(
            loader=PackageLoader("feddbn.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=printable,
        )
        filters: dict[str, Callable[..., Any]] = {
            "day": day,
            "when": when,
            "level": lambda finding: "unknown" if finding.level == "note" else finding.level,
            "code": _coded,
            "say": lambda finding: _coded(_begun(say(finding, "owner"))),
            "card": lambda finding: card(finding, "owner"),
            "detail": lambda finding: _coded(_begun(card(finding, "owner").detail)),
        }
        self._templates.filters.update(filters)

    def show(self, template: str, here: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Return a page; `here` is the path of its place in the menu."""
        said, self._said = self._said, []
        shared = {
            "base": self.keys.base,
            "form_key": self.keys.form,
            "title": self.title,
            "who": self.who,
            "menu": self.menu,
            "here": here,
            "said": said,
            "version": __version__,
            "every_ms": EVERY_MS,
        }
        return HTMLResponse(self._templates.get_template(template).render(**shared, **values), status)

    def tell(self, finding: Finding) -> None:
        """Have the next page say this."""
        self._said = [*self._said[-4:], finding]

    def go(self, path: str) -> RedirectResponse:
        """Send the browser to a page, after a button."""
        return RedirectResponse(f"{self.keys.base}{path}", 303)


def fields_of(request: Request) -> Mapping[str, str]:
    """Return the fields of a form that the gate has let through."""
    found: Mapping[str, str] = request.scope[FORM]
    return found


def field_number(fields: Mapping[str, str], name: str, words: str) -> float:
    """Return a number that a person typed; `words` is the label of the field."""
    typed = fields.get(name, "").strip()
    try:
        value = float(typed)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ParameterError(f"{words}: {typed!r} is not a number; type one such as 1.")
    return value


def report_answer(text: str) -> HTMLResponse:
    """Return a report, which has its script inside, in a sandbox."""
    return HTMLResponse(text, headers={"content-security-policy": REPORT_POLICY})


def make_app(pages: Pages, routes: Sequence[BaseRoute]) -> Starlette:
    """Return the app behind a gate: these pages, our own static files, and errors as sentences."""

    def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            raise HTTPException(404)
        package, folder, kind = _STATIC[name]
        return Response((files(package) / folder / name).read_bytes(), headers={"content-type": kind})

    def sentence(request: Request, error: Exception) -> Response:
        said = told(error.parts, "owner") if isinstance(error, FeddbnError) else str(error)
        code = error.code if isinstance(error, FeddbnError) else ""
        return pages.show("error.html", "", 400, heading="That cannot be done", sentence=said, code=code)

    def missing(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        text = "This page does not exist."
        return pages.show("error.html", "", status, heading="Not here", sentence=text, code="no-page")

    def unexpected(request: Request, error: Exception) -> Response:
        text = f"Unexpected {type(error).__name__}; see the terminal in which the console runs."
        return pages.show(
            "error.html", "", 500, heading="Something went wrong", sentence=text, code="unexpected"
        )

    return Starlette(
        routes=[*routes, Route("/static/{name}", static)],
        exception_handlers={FeddbnError: sentence, HTTPException: missing, Exception: unexpected},
    )
