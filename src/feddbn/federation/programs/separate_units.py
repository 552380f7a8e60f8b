"""Whether a unit's vector in an answer depends on that unit alone: what noise that protects one unit takes for granted."""

from __future__ import annotations

from feddbn.errors import ParameterError
from feddbn.federation.protocol.rows import RowsQuestion

__all__ = ["require_separate_units"]


def require_separate_units(question: RowsQuestion, unit: str) -> None:
    """Refuse, by what is asked and never by what is there, all that would let one unit change another's vector."""
    if unit not in ("recording", "row"):
        raise ParameterError(f"unit={unit!r} is not known; choose 'recording' or 'row'.")
    if question.log_scales is not None or (question.limits is not None and question.own_limits):
        raise ParameterError(
            "scales of a site's own: one recording would change the rows of others, and noise is fitted to one alone; use "
            "gains='none' and common limits."
        )
    is_mixing = {
        "row_model": question.row_model is not None,
        "abstain": question.abstain,
        # A site without rows in a block would refuse, which tells something about them.
        "fold": bool(question.fold),
    }
    if any(is_mixing.values()):
        mixing = next(name for name, is_given in is_mixing.items() if is_given)
        raise ParameterError(f"{mixing}: noise protects units of rows as they are; leave it out.")
    if unit == "recording":
        return
    if question.limits is not None:
        raise ParameterError("limits: what is far is told by the rows around it; protect unit='recording'.")
    if question.nuisance.scope != "all":
        raise ParameterError("center='recording' mixes the rows of a recording; protect unit='recording'.")
