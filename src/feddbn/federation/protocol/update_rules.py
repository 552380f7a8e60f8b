"""Which studies can be updates of earlier runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from feddbn.errors import ParameterError

if TYPE_CHECKING:
    from feddbn.federation.protocol.study import Study

__all__ = ["check_update"]


def check_update(study: Study, able: Sequence[str]) -> None:
    """Refuse an update that is not of sums without noise over all sites of a run; `able` are the methods that can."""
    what = f"update_of = {study.update_of!r}"
    if study.goal != "network" or study.method not in able:
        raise ParameterError(
            f"{what}: new rows are added to networks that were learned from summed moments; use goal = 'network' and "
            f"method = {' or '.join(repr(name) for name in able)}."
        )
    if study.privacy.epsilon is not None:
        raise ParameterError(
            f"{what}: sums with noise are not added up over runs; remove epsilon, or ask about all rows in a study of its "
            "own."
        )
    if study.attendance.when_missing == "continue" or study.attendance.enough is not None:
        raise ParameterError(
            f"{what} needs all sites of that run; use when_missing = 'wait', 'abort' or 'collect', without enough."
        )
