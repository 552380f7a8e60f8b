"""Learn dynamic Bayesian networks from time series that may not leave their owners.

Names are imported when they are first used, so that ``import feddbn`` and ``feddbn --help`` stay quick. The estimators
are those of the method table.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from feddbn._version import __version__
from feddbn.method_table import METHODS
from feddbn.shown import drawn_by

if TYPE_CHECKING:
    from feddbn.analysis.comparison import Comparison as Comparison
    from feddbn.analysis.comparison import compare_methods as compare_methods
    from feddbn.analysis.confidence import confidence as confidence
    from feddbn.analysis.data_check import check as check
    from feddbn.analysis.monitor import Monitor as Monitor
    from feddbn.analysis.power import Power as Power
    from feddbn.analysis.power import power as power
    from feddbn.data.layout import Layout as Layout
    from feddbn.federation.programs.fdbnl import Rounds as Rounds
    from feddbn.federation.programs.pfdbnl.rounds import PersonalRounds as PersonalRounds
    from feddbn.federation.sums.prepare import AS_THEY_ARE as AS_THEY_ARE
    from feddbn.federation.sums.prepare import Prepare as Prepare
    from feddbn.interop.summary import Summary as Summary
    from feddbn.methods.base import simulated as simulated
    from feddbn.methods.baselines import Average as Average
    from feddbn.methods.baselines import Dynotears as Dynotears
    from feddbn.methods.baselines import LocalOnly as LocalOnly
    from feddbn.methods.changing import ChangingDBN as ChangingDBN
    from feddbn.methods.fdbnl import FDBNL as FDBNL
    from feddbn.methods.latent import LatentDBN as LatentDBN
    from feddbn.methods.mixed import MixedDBN as MixedDBN
    from feddbn.methods.oneshot import OneShotDBN as OneShotDBN
    from feddbn.methods.pfdbnl import PFDBNL as PFDBNL
    from feddbn.methods.selection import Selection as Selection
    from feddbn.methods.selection import select as select
    from feddbn.methods.summary import MomentSummary as MomentSummary
    from feddbn.methods.summary import summary as summary
    from feddbn.model.dbn import DBN as DBN
    from feddbn.model.graph import AncestralGraph as AncestralGraph
    from feddbn.report.progress import Progress as Progress
    from feddbn.results.scoring import Scores as Scores
    from feddbn.results.scoring import SiteScores as SiteScores
    from feddbn.results.scoring import score as score
    from feddbn.results.scoring import score_by_kind as score_by_kind
    from feddbn.results.scoring import score_sites as score_sites
    from feddbn.sim.simulation import SimulatedFederation as SimulatedFederation
    from feddbn.sim.simulation import simulate as simulate

_WHERE = {method.cls: method.module for method in METHODS.values()} | {
    "AS_THEY_ARE": "feddbn.federation.sums.prepare",
    "AncestralGraph": "feddbn.model.graph",
    "DBN": "feddbn.model.dbn",
    "Layout": "feddbn.data.layout",
    "Monitor": "feddbn.analysis.monitor",
    "PersonalRounds": "feddbn.federation.programs.pfdbnl.rounds",
    "Power": "feddbn.analysis.power",
    "Prepare": "feddbn.federation.sums.prepare",
    "Rounds": "feddbn.federation.programs.fdbnl",
    "Progress": "feddbn.report.progress",
    "Scores": "feddbn.results.scoring",
    "Selection": "feddbn.methods.selection",
    "SimulatedFederation": "feddbn.sim.simulation",
    "SiteScores": "feddbn.results.scoring",
    "Comparison": "feddbn.analysis.comparison",
    "check": "feddbn.analysis.data_check",
    "compare_methods": "feddbn.analysis.comparison",
    "confidence": "feddbn.analysis.confidence",
    "power": "feddbn.analysis.power",
    "score": "feddbn.results.scoring",
    "score_by_kind": "feddbn.results.scoring",
    "score_sites": "feddbn.results.scoring",
    "select": "feddbn.methods.selection",
    "simulate": "feddbn.sim.simulation",
    "simulated": "feddbn.methods.base",
    "Summary": "feddbn.interop.summary",
    "summary": "feddbn.methods.summary",
}

__all__ = ["__version__", *sorted(_WHERE)]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    from difflib import get_close_matches

    near = get_close_matches(name, __all__, 1)
    raise AttributeError(f"module 'feddbn' has no attribute {name!r}{f'; is it {near[0]}?' if near else ''}")


def __dir__() -> list[str]:
    return sorted(__all__)


def _drawn(value: object) -> str:
    return str(import_module("feddbn.report.notebook").html_of(value))


drawn_by(_drawn)
