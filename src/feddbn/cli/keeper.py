"""``feddbn keeper answer | show``: what one of two keepers does and reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from feddbn.cli.options import AnswerFile, Json, QuestionFile
from feddbn.cli.terminal import print_table, say

__all__ = ["keeper_app"]

keeper_app = typer.Typer(help="Open sums over sites as one of two keepers.", no_args_is_help=True)
Kit = Annotated[Path, typer.Option("--kit", envvar="FEDDBN_KIT", help="The keeper's kit.")]


@keeper_app.command()
def answer(
    question: QuestionFile,
    kit: Kit,
    out: AnswerFile = None,
    as_json: Json = False,
) -> None:
    """Answer a question file: store the sites' parts, check their proofs, or give a share of a sum.

    The same question again gives the same answer. If this keeper refuses, the answer says why.
    """
    from feddbn.cli.site import answer_file
    from feddbn.runtime.engines.files.site import FileKeeper

    answer_file(FileKeeper(kit), question, out, as_json)


@keeper_app.command()
def show(kit: Kit, as_json: Json = False) -> None:
    """Check a keeper's settings and keys, and list the sums that it has helped to open."""
    from feddbn.runtime.keeper import open_keeper

    keeper = open_keeper(kit)
    opened = keeper.openings
    if as_json:
        say(json.dumps({"keeper": keeper.name, "opened": opened}))
        return
    if not opened:
        say(f"{keeper.name} has opened no sum.")
        return
    rows = [
        (one["study"], one["run"], str(one["seq"]), str(len(one["tasks"])), str(len(one["sites"])))
        for one in opened
    ]
    print_table(("study", "run", "sum", "questions", "sites"), rows, f"Opened by {keeper.name}", n_text=2)
