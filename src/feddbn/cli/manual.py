"""What ``--help`` says after the options: examples that can be typed, exit codes, and where to read more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["EXIT_CODES", "PAGES", "attach", "commands_below"]

EXIT_CODES = {
    0: "done",
    1: "something was found or refused: an error in the data, a change, a site that says no, a log that was edited",
    2: "the command line, a file or the data cannot be used",
    70: "a bug in feddbn",
    130: "interrupted",
}
_DOCS = "https://github.com/feddbn/feddbn/blob/main/docs/"


@dataclass(frozen=True)
class Page:
    """The end of one command's help.

    Attributes
    ----------
    more
        The page of the documentation, with the place in it.
    examples
        Lines as they are typed; words after # explain.
    """

    more: str
    examples: tuple[str, ...]

    @property
    def text(self) -> str:
        """The epilog. Old releases of typer show the lines of a paragraph as one."""
        ends = "; ".join(f"{code}: {meaning}" for code, meaning in EXIT_CODES.items())
        shown = "\n".join(["Examples", *(f"  $ {line}" for line in self.examples)])
        paragraphs = [shown, f"Exit codes: {ends}.", f"Read more: {_DOCS}{self.more}"]
        # A square bracket would be read as markup.
        return "\n\n".join(paragraphs).replace("[", r"\[")


def attach(command: Any, path: str) -> Any:
    """Return the command with its page, and those below it with theirs."""
    for name, below in commands_below(command, path):
        if name in PAGES:
            below.epilog = PAGES[name].text
    return command


def commands_below(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield path and command, for the command itself and for all below it."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands_below(below, f"{path} {name}")


def _read(text: str) -> dict[str, Page]:
    """Command -> the end of its help; see `_TEXT`."""
    pages: dict[str, Page] = {}
    name = ""
    for line in text.strip().splitlines():
        before, _, after = line.strip().partition(": " if not line.startswith("  $ ") else "$ ")
        if not line.startswith("  "):
            name = before
            pages[name] = Page(after, ())
        else:
            pages[name] = replace(pages[name], examples=(*pages[name].examples, after))
    return pages


# A command and where to read more; lines as they are typed.
_TEXT = r"""
demo: quickstart.md
  $ feddbn demo
  $ feddbn demo --out demo --seed 3 --json
simulate: simulating.md
  $ feddbn simulate -o data
  $ feddbn simulate -o data -d 5 --n-sites 4 --n-samples 400
  $ feddbn simulate -o corrupt --corruption offsets --corruption missing=0.3
  $ feddbn simulate -o mixed --kinds continuous,binary,count
check: preparing-data.md
  $ feddbn check data                       # one file per site
  $ feddbn check table.csv --site hospital --series patient --time hour
fit: choosing.md
  $ feddbn fit data -o result.json          # one CSV file per site
  $ feddbn fit table.csv --site hospital --time hour --n-lags 2
  $ feddbn fit data --method fdbnl --lambda-w 0.05 --lambda-a 0.05
  $ feddbn fit data --forbid '*,age,0' -p rounds.max_rounds=500
update: quickstart.md#a-month-later
  $ feddbn fit data --keep-sums -o result.json
  $ feddbn update result.json new-data -o newer.json
monitor: changing.md#does-a-network-still-hold
  $ feddbn monitor result.json march.csv april.csv   # a look at each file
  $ feddbn monitor result.json june.csv --plot evidence.png
  $ feddbn monitor result.json               # the looks so far
  $ feddbn monitor result-of-an-update-study
compare: choosing.md
  $ feddbn compare data --truth data/truth.json
  $ feddbn compare data --method oneshot --method fdbnl
score: quickstart.md
  $ feddbn score data/truth.json result.json
select: choosing.md
  $ feddbn select data --method fdbnl
  $ feddbn select data --method fdbnl --grid lambda_w=0.1,0.05
power: deployment.md#what-can-a-study-find
  $ feddbn power --rows 1200 --sites 6 --recordings 30 --missing 0.1
  $ feddbn power --rows 1200 --fdr 0.1 --pilot result.json --effect 0.25
confidence: edge-confidence.md
  $ feddbn confidence data -o edges.csv
  $ feddbn confidence data -o edges.csv --replicates 200 --jobs 4
report: quickstart.md
  $ feddbn report result.json
  $ feddbn report result.json --edges edges.csv -o page.html
plot: gallery.md
  $ feddbn plot result.json graph -o graph.pdf
  $ feddbn plot result.json responses --shock x0 -o responses.png
forecast: quickstart.md
  $ feddbn forecast result.json data/site-0.csv --steps 5
  $ feddbn forecast result.json data/site-0.csv --do x2=1   # hold x2 at 1
effects: quickstart.md
  $ feddbn effects result.json x0            # on all others
  $ feddbn effects result.json x0 x3
export: schema.md#other-forms
  $ feddbn export result.json -o network.graphml
  $ feddbn export result.json -o edges.csv
  $ feddbn export result.json -o arrays.npz --format tigramite
study: deployment.md#4-run-a-study
  $ feddbn study step sepsis --kit lead@example.org --wait
study plan: deployment.md#4-run-a-study
  $ feddbn study plan study.toml
  $ feddbn study plan study.toml --after look --kit lead@example.org
study status: deployment.md#4-run-a-study
  $ feddbn study status --kit lead@example.org
  $ feddbn study status first-run --kit lead@example.org --json
study step: files.md
  $ feddbn study step sepsis --kit lead@example.org   # sepsis/study.toml
  $ feddbn study step sepsis --kit lead@example.org --wait
site: deployment.md#3-prepare-each-site
  $ feddbn site check --kit north
  $ feddbn site approve study.toml --kit north
site check: deployment.md#3-prepare-each-site
  $ feddbn site check --kit north
  $ feddbn site check --kit north --study study.toml
site studies: deployment.md#4-run-a-study
  $ feddbn site studies --kit north
  $ feddbn site studies --kit north --only waiting --json
site approve: deployment.md#4-run-a-study
  $ feddbn site approve study.toml --kit north
  $ feddbn site approve study.toml --kit north --runs 3 --days 90 --yes
site answer: files.md
  $ feddbn site answer sepsis-north-001-question.feddbn --kit north
  $ feddbn site answer sepsis-north-001-question.feddbn --kit north -o out
site refuse: deployment.md#4-run-a-study
  $ feddbn site refuse sepsis --kit north
site log: deployment.md#what-leaves-a-site
  $ feddbn site log --kit north
  $ feddbn site log --kit north --run first-run --json
  $ feddbn site log --kit north --out logs   # as JSON lines
site verify: deployment.md#logs-that-convince-a-second-person
  $ feddbn site verify --kit north
  $ feddbn site verify --kit north --last 5f2c...
  $ feddbn site verify north/state --peers north/peers.toml
federation: deployment.md
  $ feddbn federation try                    # all of it on this machine
  $ feddbn federation init federation --site a --site b --site c
federation init: deployment.md
  $ feddbn federation init federation --site a --site b --site c
  $ feddbn federation init fed --site a --lead me@example.org
federation add: deployment.md
  $ feddbn federation add more --site east --kit lead@example.org
site admit: deployment.md
  $ feddbn site admit east 41f0... --kit north
federation try: deployment.md
  $ feddbn federation try                    # opens the report, deletes all
  $ feddbn federation try --no-open --keep kept
start: files.md
  $ feddbn start --kit north
console: console.md
  $ feddbn console --kit north
show: files.md#what-is-in-a-file
  $ feddbn show sepsis-north-001-question.feddbn --kit north
  $ feddbn show study.toml
  $ feddbn show result.json
"""
PAGES = _read(_TEXT)
"""Command -> the end of its help."""
