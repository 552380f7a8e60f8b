"""Curved effects of a fitted `OneShotDBN`: from what was learned to the parts of its network and to sentences."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.features import callable_map, feature_map, register_feature_map
from feddbn.errors import ParameterError, ResultWarning
from feddbn.federation.programs.curved import MAPS, CurvedOutcome, features_of
from feddbn.model.curves import Curve, Product

__all__ = ["NO_SHAPES", "features_name", "named_features", "say_curves", "shapes_of"]

# With fewer effective rows under noise curves miss a quarter of the edges and more (docs/nonlinear.md, Under noise).
_ROWS_PER_COLUMN, _FEWEST_ROWS = 5.0, 200.0
NO_SHAPES: dict[str, Any] = {}
"""What a linear network has beside its weights."""


def named_features(features: str | Callable[[FloatArray], FloatArray], d: int) -> str:
    """Return the name of a choice of `features`; a function is registered under its own."""
    if callable(features):
        own = callable_map(features, d)
        register_feature_map(own)
        return own.name
    if features in MAPS:
        return features
    own = feature_map(features)
    if own.has_identity:
        raise ParameterError(
            f"features={features!r} begins with the value itself, which is in the model anyway; register the map without it "
            "and with has_identity=False."
        )
    return own.name


def features_name(curved: CurvedOutcome) -> str:
    """Return the choice of `features` that a network was learned with."""
    return features_of(curved.design.terms[1].basis.name)


def shapes_of(curved: CurvedOutcome) -> dict[str, Any]:
    """Return the curves and products of a network as `DBN` takes them.

    Under noise curves have no band: one that counts effective rows would be too narrow (docs/nonlinear.md, Under noise).
    """
    origin, scale, basis = curved.design.origin, curved.design.scale, features_name(curved)
    curves = tuple(
        Curve(
            one.source,
            one.target,
            one.lag,
            origin[one.source],
            scale[one.source],
            tuple(one.coefficients.tolist()),
            basis,
            () if curved.is_noisy else tuple(map(tuple, one.covariance.tolist())),
        )
        for one in curved.network.curves
    )
    products = tuple(
        Product(
            one.first,
            one.second,
            one.target,
            one.lag,
            one.weight,
            (origin[one.first], origin[one.second]),
            (scale[one.first], scale[one.second]),
        )
        for one in curved.network.products
    )
    return {"curves": curves, "products": products}


def _say_few_rows(estimator: Any, curved: CurvedOutcome) -> None:
    """Warn if noise has left so few effective rows for so many columns that curves and weak edges are missed."""
    n, q = curved.told.moments.n, curved.design.q
    if n >= max(_ROWS_PER_COLUMN * q, _FEWEST_ROWS):
        return
    others = (
        "features='linear'" if curved.design.terms[1].basis.width == 1 else "features='quadratic' or 'linear'"
    )
    sentence = (
        f"the noise leaves as much as {n:.0f} rows would tell about {q} columns of lines and curves: many edges and "
        f"curves may be missed; use {others}, more recordings or a larger epsilon."
    )
    estimator._tell(sentence)
    warnings.warn(sentence, ResultWarning, stacklevel=6)


def say_curves(estimator: Any, curved: CurvedOutcome) -> None:
    """Say in `warnings_` what is curved, and why that was modelled if nobody asked for it."""
    if curved.is_noisy:
        _say_few_rows(estimator, curved)
    network = curved.network
    n_edges = int(np.count_nonzero(network.weights))
    what = f"{len(network.curves)} of {n_edges} edges are curved"
    if network.products:
        what += f", and {len(network.products)} pairs of variables act together"
    if curved.gain is not None:
        estimator.reason_ += f"; curved effects score {curved.gain:.0f} better than straight ones"
        what += (
            f" (features='auto' took splines: the score is better by {curved.gain:.0f}); features='linear' leaves "
            "straight lines"
        )
    estimator._tell(
        f"{what}. Weights are average slopes; `dbn_.effect(source, target, lag).to_frame()` has the curves."
    )
