"""How large the largest answer of a study is and what its noise costs, told before it runs."""

from __future__ import annotations

from feddbn.core.designs.curve_basis import N_CURVES, N_SMOOTH
from feddbn.core.orders.search import MOST_WITHOUT_SCREENING
from feddbn.core.statistics.agreement import FEWEST_SITES
from feddbn.core.statistics.moments import sums_length
from feddbn.errors import ParameterError
from feddbn.federation.guards.study_scope import tasks_of
from feddbn.federation.programs.bootstrap import FLOATS_PER_TASK
from feddbn.federation.programs.private_moments import study_costs
from feddbn.federation.programs.survey import SurveyQuestion, survey_length
from feddbn.federation.protocol.study import Study
from feddbn.privacy.grid import LONGEST
from feddbn.privacy.policy import SitePolicy

__all__ = ["check_noise_size", "costs_in_words", "largest_columns", "size_in_words"]

_FUNCTIONS = {"spline": N_CURVES, "auto": N_CURVES, "quadratic": 1}


def largest_columns(study: Study) -> int:
    """Columns of a row in the largest sum of products that a study may ask for; functions of a user's own count as one."""
    given, d = study.parameters, len(study.variables)
    n_lags = _most_lags(study)
    lines = d * (n_lags * study.lag_reach + 1)
    if "mixed-moments" in tasks_of(study):
        return lines + (n_lags + 1) * sum(kind.width - 1 for kind in study.kinds.values())
    if "curved-moments" not in tasks_of(study):
        return lines
    features = str(given.get("features"))
    n_functions = N_SMOOTH if features == "spline" and study.privacy.epsilon else _FUNCTIONS.get(features, 1)
    columns = lines * (1 + n_functions)
    if given.get("interactions") and d <= MOST_WITHOUT_SCREENING:
        columns += n_lags * d * (d - 1) // 2
    return columns


def _most_lags(study: Study) -> int:
    """Most lags that edges may have: those given, the most among which one is chosen, or as far as "auto" looks."""
    tried = study.select.grid.get("n_lags", ()) if study.goal == "select" else ()
    if tried:
        return max(int(n) for n in tried)
    for given in (study.parameters.get("n_lags", 1), study.parameters.get("max_lags", 3)):
        if isinstance(given, int):
            return given
    return 3


def size_in_words(study: Study, policy: SitePolicy | None = None) -> str:
    """One sentence: numbers, megabytes, and how many rows a site needs by its policy; under noise rows are not counted."""
    if study.goal == "check":
        return _check_size(study)
    columns = largest_columns(study)
    numbers = sums_length(columns)
    of = "the products"
    if "bootstrap-moments" in tasks_of(study):
        n_resamples = max(1, min(study.confidence.replicates + 1, FLOATS_PER_TASK // numbers))
        numbers, of = numbers * n_resamples, f"for each of {n_resamples} resamples the products"
    size = f"its largest answer has {numbers:,} numbers ({8 * numbers / 1e6:.1f} MB), {of} of {columns} columns of a row"
    if study.privacy.epsilon is not None:
        return size
    rows = round((policy or SitePolicy()).min_rows_per_parameter * columns)
    return f"{size}; a site needs {max(rows, 1):,} rows for it (min_rows_per_parameter)"


def _check_size(study: Study) -> str:
    n_lags = study.parameters.get("n_lags", 1)
    compares = len(study.sites) >= FEWEST_SITES
    question = SurveyQuestion(
        n_lags=n_lags if isinstance(n_lags, int) else 1, variables=study.variables, profiles=compares
    )
    numbers = survey_length(question)
    return f"its largest answer has {numbers:,} numbers ({8 * numbers / 1e6:.1f} MB): counts of cells, spectra, profiles"


def costs_in_words(study: Study) -> str:
    """One sentence: what each task of a study with noise costs by itself, and what all of them cost together."""
    costs, privacy = study_costs(study), study.privacy
    each = ", ".join(f"{epsilon:.2g} for {task}" for task, epsilon in costs.items())
    return f"epsilon for each {privacy.unit}: {each}; together {privacy.epsilon:g}, less than their sum"


def check_noise_size(study: Study) -> None:
    """Refuse a study with noise whose largest answer is longer than what noise is added to."""
    columns = largest_columns(study)
    if study.privacy.epsilon is not None and sums_length(columns) > LONGEST:
        raise ParameterError(
            f"privacy.epsilon: noise is added to at most {LONGEST:,} numbers, but the products of {columns} columns of a row "
            f"are {sums_length(columns):,}; name fewer variables or lags, use features = 'linear', or remove epsilon."
        )
