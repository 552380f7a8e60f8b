"""``feddbn study plan | step | status``: what the person who leads a study runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn import words as in_words
from feddbn.cli.options import Json
from feddbn.cli.printed import print_held_out
from feddbn.cli.terminal import bar, print_json, print_table, remark, say
from feddbn.errors import ParameterError, StateError, reading
from feddbn.federation.protocol.study import (
    Study,
    check_name,
    check_sites,
    parse_study,
    study_from_json,
)
from feddbn.settings import flat_names

if TYPE_CHECKING:
    from feddbn.runtime.files.lead import Lead

__all__ = ["check_study", "open_study", "plan", "read_study", "step", "study_app"]

MAGIC = b"FEDDBN"
"""How files of numbers begin; a study is text."""


study_app = typer.Typer(
    help="Send a study to the sites and take their answers, file by file.", no_args_is_help=True
)
Kit = Annotated[
    Path,
    typer.Option("--kit", envvar="FEDDBN_KIT", help="The lead's kit (the folder with keys and settings)."),
]


def read_study(path: Path) -> Study:
    """Return the study in a file, its method's parameters checked."""
    study = open_study(path)
    check_study(study)
    return study


def open_study(path: Path) -> Study:
    """Return the study in a file; refused is what can be seen without the methods, whose imports take seconds."""
    with reading(f"the study file {path}"):
        content = path.read_bytes()
        if content.startswith(MAGIC):
            # A question has its study with it.
            from feddbn.runtime.files.signed import read_signed

            study = study_from_json(read_signed(content, str(path), "question").study)
        else:
            study = parse_study(content.decode(), str(path))
    check_name(study.method)
    check_sites(study)
    return study


def check_study(study: Study) -> None:
    """Refuse a study that no site could take part in: an unknown method, impossible parameters, noise or sites."""
    from feddbn.core.designs.features import feature_map_names
    from feddbn.runtime.server import conduct

    conduct.check_study(study)
    features = study.parameters.get("features", "linear")
    if isinstance(features, str) and features not in ("auto", *feature_map_names()):
        remark(
            f"note: features = {features!r} is not known on this machine, so the study was not tested here; the server "
            "and every site must have registered it."
        )
    else:
        conduct.rehearse(study)


@study_app.command()
def plan(
    study: Annotated[Path, typer.Argument(help="The study file (TOML).")],
    after: Annotated[
        str,
        typer.Option(
            help='A finished run of a study with goal = "check" of the same variables and sites.',
            show_default=False,
        ),
    ] = "",
    kit: Annotated[
        Path | None,
        typer.Option("--kit", envvar="FEDDBN_KIT", help="The lead's kit, which has that run."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what is known of a study before it is sent: what leaves, what owners have to allow, what may go wrong.

    With --after, also what a check of the data means for this study, and how large an effect must be to be found. Exit code
    1 if the study would be wrong.
    """
    from feddbn.analysis.plan import plan_findings
    from feddbn.cli.data import print_findings
    from feddbn.runtime.files.lead import Lead

    what, outcome = read_study(study), None
    if after:
        if kit is None:
            raise ParameterError("--after needs --kit, the lead's kit.")
        outcome = {"run": after, **Lead(kit).outcome(after)}
    found = plan_findings(what, outcome)
    if as_json:
        print_json({"study": what.name, "digest": what.digest, "findings": [one.to_dict() for one in found]})
    else:
        print_findings(found, "lead")
    if any(one.level == "error" for one in found):
        raise typer.Exit(1)


@study_app.command()
def step(
    folder: Annotated[
        Path,
        typer.Argument(
            help="The run's folder; its name is the name of the run. A new folder must hold study.toml."
        ),
    ],
    kit: Kit,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait for answers in the folder until the run has ended."),
    ] = False,
    accept_refusals: Annotated[
        bool,
        typer.Option(
            "--accept-refusals",
            help="If a site refuses a question, continue without the question, or stop if that is impossible.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for the result; by default `result` in the run's folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Take one step of a study by files: read the answers in the folder, write the next questions.

    You may repeat it at any time. After a crash it continues where it was. Sites answer with `feddbn site answer`.
    """
    from feddbn.federation.protocol.messages import is_run_id
    from feddbn.runtime.files.lead import Lead

    lead, run_id = Lead(kit), folder.resolve().name
    if not is_run_id(run_id):
        raise ParameterError(
            f"the name of the folder is the name of the run, and {run_id!r} is not allowed: use 1 to 64 of a-z, 0-9, '.', "
            "'_' and '-', beginning with a-z or 0-9.",
            code="bad-run-id",
        )
    known = lead.folder_of(run_id)
    is_new = known is None
    if known is not None and not folder.exists():
        # The name of a run is enough where its folder is known.
        folder = known
    path = folder / "study.toml"
    if is_new and not path.is_file():
        raise StateError(
            f"{folder} holds no study.toml, and this kit has begun no run {run_id!r}; put the study there.",
            code="no-study",
        )
    plan = open_study(path) if path.is_file() else lead.study_of(run_id)
    lead.check(plan, run_id)
    check_study(plan)
    if is_new:
        _tell_plan(plan)
    lead.remember(plan, run_id, folder)
    try:
        total = flat_names(plan.parameters).get("max_rounds")
        with bar(run_id, total if isinstance(total, int) else None) as update:
            watch = (lambda values: update(**_how_it_stands(values))) if wait else None
            stepped = lead.step(plan, run_id, watch, accept_refusals)
    except KeyboardInterrupt:
        remark(f"run {run_id} waits; `feddbn study step {lead.typed(run_id)}` goes on with it.")
        raise
    for note in stepped.notes:
        remark(f"note: {note}")
    if stepped.state == "finished":
        _fetch(lead, run_id, out or folder / "result", as_json)
        if not as_json and not wait:
            for line in lead.told(run_id, stepped):
                remark(line)
    elif as_json:
        keys = ("run", "state", "sentence", "awaited", "until")
        said = {key: stepped.outcome.get(key) for key in keys}
        say(json.dumps({**said, "questions": {site: str(at) for site, at in stepped.questions.items()}}))
    else:
        for line in lead.told(run_id, stepped):
            say(line)


@study_app.command()
def status(
    kit: Kit, run: Annotated[str, typer.Argument(help="Only this run.")] = "", as_json: Json = False
) -> None:
    """Show all runs that were begun with the lead's kit, and how they stand since their last step."""
    from feddbn.runtime.files.lead import Lead
    from feddbn.runtime.server.results import alarms_in, run_state, sites_that_refuse

    lead = Lead(kit)
    studies = lead.studies()
    runs = [lead.progress(one) for one in studies if run in ("", one)]
    updates = [one for one in runs if one.get("state") == "finished" and studies[one["run"]].update_of]
    alarms = [alarm for one in updates[:1] for alarm in alarms_in(one)]
    told = [in_words.say(run_state(one), "lead") for one in runs]
    if as_json:
        rows = [{**one, "words": words} for one, words in zip(runs, told, strict=True)]
        say(json.dumps({"runs": rows, "alarms": [one.to_dict() for one in alarms]}, default=str))
        return
    lines = [
        (one["run"], words, str(one["sums"]), ", ".join(one["present"]))
        for one, words in zip(runs, told, strict=True)
    ]
    print_table(("run", "status", "sums", "sites present"), lines, n_text=4)
    for refusal in (one for values in runs for one in sites_that_refuse(values)):
        say(in_words.say(refusal, "lead"))
    for alarm in alarms:
        say(f"{updates[0]['run']}: {in_words.say(alarm, 'lead')}")


def _tell_plan(study: Study) -> None:
    """Say what is known of a study that is sent."""
    from feddbn.analysis.plan import plan_findings

    for one in plan_findings(study):
        remark(f"note: {in_words.say(one, 'lead')}")
    if study.goal == "select":
        remark(
            "note: every candidate is fitted once for each block; `max_rounds` in a site's policy limits the rounds of all "
            "these fits together."
        )


def _fetch(lead: Lead, run_id: str, out: Path, as_json: bool) -> None:
    from feddbn.runtime.server.results import alarms_in, export_result, read_outcome

    directory = lead.fetch(run_id, out)
    outcome = read_outcome(directory)
    export_result(directory)
    if as_json:
        say(json.dumps({"run": run_id, "out": str(directory), "summary": outcome.get("summary", {})}))
    else:
        say(f"run {run_id} has finished; its result is in {directory}.")
        for one in outcome.get("absent") or ():
            say(str(one["words"]))
        for alarm in alarms_in(outcome):
            say(in_words.full_sentence(in_words.say(alarm, "lead")))
        summary = outcome.get("summary", {})
        print_held_out(summary)
        if "findings" in summary:
            from feddbn.cli.data import findings_of, print_findings

            found = findings_of(summary["findings"], f"the result of run {run_id!r}")
            print_findings(found, "lead")


def _how_it_stands(values: dict[str, Any]) -> dict[str, Any]:
    """Round, h, residuals and the sites present, as the study's program tells them."""
    note = " ".join(f"{key}={value:.3g}" for key, value in (values.get("note") or {}).items())
    from feddbn.runtime.server.results import run_state

    words = in_words.say(run_state(values), "lead")
    return {"completed": values.get("sums", 0), "note": f"{words} {note}".rstrip()}
