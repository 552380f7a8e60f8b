"""Curves, products and distributions in the stored form: plain objects, variables by name (docs/schema.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from feddbn.core.kinds import Kind
from feddbn.errors import FileError, ParameterError
from feddbn.model.conditionals import Conditional
from feddbn.model.curves import Curve, Product
from feddbn.model.network import Network

__all__ = ["PARTS", "StoredParts", "parts_of", "plain_parts"]


class StoredParts(TypedDict):
    """What a network has beside its arrays."""

    curves: tuple[Curve, ...]
    products: tuple[Product, ...]
    conditionals: tuple[Conditional, ...]


def plain_parts(dbn: Network) -> dict[str, list[dict[str, Any]]]:
    """Key -> one object for each curve, product and variable; a key without any is left out."""
    names = dbn.variables
    curves = [
        {
            "source": names[curve.source],
            "target": names[curve.target],
            "lag": curve.lag,
            "basis": curve.basis,
            "origin": curve.origin,
            "scale": curve.scale,
            "coefficients": list(curve.coefficients),
            "covariance": [list(row) for row in curve.covariance],
        }
        for curve in dbn.curves
    ]
    products = [
        {
            "sources": [names[product.first], names[product.second]],
            "target": names[product.target],
            "lag": product.lag,
            "weight": product.weight,
            "origins": list(product.origins),
            "scales": list(product.scales),
        }
        for product in dbn.products
    ]
    conditionals = [
        {
            "variable": name,
            "kind": node.kind.name,
            "levels": list(node.kind.levels),
            **({"recorded": [list(pair) for pair in node.kind.recorded]} if node.kind.recorded else {}),
            "intercept": node.intercept.tolist(),
            "dispersion": node.dispersion,
            "causes": [
                {"source": names[i], "lag": lag, "effects": effect.tolist()}
                for (i, lag), effect in zip(node.parents, node.effects, strict=True)
            ],
            "covariance": [] if node.covariance is None else node.covariance.tolist(),
        }
        for name, node in zip(names, dbn.conditionals, strict=bool(dbn.conditionals))
    ]
    found = {"curves": curves, "products": products, "conditionals": conditionals}
    return {key: plain for key, plain in found.items() if plain}


def parts_of(stored: Mapping[str, Any], variables: Sequence[str], where: str) -> StoredParts:
    """Inverse of `plain_parts`, for a network of `variables`; a key that is not there has none."""
    place = {name: k for k, name in enumerate(variables)}
    found: dict[str, Any] = {}
    for key, build in PARTS.items():
        given = stored.get(key)
        if given is not None and not isinstance(given, list):
            raise FileError(f"{where} is damaged: {key!r} is not a list.")
        try:
            if given and key == "conditionals":
                by_name = {one["variable"]: one for one in given}
                if len(given) != len(variables):
                    raise ValueError
                given = [by_name[name] for name in variables]
            found[key] = tuple(build(one, place) for one in given or ())
        except ParameterError as error:
            raise FileError(f"{where} is damaged: in {key!r}, {error}") from None
        except (KeyError, TypeError, ValueError):
            each = ", or not one for each variable" if key == "conditionals" else ""
            raise FileError(
                f"{where} is damaged: {key!r} has an entry that lacks a key or names no variable of the network{each}."
            ) from None
    return StoredParts(curves=found["curves"], products=found["products"], conditionals=found["conditionals"])


def _curve(stored: Mapping[str, Any], place: Mapping[str, int]) -> Curve:
    return Curve(
        place[stored["source"]],
        place[stored["target"]],
        stored["lag"],
        stored["origin"],
        stored["scale"],
        stored["coefficients"],
        stored["basis"],
        stored.get("covariance") or (),
    )


def _product(stored: Mapping[str, Any], place: Mapping[str, int]) -> Product:
    first, second = (place[name] for name in stored["sources"])
    origins, scales = tuple(stored["origins"]), tuple(stored["scales"])
    if first > second:
        first, second, origins, scales = second, first, origins[::-1], scales[::-1]
    return Product(first, second, place[stored["target"]], stored["lag"], stored["weight"], origins, scales)


def _conditional(stored: Mapping[str, Any], place: Mapping[str, int]) -> Conditional:
    recorded = tuple((name, position) for name, position in stored.get("recorded") or ())
    causes = stored["causes"]
    return Conditional(
        Kind(stored["kind"], tuple(stored["levels"]), recorded),
        tuple((place[cause["source"]], cause["lag"]) for cause in causes),
        stored["intercept"],
        tuple(np.array(cause["effects"], dtype=np.float64) for cause in causes),
        stored["dispersion"],
        np.array(stored.get("covariance") or [], dtype=np.float64),
    )


PARTS: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, int]], Curve | Product | Conditional]] = {
    "curves": _curve,
    "products": _product,
    "conditionals": _conditional,
}
"""Every key, and what reads one of its objects."""
