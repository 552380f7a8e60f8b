"""What a site allows, written by the people who own its data; everything else is refused with a sentence.

A policy is a TOML file, for example::

    tasks = ["survey.*", "gram.rows", "residuals.checks"]
    methods = ["OneShotDBN"]
    min_sites = 5
    max_epsilon = 4.0
    delta = 1e-5
    unit = "recording"

A line that is missing takes the strict default below; a line that is not known is an error, not a wish.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from feddbn._version import __version__
from feddbn.core.designs.cells import CELL_MAPS
from feddbn.errors import FileError, SiteRefused, reading
from feddbn.method_table import STUDY_METHODS, policy_names

Unit = Literal["recording", "row"]
T = TypeVar("T", bound=BaseModel)

# Files that people write: policies, settings, studies.


class Table(BaseModel):
    """A table of such a file; what it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def read_table(
    kind: type[T], text: str, source: str, change: Callable[[dict[str, Any]], object] = lambda values: None
) -> T:
    """Return the table in a TOML text, which `change` may touch first; a wrong entry is refused in one sentence."""
    with reading(source, "TOML"):
        values = tomllib.loads(text)
    change(values)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise FileError(f"{source}: {wrong_entry(error)}.") from None


def wrong_entry(error: ValidationError) -> str:
    """Return the first wrong entry of a file and what is wrong with it, as the end of a sentence."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    known = {
        "extra_forbidden": "is not a known key; remove it or correct its name",
        "string_pattern_mismatch": "use 1 to 40 lower-case letters, digits and '-', a letter or digit first",
    }
    if first["type"] == "extra_forbidden" and where == "version":
        return (
            f"version = {first['input']}: files of feddbn {__version__} have no `version`. If this one was written for a "
            "later version of feddbn, upgrade feddbn; otherwise remove the line"
        )
    what = known.get(first["type"], first["msg"]).removeprefix("Value error, ").rstrip(".")
    return f"{where}: {what[0].lower()}{what[1:]}" if where else what


TRANSFORMATIONS = ("means", "trends", "cycles", "robust", "scales", "fill", "abstain", *CELL_MAPS)
"""What may be done to rows before they are summed: taking off means, trends and cycles of recordings, bounding cells that
are far out, bringing sites to one scale, filling in empty cells, answering with zeros where a site does not fit, and what is
made of each cell by itself.
"""


ALWAYS_ALLOWED = ("counts.variables", "counts.blocks")
"""Tasks that no policy needs to list: without them a study cannot tell what it must leave out."""
USUAL_TASKS = (
    "survey.first",
    "gram.pairs",
    "gram.rows",
    "gram.diagonal",
    "gram.parts",
    "counts.norms",
    "residuals.checks",
    "loss.alone",
    "step.personal",
    "step.finish",
)
"""Kinds of questions that a site answers unless its owner says otherwise.

Others are allowed by name. Among them are "agree": who sends the sums to compare with decides who stays out of the next
one; and "step.fdbnl", the rounds of the paper's schedule: their sums are not linear in a site's moments, and so a server
that deviates may tell sites apart by them.
"""
DEFAULT_MIN_SITES = 3
"""Sites that a sum must have, so that two who work together cannot read the third."""


def default_threshold(n_sites: int) -> int:
    """Shares needed to open a secret: more than two thirds, which stands up to a third colluding with the
    server.
    """
    return 2 * n_sites // 3 + 1


def lowest_threshold(n_sites: int, min_sites: int) -> int:
    """Lowest threshold a site accepts: with two thirds or fewer, a third of the sites and the server could tell two
    groups different stories.
    """
    return max(default_threshold(n_sites), min_sites)


def usual_threshold(n_sites: int, min_sites: int) -> int:
    """Return the threshold of a roster of `n_sites` unless another is asked for: the lowest that sites accept."""
    return min(lowest_threshold(n_sites, min_sites), n_sites)


class SitePolicy(Table):
    """A site's rules.

    Attributes
    ----------
    tasks
        Questions this site answers: kinds of them, or forms of a kind.
    methods
        Methods a study may use here, by class or by the name that studies give them.
    features
        Feature maps of the variables that may be summed; "linear" is the variables themselves.
    variables
        Variables that a study may name; empty: all that the site offers.
    transformations
        What may be done to rows before they are summed, out of `TRANSFORMATIONS`.
    min_sites
        Fewest sites in any sum this site joins.
    min_rows
        Fewest rows of this site in any sum without noise, and fewest with an empty cell if these are filled in.
    min_rows_per_parameter
        Fewest rows of this site for each column of a lagged row, or for each projection of a nonlinear map.
    max_share
        Largest share of this site in all rows, where a study or a question says how many these are.
    require_masking
        Whether answers leave only under secure aggregation.
    max_rounds
        Most answers to one task name in one run.
    max_epsilon
        Total budget of differential privacy, or None if noise is not demanded. With a budget, an answer
        without noise counts as infinite and is refused.
    delta, unit
        What epsilon refers to.
    approve_by_rule
        Whether these rules alone decide; otherwise the site answers only studies that its owner approved one by one.
    """

    # What the methods below ask for as they are; "loss.rows" and other tasks of some settings have to be allowed by
    # name.
    tasks: tuple[str, ...] = USUAL_TASKS
    methods: tuple[str, ...] = tuple(method.cls for method in STUDY_METHODS)
    features: tuple[str, ...] = ("linear",)
    variables: tuple[str, ...] = ()
    transformations: tuple[str, ...] = TRANSFORMATIONS
    min_sites: int = Field(default=3, ge=2)
    min_rows: int = Field(default=10, ge=1)
    min_rows_per_parameter: float = Field(default=3.0, ge=0)
    max_share: float = Field(default=0.9, gt=0, le=1)
    require_masking: bool = True
    max_rounds: int = Field(default=300, ge=1)
    max_epsilon: float | None = Field(default=None, gt=0)
    delta: float = Field(default=1e-5, gt=0, lt=1)
    unit: Unit = "recording"
    approve_by_rule: bool = False

    @field_validator("transformations")
    @classmethod
    def _are_known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        odd = [name for name in names if name not in TRANSFORMATIONS]
        if odd:
            raise ValueError(f"{odd[0]!r} is not one of {', '.join(TRANSFORMATIONS)}")
        return names

    def allows(self, task: str) -> bool:
        """Whether this site answers a task: it is listed, or all of its kind are, or no study can do without it."""
        return task in (*ALWAYS_ALLOWED, *self.tasks) or f"{task.partition('.')[0]}.*" in self.tasks

    def check_variables(self, names: Collection[str]) -> None:
        """Refuse a study about variables that its owner keeps to the site."""
        for name in names if self.variables else ():
            _allow(name, self.variables, "variable", "variables")

    def check_transformations(self, names: Collection[str]) -> None:
        """Refuse what may not be done to rows."""
        for name in names:
            _allow(name, self.transformations, "transformation", "transformations")

    def check_rows(self, n_rows: float, n_parameters: int = 0) -> None:
        """Refuse a sum of few rows of this site, or of few for each of its parameters."""
        if n_rows < self.min_rows:
            raise SiteRefused(
                f"{n_rows:g} rows of this site would be in this sum; its policy asks for {self.min_rows} (min_rows).",
                code="few-rows",
                rows=n_rows,
            )
        if n_rows < self.min_rows_per_parameter * n_parameters:
            raise SiteRefused(
                f"{n_rows:g} rows of this site would stand for {n_parameters} parameters; its policy asks for "
                f"{self.min_rows_per_parameter:g} rows for each (min_rows_per_parameter).",
                code="few-rows-per-parameter",
                rows=n_rows,
                parameters=n_parameters,
            )

    def check_view(self, n_rows: int) -> None:
        """Refuse numbers that rest on few rows of this site: `n_rows` are the fewest, 0 if all have enough, or none."""
        if n_rows:
            raise SiteRefused(
                f"some number of this sum would rest on {n_rows} rows of this site: those in which a variable differs from "
                f"its usual value, has a rare level, or has a cell that another lacks; its policy asks for {self.min_rows} "
                "(min_rows).",
                code="few-rows-in-view",
                rows=n_rows,
            )

    def check_dominance(self, is_few: bool, names: Collection[str]) -> None:
        """Refuse columns, of these variables, some combination of which is about few rows; no row or count is told."""
        if is_few:
            raise SiteRefused(
                f"a combination of {', '.join(names)} would be about few rows of this site, or mostly about one: the columns "
                "are nearly equal, or one follows from the others, but for a few rows; or a few cells are much larger than "
                f"all others. Its policy asks for {self.min_rows} rows that count alike (min_rows). Leave one of them "
                "out, in files or in the study, or have the study bound far cells (robust).",
                code="dominance",
            )

    def check_share(self, n_rows: float, total: float | None) -> None:
        """Refuse a sum that is nearly this site's own; nothing is refused where the total is not known."""
        if total is not None and n_rows > self.max_share * total:
            raise SiteRefused(
                f"this site has {n_rows:g} of {total:g} rows; its policy allows a share of {self.max_share:g} (max_share).",
                code="large-share",
            )

    def check_task(self, task: str, features: Collection[str], round_number: int, masked: bool) -> None:
        """Refuse a task that is not allowed; `round_number` counts answers to this task name from 1."""
        if not self.allows(task):
            _allow(task, self.tasks, "task", "tasks")
        for feature in features:
            _allow(feature, self.features, "feature map", "features")
        if round_number > self.max_rounds:
            raise SiteRefused(
                f"this site answers task {task!r} at most {self.max_rounds} times in a run "
                "(max_rounds in its policy).",
                code="too-many-rounds",
            )
        if self.require_masking and not masked:
            raise SiteRefused(
                f"this site answers task {task!r} only under secure aggregation "
                "(require_masking in its policy).",
                code="masking-required",
            )

    def check_sites(self, n_sites: int) -> None:
        """Refuse a sum over too few sites."""
        if n_sites < self.min_sites:
            raise SiteRefused(
                f"this sum is over {n_sites} sites; this site joins sums of at least {self.min_sites} "
                "(min_sites in its policy).",
                code="few-sites",
            )

    def check_study(
        self, method: str, n_sites: int, masked: bool, epsilon: float | None, unit: Unit | None = None
    ) -> None:
        """Refuse a study before it begins.

        `method` is what the study calls it; `epsilon` for each `unit` is what it announces, None for no noise.
        """
        names = policy_names(method)
        _allow(
            next((name for name in names if name in self.methods), names[0]),
            self.methods,
            "method",
            "methods",
        )
        self.check_sites(n_sites)
        if self.require_masking and not masked:
            raise SiteRefused(
                "this site takes part only under secure aggregation (require_masking in its policy).",
                code="masking-required",
            )
        if self.max_epsilon is not None and (epsilon is None or epsilon > self.max_epsilon):
            asked = "no noise at all" if epsilon is None else f"epsilon = {epsilon:g}"
            raise SiteRefused(
                f"the study announces {asked}; this site allows epsilon up to {self.max_epsilon:g} "
                f"for each {self.unit} (max_epsilon in its policy).",
                code="epsilon-not-allowed",
            )
        if self.max_epsilon is not None and unit not in (None, self.unit):
            raise SiteRefused(
                f"the study announces epsilon for each {unit}; this site's budget is for each {self.unit} "
                "(unit in its policy).",
                code="other-unit",
            )


def _allow(name: str, allowed: tuple[str, ...], what: str, setting: str) -> None:
    if name not in allowed:
        known = ", ".join(allowed) or "none"
        raise SiteRefused(
            f"this site does not allow the {what} {name!r}; its policy lists {setting} = {known}.",
            code=f"{setting}-not-allowed",
        )


def policy_from_toml(text: str) -> SitePolicy:
    """Return the policy a TOML text describes; what is not understood is refused."""
    return read_table(SitePolicy, text, "the policy")
