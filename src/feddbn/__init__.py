"""Learn dynamic Bayesian networks from time series that may not leave their owners.

Names are imported when they are first used, so that ``import feddbn`` and ``feddbn --help`` stay quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from feddbn._version import __version__

if TYPE_CHECKING:
    from feddbn.methods.baselines import Average, BestSite, LocalOnly, Vote
    from feddbn.methods.confidence import edge_confidence
    from feddbn.methods.dynotears import Dynotears
    from feddbn.methods.fdbnl import FDBNL
    from feddbn.methods.oneshot import OneShotDBN
    from feddbn.methods.pfdbnl import PFDBNL
    from feddbn.methods.scoring import Scores, SiteScores, score, score_sites
    from feddbn.methods.selection import Selection, select
    from feddbn.methods.simulation import SimulatedFederation, simulate
    from feddbn.model.dbn import DBN

_WHERE = {
    "Average": "feddbn.methods.baselines",
    "BestSite": "feddbn.methods.baselines",
    "DBN": "feddbn.model.dbn",
    "Dynotears": "feddbn.methods.dynotears",
    "FDBNL": "feddbn.methods.fdbnl",
    "LocalOnly": "feddbn.methods.baselines",
    "OneShotDBN": "feddbn.methods.oneshot",
    "PFDBNL": "feddbn.methods.pfdbnl",
    "Scores": "feddbn.methods.scoring",
    "Selection": "feddbn.methods.selection",
    "SimulatedFederation": "feddbn.methods.simulation",
    "SiteScores": "feddbn.methods.scoring",
    "Vote": "feddbn.methods.baselines",
    "edge_confidence": "feddbn.methods.confidence",
    "score": "feddbn.methods.scoring",
    "score_sites": "feddbn.methods.scoring",
    "select": "feddbn.methods.selection",
    "simulate": "feddbn.methods.simulation",
}

__all__ = [
    "DBN",
    "FDBNL",
    "PFDBNL",
    "Average",
    "BestSite",
    "Dynotears",
    "LocalOnly",
    "OneShotDBN",
    "Scores",
    "Selection",
    "SimulatedFederation",
    "SiteScores",
    "Vote",
    "__version__",
    "edge_confidence",
    "score",
    "score_sites",
    "select",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'feddbn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
