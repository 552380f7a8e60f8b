"""Scores of a learned network against a known one."""

from feddbn.metrics.curves import curve_error
from feddbn.metrics.edges import EdgeScores, edge_scores, mean_scores, skeleton_scores
from feddbn.metrics.kinds import kind_scores
from feddbn.metrics.marks import MarkScores, mark_scores
from feddbn.metrics.ranking import RankingScores, ranking_scores
from feddbn.metrics.weights import WeightError, weight_error

__all__ = [
    "EdgeScores",
    "MarkScores",
    "RankingScores",
    "WeightError",
    "curve_error",
    "edge_scores",
    "kind_scores",
    "mark_scores",
    "mean_scores",
    "ranking_scores",
    "skeleton_scores",
    "weight_error",
]
