"""The grid of an experiment as cells: the smallest piece of work that is run, recorded and resumed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from feddbn.experiments.config import PROTOCOLS, Experiment, Point
from feddbn.experiments.registry import METHODS, Method

__all__ = ["Cell", "expand", "hashed_seed", "identity", "in_order"]


@dataclass(frozen=True)
class Cell:
    """One method on one data set.

    Attributes
    ----------
    kind, protocol, point, method, seed
        What is run; see `Experiment`.
    quick
        Whether the lambda path is the short one.
    """

    kind: str
    protocol: str
    point: Point
    method: str
    seed: int
    quick: bool = False

    @property
    def settings(self) -> Method:
        """The method as registered."""
        return METHODS[self.method]

    def data_axes(self) -> dict[str, Any]:
        """The named axes that determine the data; a method is not among them, so all methods see the same data."""
        axes = {key: value for key, value in self.point.axes().items() if key != "participants"}
        return {**axes, "protocol": self.protocol, "seed": self.seed}

    @property
    def config(self) -> dict[str, Any]:
        """Everything that determines the result, as plain values."""
        protocol = PROTOCOLS.get(self.protocol)
        return {
            "kind": self.kind,
            "protocol": self.protocol,
            "w_range": None if protocol is None else list(protocol.w_range),
            "point": self.point.axes(),
            "method": self.method,
            "settings": self.settings.settings_for(self.point, self.kind, self.quick),
            "seed": self.seed,
        }

    @property
    def id(self) -> str:
        """Hash of `config`."""
        return identity(self.config)

    @property
    def cost(self) -> float:
        """Seconds this is expected to take, roughly; only for order and progress."""
        return self.settings.expected_seconds(self.point, self.kind, self.quick)


def identity(config: Mapping[str, Any]) -> str:
    """Sixteen hexadecimal digits of the SHA-256 of a configuration's canonical JSON."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def hashed_seed(axes: Mapping[str, Any]) -> int:
    """A seed from named axes: adding an axis value never changes the data of another."""
    text = json.dumps(axes, sort_keys=True, separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 2**63


def expand(experiment: Experiment, *, seeds: int | None = None, quick: bool = False) -> list[Cell]:
    """All cells of an experiment, in the order of its axes.

    `seeds` replaces the number of seeds; real data have one.
    """
    chosen = experiment.quick
    protocols = chosen.protocols if quick else experiment.protocols
    points = list(experiment.points)
    if quick:
        points = list(chosen.settings) or [experiment.points[i] for i in chosen.points]
    methods = chosen.methods if quick and chosen.methods is not None else experiment.methods
    default = chosen.seeds if quick else experiment.seeds
    n_seeds = 1 if experiment.kind in ("dream4", "netsim") else (default if seeds is None else seeds)
    return [
        Cell(experiment.kind, protocol, point, method, seed, quick)
        for protocol in protocols
        for point in points
        for seed in range(n_seeds)
        for method in methods
        if METHODS[method].applies_to(point, experiment.kind)
    ]


def in_order(cells: Iterable[Cell]) -> list[Cell]:
    """Different cells, cheap ones and low seeds first: an interrupted run has covered as much as it can."""
    unique = {cell.id: cell for cell in cells}
    return sorted(unique.values(), key=lambda cell: (cell.cost * (1 + cell.seed), cell.seed, cell.id))
