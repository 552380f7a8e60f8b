"""Where to find what somebody looked for at an estimator: the cure of a wrong attribute."""

from __future__ import annotations

from typing import Any

from sklearn.exceptions import NotFittedError

from feddbn.model.dbn import DBN

__all__ = ["missing_attribute"]

_ELSEWHERE = {
    "predict": "forecast",
    "irf": "impulse_responses",
    "coef": "edges",
    "graph": "to_networkx",
    "plot": "edges",
}


def missing_attribute(estimator: Any, name: str) -> AttributeError:
    """The error of an attribute that is not there: `NotFittedError` before a fit, else what there is instead."""
    owner, fitted = type(estimator).__name__, vars(estimator)
    if name.startswith("_"):
        return AttributeError(f"{owner!r} object has no attribute {name!r}")
    if name.endswith("_") and "n_features_in_" not in fitted:
        return NotFittedError(  # type: ignore[no-any-return]
            f"this {owner} has not learned anything yet, so it has no {name}; call fit first."
        )
    return AttributeError(_sentence(owner, fitted, name))


def _sentence(owner: str, fitted: dict[str, Any], name: str) -> str:
    start, ask = f"{owner!r} object has no attribute {name!r}", _ELSEWHERE.get(name.rstrip("_"), name)
    if f"{name}_" in fitted:
        return f"{start}; what was learned ends in an underscore: {name}_."
    if hasattr(DBN, ask):
        return f"{start}; ask its network: dbn_.{ask}."
    learned = [key for key in fitted if key.endswith("_") and not key.startswith("_")]
    if name.endswith("_") and learned:
        return f"{start}; it has {', '.join(sorted(learned))}."
    return f"{start}."
