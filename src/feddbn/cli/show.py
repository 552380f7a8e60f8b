"""``feddbn show FILE``: what a file of ours is and holds, in plain words."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feddbn.cli.options import Json
from feddbn.cli.terminal import print_table, remark, say
from feddbn.errors import FileError, reading
from feddbn.words import card

if TYPE_CHECKING:
    from feddbn.findings import Finding
    from feddbn.runtime.files.signed import SignedFile
    from feddbn.runtime.settings import SiteSettings

__all__ = ["show"]

_MAGIC = b"FEDDBN"


def show(
    file: Annotated[
        Path,
        typer.Argument(
            help="A question, an answer, a study, a site's settings or policy, a result, or the outcome of a run."
        ),
    ],
    kit: Annotated[
        Path | None,
        typer.Option(
            "--kit",
            envvar="FEDDBN_KIT",
            help="The kit of a site or of the lead; with it the signature is checked and the site's rows are counted.",
            show_default=False,
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            "--page",
            metavar="FILE.html",
            help="For a study or a question: also write the page that the owner of a site signs; needs --kit.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain a feddbn file: what a question asks, what an answer holds, who signed it."""
    from feddbn.runtime.files.signed import is_signed_file, read_plain

    content = read_plain(file)
    if page is not None:
        _write_page(file, kit, page)
    if is_signed_file(content):
        _print(_signed(content, str(file), kit), as_json)
    elif content.startswith(_MAGIC):
        _binary(content, str(file), as_json)
    elif file.suffix == ".toml":
        _print(_settings(content, file, kit), as_json)
    elif file.suffix == ".json":
        _json(file, as_json)
    else:
        raise FileError(
            f"{file} is not a feddbn file; this command shows questions, answers, studies, policies, settings and results.",
            code="no-file",
        )


def _write_page(file: Path, kit: Path | None, page: Path) -> None:
    """Write a study's page for the owner of a site."""
    from feddbn.cli.site import facts_of
    from feddbn.cli.study import open_study
    from feddbn.console.site_facts import study_facts
    from feddbn.errors import ParameterError

    if kit is None:
        raise ParameterError(
            "--page needs --kit, the kit of the site whose owner signs.", code="page-needs-kit"
        )
    facts = facts_of(kit)
    text = study_facts(facts.possible(open_study(file)), facts.settings, facts.policy).html()
    page.write_text(text, encoding="utf-8")
    remark(f"{page} is the page that the owner of {facts.settings.name} signs; printing it approves nothing.")


def _signed(content: bytes, source: str, kit: Path | None) -> list[Finding]:
    from feddbn.federation.protocol.study import study_from_json
    from feddbn.runtime.files.about import about_file
    from feddbn.runtime.files.signed import read_signed
    from feddbn.runtime.settings import load_programs
    from feddbn.runtime.site.page import about_study

    # What tasks are about is known with their programs.
    load_programs(("feddbn.federation.programs",))
    found = read_signed(content, source)
    settings = None if kit is None else _checked(found, source, kit)
    told = about_file(found, is_checked=kit is not None)
    if found.direction == "question":
        told += about_study(study_from_json(found.study), settings)
    return told


def _checked(file: SignedFile, source: str, kit: Path) -> SiteSettings | None:
    """Check a signature with the keys of a kit; return the settings of the site whose kit it is."""
    from feddbn.runtime.files.kit import MARK, FilesKit, open_kit
    from feddbn.runtime.files.site import FileSite
    from feddbn.runtime.settings import read_site_settings
    from feddbn.runtime.site.kit_files import SITE_SETTINGS

    is_site = (kit / SITE_SETTINGS).exists() and (kit / MARK).exists()
    opened: FilesKit = open_kit(kit, "site" if is_site else "lead")
    if file.direction == "question":
        file.check_signature(opened.lead_key, source, f"the lead {opened.settings.lead!r}")
    else:
        if file.site not in opened.keys:
            raise FileError(
                f"{source} is from {file.site!r}, and this kit does not have its key.", code="other-site"
            )
        file.check_signature(opened.keys[file.site], source, f"the site {file.site!r}")
    if not is_site or file.site != opened.name:
        return None
    if file.direction == "question":
        FileSite(kit).check_study(file, source)
    return read_site_settings(kit / SITE_SETTINGS)


def _settings(content: bytes, path: Path, kit: Path | None) -> list[Finding]:
    """Tell a study, a policy or a site's settings apart by what only they have."""
    from feddbn.findings import Finding
    from feddbn.privacy.policy import policy_from_toml
    from feddbn.runtime.settings import about_policy, read_site_settings
    from feddbn.runtime.site.check import check_settings
    from feddbn.runtime.site.page import about_study

    with reading(f"the file {path}", "TOML"):
        text = content.decode()
        values = tomllib.loads(text)
    if {"method", "variables", "sites"} <= values.keys():
        from feddbn.cli.study import read_study
        from feddbn.runtime.site.kit_files import SITE_SETTINGS

        place = None if kit is None else kit / SITE_SETTINGS
        return about_study(
            read_study(path), None if place is None or not place.exists() else read_site_settings(place)
        )
    if {"name", "data", "state"} <= values.keys():
        return check_settings(path)
    if {"lead_key", "role"} <= values.keys():
        shown = {"site": values.get("name"), "lead": values.get("lead"), "key": str(values["lead_key"])[:12]}
        return [Finding("files-kit", "note", shown)]
    if values and all(isinstance(one, str) and re.fullmatch("[0-9a-f]{64}", one) for one in values.values()):
        return [Finding("peers-listed", "note", about=tuple(values))]
    return [about_policy(policy_from_toml(text))]


def _binary(content: bytes, source: str, as_json: bool) -> None:
    """Show a study's result as the server wrote it."""
    from feddbn.errors import ProtocolError
    from feddbn.federation.protocol.encoding import decode
    from feddbn.federation.protocol.study import StudyResult
    from feddbn.results.result import Result

    try:
        kind = decode(content)[0].get("type")
    except ProtocolError as error:
        raise FileError(f"{source} is damaged or not complete: {error}", code="damaged") from None
    if kind != "study-result":
        raise FileError(
            f"{source} is an internal feddbn file ({kind}) that cannot be shown.", code="no-words"
        )
    result = StudyResult.from_bytes(content)
    values = result.summary.get("result")
    if as_json or not values:
        shapes = {name: list(array.shape) for name, array in result.arrays.items()}
        say(json.dumps({"summary": dict(result.summary), "arrays": shapes}, default=str))
        return
    from feddbn.cli.printed import print_result

    print_result(Result.from_dict(values))


def _json(path: Path, as_json: bool) -> None:
    """Show a result, the outcome of a run, or a table of findings."""
    from feddbn.cli.printed import print_result
    from feddbn.results.result import Result
    from feddbn.runtime.server.results import run_state
    from feddbn.words import say as words

    with reading(f"the file {path}", "JSON"):
        values = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(values, dict) and {"run", "state", "study"} <= values.keys():
        if as_json:
            say(json.dumps(values))
            return
        say(
            f"run {values['run']} of the study {values['study'].get('name')}: {words(run_state(values), 'lead')}"
        )
        return
    result = Result.load(path)
    if as_json:
        say(json.dumps({"file": "result", "method": result.method, "n_edges": len(result.edges)}))
        return
    print_result(result)


def _print(found: list[Finding], as_json: bool) -> None:
    if as_json:
        say(
            json.dumps(
                [{**one.to_dict(), "words": str(card(one, "owner").detail)} for one in found], default=str
            )
        )
        return
    print_table(
        ("what", "it says"),
        [(said.question, said.detail or said.answer) for said in (card(one, "owner") for one in found)],
        n_text=2,
    )
    if any(one.code == "file-signed" and not one.values["checked"] for one in found):
        remark("note: the signature was not checked; give --kit.")
