"""The ``feddbn`` command.

Rules of the file
-----------------
Only typer is imported here. A command's module is imported when the command runs, so ``feddbn --help`` does
not wait for numpy. An error raised on purpose becomes one sentence and exit code 2; Ctrl-C becomes 130;
anything else is a bug and becomes one sentence and exit code 1. ``--debug``, anywhere on the line, shows the
traceback instead.
"""

from __future__ import annotations

import errno
import json
import re
import warnings
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from itertools import pairwise
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from feddbn.cli.manual import EXIT_CODES, attach
from feddbn.cli.options import LINE
from feddbn.cli.terminal import complain, printable, remark, say
from feddbn.errors import (
    FeddbnError,
    Given,
    NotEnoughSites,
    PrivacyError,
    SiteRefused,
    missing_extra,
)
from feddbn.words import told

__all__ = ["COMMANDS", "app", "main"]

_LEARN, _DEPLOY = "Learn and use", "Federations across machines"


@dataclass(frozen=True)
class Entry:
    """Where a command is, and its line in ``feddbn --help``."""

    module: str
    attribute: str
    help: str
    panel: str

    def outline(self, name: str) -> TyperCommand:
        """Return a stand-in that only knows its help."""
        return TyperCommand(name, help=self.help, rich_help_panel=self.panel)

    def load(self, name: str) -> Any:
        """Return the real command."""
        found = getattr(import_module(f"feddbn.cli.{self.module}"), self.attribute)
        if isinstance(found, typer.Typer):
            return attach(typer.main.get_group(found), name)
        single = typer.Typer(add_completion=False)
        single.command(name)(found)
        return attach(typer.main.get_command(single), name)


COMMANDS = {
    "demo": Entry("data", "demo", "Simulate ten sites, learn from them, and show what was found.", _LEARN),
    "simulate": Entry("data", "simulate", "Write the data of a simulated federation and its truth.", _LEARN),
    "check": Entry("data", "check", "Check data before a fit, and say how to correct them.", _LEARN),
    "power": Entry("learn", "power", "Say which effects a study of some size can find.", _LEARN),
    "fit": Entry("learn", "fit", "Learn a network from the data of several sites.", _LEARN),
    "update": Entry("learn", "update", "Add new rows to a result that has kept its sums.", _LEARN),
    "monitor": Entry("monitor", "monitor", "Say when new rows no longer follow a network.", _LEARN),
    "compare": Entry("learn", "compare", "Learn with several methods and compare them.", _LEARN),
    "score": Entry("learn", "score", "Score a result against the truth.", _LEARN),
    "select": Entry("learn", "select", "Choose penalties and lags without knowing the truth.", _LEARN),
    "confidence": Entry("learn", "confidence", "Estimate how certain each edge is.", _LEARN),
    "report": Entry("use", "report", "Write a result as one HTML page.", _LEARN),
    "plot": Entry("use", "plot", "Draw a result as a figure.", _LEARN),
    "forecast": Entry("use", "forecast", "Forecast the time steps after a recording.", _LEARN),
    "effects": Entry("use", "effects", "Show how a change of one variable affects others.", _LEARN),
    "export": Entry("use", "export", "Write a network for other programs.", _LEARN),
    "federation": Entry("federation", "federation_app", "Set up a federation of sites.", _DEPLOY),
    "start": Entry("federation", "start", "Answer what comes into a site's shared folder.", _DEPLOY),
    "console": Entry("federation", "console", "Approve studies in a browser.", _DEPLOY),
    "site": Entry("site", "site_app", "Approve studies at a site, and see what left it.", _DEPLOY),
    "study": Entry("study", "study_app", "Send a study to its sites by files, step by step.", _DEPLOY),
    "show": Entry("show", "show", "Explain what a feddbn file contains.", _DEPLOY),
}


class CommandGroup(TyperGroup):
    """Commands that are imported when they run, and errors that are sentences."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # click suggests near names itself; typer would say it twice.
        self.suggest_commands = False
        for name, entry in COMMANDS.items():
            self.commands[name] = entry.outline(name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Accept ``--debug`` anywhere before a bare ``--``."""
        end = args.index("--") if "--" in args else len(args)
        first = ["--debug"] if "--debug" in args[:end] else []
        ctx.meta[LINE] = line = [*(a for a in args[:end] if a != "--debug"), *args[end:]]
        try:
            return super().parse_args(ctx, [*first, *line])
        except Exception as error:
            # What stands before a command's name is read here, the rest in `invoke`.
            if _is_usage_error(error) and not first:
                _fail(ctx, _usage_sentence(error), "usage")
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Import the command that was asked for."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else COMMANDS[name].load(name), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; see the rules of the file."""
        if ctx.params.get("debug"):
            return super().invoke(ctx)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("default", UserWarning)
                warnings.showwarning = lambda message, *_, **__: remark(f"note: {message}")
                return super().invoke(ctx)
        except KeyboardInterrupt:
            _fail(ctx, "interrupted.", "interrupted", 130)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            place = f"{error.filename!r} " if error.filename else "a file "
            _fail(ctx, f"{place}cannot be read or written: {error.strerror or error}.", "file")
        except Exception as error:
            if isinstance(error, FeddbnError):
                exit_code = 1 if isinstance(error, NotEnoughSites | PrivacyError | SiteRefused) else 2
                _fail(ctx, _sentence(error, ctx.meta[LINE]), error.code, exit_code, type(error).__name__)
            if _is_usage_error(error):
                _fail(ctx, _usage_sentence(error), "usage")
            if isinstance(error, typer.Abort) or hasattr(error, "exit_code"):
                raise
            extra = missing_extra(error)
            if extra is not None:
                _fail(ctx, str(extra), "missing-extra")
            said = f"unexpected {type(error).__name__}: {error}; run again with --debug and report it."
            _fail(ctx, said, "unexpected", 70, type(error).__name__)


def _fail(ctx: Any, sentence: str, code: str, exit_code: int = 2, kind: str = "") -> NoReturn:
    """End a command with one sentence on standard error and, where the line has --json, the same as JSON on the other."""
    if "--json" in ctx.meta[LINE]:
        typer.echo(json.dumps({"error": {"code": code, "kind": kind, "sentence": printable(sentence)}}))
    complain(sentence)
    raise typer.Exit(exit_code) from None


def _sentence(error: FeddbnError, line: list[str]) -> str:
    """The sentence of an error; an argument that is wrong is written as it was typed, others as they would be."""
    wrong = error.values.get("argument")
    parts = [
        _typed(one, line) if isinstance(one, Given) and one.name == wrong else one for one in error.parts
    ]
    return told(parts, "cli")


def _typed(given: Given, line: list[str]) -> str:
    """An argument as a line has it; where it is not on the line, as Python has it."""
    command: Any = COMMANDS[line[0]].load(line[0]) if line and line[0] in COMMANDS else None
    for word in line[1:]:
        command = getattr(command, "commands", {}).get(word, command)
    names = {option: one.name for one in getattr(command, "params", ()) for option in one.opts}
    # Of an option that is given twice the last counts.
    for word, after in reversed(list(pairwise([*line, ""]))):
        option, is_one, _ = word.partition("=")
        key = after.partition("=")[0]
        if option == "-p" and (key == given.name or key.endswith(f".{given.name}")):
            return f"-p {after}"
        if names.get(option) in (given.name, given.name.removeprefix("n_")):
            return word if is_one else f"{word} {after}"
    return str(given)


def _is_usage_error(error: Exception) -> bool:
    """Whether the line could not be understood; a bare group that shows its help is no error."""
    return hasattr(error, "format_message") and type(error).__name__ != "NoArgsIsHelpError"


def _usage_sentence(error: Any) -> str:
    """Made of what the error carries, since releases of typer word the same in several ways."""
    param, near = getattr(error, "param", None), getattr(error, "possibilities", None) or ()
    text = " ".join(str(error.message).split()).removeprefix("Value error, ").rstrip(".")
    unknown = re.fullmatch(r"No such command '(.+)'", text)
    if unknown:
        meant = "' or '".join(get_close_matches(unknown[1], list(error.ctx.command.commands), 2))
        text += f". Did you mean '{meant}'?" if meant else ""
    if hasattr(error, "option_name"):
        text = f"No such option '{error.option_name}'"
        meant = "' or '".join(near)
        text += f". Did you mean '{meant}'?" if near else ""
    elif param is not None:
        is_argument = param.param_type_name == "argument"
        name = f"'{param.name.upper() if is_argument else param.opts[0]}'"
        is_missing = type(error).__name__ == "MissingParameter"
        text = (
            f"Missing {param.param_type_name} {name}" if is_missing else f"Invalid value for {name}: {text}"
        )
    path = error.ctx.command_path if getattr(error, "ctx", None) is not None else "feddbn"
    return f"{text} See {path} --help." if text.endswith("?") else f"{text}; see {path} --help."


def _show_version(value: bool) -> None:
    if value:
        from feddbn._version import __version__

        say(f"feddbn {__version__}")
        raise typer.Exit


app = typer.Typer(cls=CommandGroup, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback(
    epilog="Start with: feddbn demo, or feddbn federation try\n\n"
    "Every command has --help with examples; feddbn --install-completion completes names on Tab.\n\n"
    "Exit codes: " + "; ".join(f"{code}: {meaning}" for code, meaning in EXIT_CODES.items()) + "."
)
def _feddbn(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Learn dynamic Bayesian networks from time series that may not leave their owners."""


def main() -> None:
    """Run the command line."""
    app(prog_name="feddbn")
