"""Distributions of variables as plain objects of the stored form, with causes by name, and back (docs/schema.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from feddbn.core.kinds import Kind
from feddbn.errors import FileError, ParameterError
from feddbn.model.conditionals import Conditional
from feddbn.model.network import Network

__all__ = ["conditionals_of", "plain_conditionals"]


def plain_conditionals(dbn: Network) -> list[dict[str, Any]]:
    """One object per variable, in the order of the variables."""
    return [
        {
            "variable": name,
            "kind": node.kind.name,
            "levels": list(node.kind.levels),
            **({"recorded": [list(pair) for pair in node.kind.recorded]} if node.kind.recorded else {}),
            "intercept": node.intercept.tolist(),
            "dispersion": node.dispersion,
            "causes": [
                {"source": dbn.variables[i], "lag": lag, "effects": effect.tolist()}
                for (i, lag), effect in zip(node.parents, node.effects, strict=True)
            ],
            "covariance": [] if node.covariance is None else node.covariance.tolist(),
        }
        for name, node in zip(dbn.variables, dbn.conditionals, strict=bool(dbn.conditionals))
    ]


def conditionals_of(given: Any, variables: list[str], where: str) -> tuple[Conditional, ...]:
    """Inverse of `plain_conditionals`; None is none."""
    if given is None:
        return ()
    if not isinstance(given, list):
        raise FileError(f"{where} is damaged: 'conditionals' is not a list.")
    place = {name: k for k, name in enumerate(variables)}
    try:
        found = {stored["variable"]: _conditional(stored, place) for stored in given}
        nodes = tuple(found[name] for name in variables) if found else ()
    except ParameterError as error:
        raise FileError(f"{where} is damaged: in 'conditionals', {error}") from None
    except (KeyError, TypeError, ValueError):
        raise FileError(
            f"{where} is damaged: 'conditionals' has an entry that lacks a key, or not one for each variable."
        ) from None
    if len(given) != len(nodes):
        raise FileError(f"{where} is damaged: 'conditionals' must have one entry for each variable.")
    return nodes


def _conditional(stored: Mapping[str, Any], place: Mapping[str, int]) -> Conditional:
    recorded = tuple((name, place) for name, place in stored.get("recorded") or ())
    kind = Kind(stored["kind"], tuple(stored["levels"]), recorded)
    causes = stored["causes"]
    return Conditional(
        kind,
        tuple((place[cause["source"]], cause["lag"]) for cause in causes),
        stored["intercept"],
        tuple(np.array(cause["effects"], dtype=np.float64) for cause in causes),
        stored["dispersion"],
        np.array(stored.get("covariance") or [], dtype=np.float64),
    )
