"""What a study settles besides its question: how sums are protected, and what happens when a site is missing."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["Attendance", "Privacy", "Strict"]


class Strict(BaseModel):
    """A table of a study's file; what it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Privacy(Strict):
    """How the sums are protected; `min_sites` is the smallest number of sites whose sum may be opened.

    With `epsilon`, what leaves is (epsilon, delta)-differentially private for each `unit`. `clip` bounds the
    unit's vector; without it the bound is chosen from a noisy histogram, for a tenth of the budget. The noise is enough
    even if `n_colluding` sites tell their own share of it; each site knows its own, so there is always one.

    `max_norm` is the largest Euclidean norm of any answer: each site keeps a longer one at home, and a sum that is longer
    than its sites can make it ends the run.
    """

    secure_aggregation: bool = False
    min_sites: int = Field(default=3, ge=2)
    epsilon: float | None = Field(default=None, gt=0)
    delta: float = Field(default=1e-5, gt=0, lt=1)
    unit: Literal["recording", "row"] = "recording"
    clip: float | None = Field(default=None, gt=0)
    n_colluding: int = Field(default=1, ge=1)
    max_norm: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _norms_without_noise(self) -> Privacy:
        if self.max_norm is not None and self.epsilon is not None:
            raise ValueError(
                "max_norm cannot be combined with epsilon, because whether a site refuses would tell what no noise covers; "
                "use clip, which bounds every unit, or remove one of them"
            )
        return self


class Attendance(Strict):
    """What happens when a site does not answer in time.

    `when_missing`: "wait" asks again until `max_wait_s` has passed; "continue" goes on with at least
    `min_sites`; "abort" stops at once. A stopped run can be resumed.

    "collect" is for sites that are never there together: each message waits `window_h` hours for every site to come
    and answer it. If then not all have, the run stops, unless `enough` have: it goes on without the others.
    """

    timeout_s: float = Field(default=60.0, gt=0)
    when_missing: Literal["wait", "continue", "abort", "collect"] = "wait"
    min_sites: int = Field(default=1, ge=1)
    max_wait_s: float = Field(default=600.0, ge=0)
    window_h: float = Field(default=168.0, gt=0, le=8784, allow_inf_nan=False)
    enough: int | None = Field(default=None, ge=1)

    @property
    def collects(self) -> bool:
        """Whether messages wait for sites that come when they can."""
        return self.when_missing == "collect"

    @model_validator(mode="after")
    def _windows_of_collections(self) -> Attendance:
        for name in ("window_h", "enough"):
            if not self.collects and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f'{name} is read only with when_missing = "collect"; set that, or remove {name}'
                )
        return self
