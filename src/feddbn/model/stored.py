"""Curves, products and distributions in the stored form: plain objects, variables by name (docs/schema.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from feddbn.core.kinds import Kind
from feddbn.errors import FileError, ParameterError
from feddbn.model.conditionals import Conditional
from feddbn.model.curves import Curve, Product
from feddbn.model.network import Network

__all__ = [
    "conditionals_of",
    "curves_of",
    "plain_conditionals",
    "plain_curves",
    "plain_products",
    "products_of",
]


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


Part = TypeVar("Part", Curve, Product)


def plain_curves(dbn: Network) -> list[dict[str, Any]]:
    """One object per curve."""
    return [
        {
            "source": dbn.variables[curve.source],
            "target": dbn.variables[curve.target],
            "lag": curve.lag,
            "basis": curve.basis,
            "origin": curve.origin,
            "scale": curve.scale,
            "coefficients": list(curve.coefficients),
            "covariance": [list(row) for row in curve.covariance],
        }
        for curve in dbn.curves
    ]


def plain_products(dbn: Network) -> list[dict[str, Any]]:
    """One object per product."""
    return [
        {
            "sources": [dbn.variables[product.first], dbn.variables[product.second]],
            "target": dbn.variables[product.target],
            "lag": product.lag,
            "weight": product.weight,
            "origins": list(product.origins),
            "scales": list(product.scales),
        }
        for product in dbn.products
    ]


def curves_of(given: Any, variables: list[str], where: str) -> tuple[Curve, ...]:
    """Inverse of `plain_curves`; None is no curves."""
    place = {name: k for k, name in enumerate(variables)}

    def curve(stored: Mapping[str, Any]) -> Curve:
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

    return _read(given, curve, "curves", where)


def products_of(given: Any, variables: list[str], where: str) -> tuple[Product, ...]:
    """Inverse of `plain_products`; None is no products."""
    place = {name: k for k, name in enumerate(variables)}

    def product(stored: Mapping[str, Any]) -> Product:
        first, second = (place[name] for name in stored["sources"])
        origins, scales = tuple(stored["origins"]), tuple(stored["scales"])
        if first > second:
            first, second, origins, scales = second, first, origins[::-1], scales[::-1]
        return Product(
            first, second, place[stored["target"]], stored["lag"], stored["weight"], origins, scales
        )

    return _read(given, product, "products", where)


def _read(given: Any, build: Callable[[Mapping[str, Any]], Part], key: str, where: str) -> tuple[Part, ...]:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise FileError(f"{where} is damaged: {key!r} is not a list.")
    found = []
    for stored in given:
        try:
            found.append(build(stored))
        except ParameterError as error:
            raise FileError(f"{where} is damaged: in {key!r}, {error}") from None
        except (KeyError, TypeError, ValueError):
            raise FileError(
                f"{where} is damaged: {key!r} has an entry that lacks a key or names no variable of the network."
            ) from None
    return tuple(found)
