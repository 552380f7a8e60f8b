"""One sum for generalised linear models of nodes: gradient, information and likelihood at given coefficients.

``glm-step``   of each of a list of models: log likelihood, gradient and information at theta

Columns of parents are standardised by public numbers, so that coefficients have a natural size. A server climbs by Newton's
steps (`core.glm.newton`), 4 to 6 sums of all models together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import starmap

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.rows import design_rows
from feddbn.core.glm.families import FAMILIES, RowTerms
from feddbn.core.glm.models import ModelSums, NodeModel, model_rows
from feddbn.core.orders.groups import MOST_OPEN_OF_A_NODE
from feddbn.federation.programs.mixed_moments import CodedQuestion
from feddbn.federation.protocol.question import Constant, array, texts, wholes
from feddbn.federation.protocol.site import (
    Here,
    SiteData,
    SiteState,
    SiteTask,
    one_by_one,
    register_site_task,
)

__all__ = ["MOST_MODEL_LISTS", "MOST_STEPS", "GlmStepQuestion", "model_terms", "model_text"]

MOST_STEPS = 16
"""How many different coefficients a site answers for in a run."""
MOST_OF_A_NODE = 2**MOST_OPEN_OF_A_NODE
"""Models of one variable: one for each set of its neighbours whose direction is reviewed."""
MOST_MODEL_LISTS = 2
"""Lists of models in a run: those of the network, and the same with wider counts where the first fit shows them."""


def model_text(model: NodeModel) -> str:
    """A model as it travels: ``node:family:parents``."""
    return f"{model.node}:{model.family}:{','.join(map(str, model.parents))}"


@dataclass(frozen=True, kw_only=True)
class GlmStepQuestion(CodedQuestion):
    """Terms of some models of nodes at `theta`, which holds the coefficients of one after the other.

    `models` are all that a run fits, `asked` the places of those that have not arrived yet; `origin` and `scale` (columns
    within a moment) standardise the columns of parents, at every lag.
    """

    name = "glm-step"
    purpose = "likelihood, gradient and information of models of variables given others, at coefficients of the server's"

    models: tuple[str, ...] = texts()
    asked: tuple[int, ...] = wholes(0, 1_000_000)
    theta: FloatArray = array("m")
    origin: FloatArray = array("c")
    scale: FloatArray = array("c")

    def check(self) -> None:
        """Models are of variables that have a family, on parents that come from elsewhere; theta has their length."""
        super().check()
        if len(self.origin) != sum(self.coded.widths) or not (self.scale > 0).all():
            raise self.wrong(
                "'origin' and 'scale' must be numbers for each column within a moment, scales above 0"
            )
        if not self.models:
            raise self.wrong("'models' must name at least one model")
        is_rising = list(self.asked) == sorted(set(self.asked))
        if not self.asked or not is_rising or self.asked[-1] >= len(self.models):
            raise self.wrong("'asked' must be places of models, ascending")
        nodes = [self._model(text).node for text in self.models]
        if len(set(self.models)) < len(nodes) or max(map(nodes.count, nodes)) > MOST_OF_A_NODE:
            raise self.wrong(f"'models' must be different, at most {MOST_OF_A_NODE} of a variable")
        if len(self.theta) != sum(self.lengths):
            raise self.wrong(
                f"'theta' has {len(self.theta)} numbers, but the models have {sum(self.lengths)}"
            )

    @cached_property
    def node_models(self) -> tuple[NodeModel, ...]:
        """The models that are asked about; anything that is none is refused."""
        return tuple(self._model(self.models[k]) for k in self.asked)

    def _model(self, text: str) -> NodeModel:
        parts = text.split(":")
        try:
            node, family = int(parts[0]), parts[1]
            parents = tuple(int(m) for m in parts[2].split(",") if m)
            if not 0 <= node < self.d or len(parts) != 3:
                raise ValueError(text)
        except (ValueError, IndexError):
            raise self.wrong(f"model {text[:60]!r} must be written 'node:family:parents'") from None
        suits = {
            "binary": ("logistic",),
            "categorical": ("multinomial",),
            "ordinal": ("cumulative",),
            "count": ("poisson", "negative-binomial"),
        }.get(self.coded.codings[node].name, ())
        if family not in FAMILIES or family not in suits:
            raise self.wrong(f"model {text[:60]!r} has a family that does not suit {self.variables[node]!r}")
        groups = range(len(self.coded.groups))
        if list(parents) != sorted(set(parents)) or any(m not in groups or m == node for m in parents):
            raise self.wrong(f"model {text[:60]!r} must have other variables as parents, ascending")
        return NodeModel(node, parents, family)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """How many coefficients each model has."""
        return tuple(model.n_parameters(self.coded) for model in self.node_models)

    @property
    def thetas(self) -> list[FloatArray]:
        """The coefficients of each model."""
        return list(np.split(self.theta, np.cumsum(self.lengths)[:-1]))

    @property
    def n_told(self) -> int:
        """How many numbers an answer has."""
        return sum(starmap(ModelSums.length, self.forms))

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Units are settled once, models nearly so, and there are few steps."""
        return (
            *super().constants,
            Constant("units of columns of models" + self.place, (self.origin, self.scale)),
            Constant("models of variables" + self.place, self.models, MOST_MODEL_LISTS),
            Constant("steps of models" + self.place, (self.asked, self.theta), MOST_STEPS, self.n_told),
        )

    def to_sums(self, sums: Sequence[ModelSums]) -> FloatArray:
        """One vector that adds up."""
        return np.concatenate([one.to_sums() for one in sums])

    def from_sums(self, vector: FloatArray) -> list[ModelSums]:
        """Inverse of `to_sums`."""
        parts = np.split(vector, np.cumsum(list(starmap(ModelSums.length, self.forms)))[:-1])
        return [ModelSums.from_sums(part, *form) for part, form in zip(parts, self.forms, strict=True)]

    @property
    def forms(self) -> list[tuple[int, bool]]:
        """How many coefficients each model has, and whether it is asked how wide counts are."""
        return [(m, one.family == "poisson") for m, one in zip(self.lengths, self.node_models, strict=True)]


def model_terms(data: SiteData, question: GlmStepQuestion) -> Iterator[list[RowTerms]]:
    """The terms of a site's rows, piece by piece, of each model."""
    design, n_each = question.coded, question.n_lags + 1
    origin, scale = np.tile(question.origin, n_each), np.tile(question.scale, n_each)
    for recording in question.recordings(data):
        for chunk in design_rows(design, recording.blocks()):
            columns = (chunk.values - origin) / scale
            yield [
                model_rows(model, design, chunk.values, columns, theta)
                for model, theta in zip(question.node_models, question.thetas, strict=True)
            ]


def _answer(here: Here, question: GlmStepQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    total = [ModelSums.empty(*form) for form in question.forms]
    for terms in model_terms(here.data, question):
        for one, more in zip(total, terms, strict=True):
            one.add(more)
    return here.state, question.to_sums(total)


register_site_task(SiteTask(GlmStepQuestion, one_by_one(_answer), length=lambda question: question.n_told))
