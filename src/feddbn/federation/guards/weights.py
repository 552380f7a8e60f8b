"""Gives rows their secret weights before anything is computed of them (`core.designs.weights`)."""

from __future__ import annotations

from dataclasses import replace

from feddbn.core.designs.weights import WeightedSite
from feddbn.federation.protocol.site import Guard, Here
from feddbn.federation.protocol.task import Task


class RowWeights(Guard):
    """Has every question read rows with the weights that follow from the site's secret `key`.

    Which rows there are, and whether they are enough, does not depend on weights, so other guards may come before or after.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._seen: WeightedSite | None = None

    def reads(self, here: Here, task: Task) -> tuple[Here, Task]:
        """Weight the rows."""
        if self._seen is None or self._seen.data is not here.data:
            self._seen = WeightedSite(here.data, self._key)
        return replace(here, data=self._seen), task
