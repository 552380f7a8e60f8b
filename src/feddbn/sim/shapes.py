"""What is not linear in a system: curves of its edges, products of causes, and the units in which they are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from feddbn.core.arrays import FloatArray
from feddbn.sim.curves import REACH, Curve

__all__ = ["Edge", "EdgeEffect", "Product", "Shapes"]

Edge = tuple[int, int, int]
"""(lag, from, to); lag 0 is within a moment."""


@dataclass(frozen=True)
class Product:
    """``weight * sqrt(s_a s_b) * c(z_a) c(z_b)`` acts on a target, with c: kept within +-`feddbn.sim.curves.REACH`.

    Attributes
    ----------
    causes
        Two different variables, each as (variable, lag), lags from 1 on.
    target
        The variable they act on.
    weight
        Its size, with a sign.

    Examples
    --------
    >>> from feddbn.sim import Product
    >>> Product(causes=((0, 1), (1, 1)), target=2, weight=0.3).edges
    ((1, 0, 2), (1, 1, 2))
    """

    causes: tuple[tuple[int, int], tuple[int, int]]
    target: int
    weight: float

    @property
    def edges(self) -> tuple[Edge, Edge]:
        """The two edges it stands for."""
        (a, lag_a), (b, lag_b) = self.causes
        return (lag_a, a, self.target), (lag_b, b, self.target)


@dataclass(frozen=True, eq=False)
class Shapes:
    """Everything about a system that is not linear.

    Attributes
    ----------
    curves
        Edge -> its curve; an edge that is not here is straight.
    products
        Pairs of lagged causes that act together.
    centre, scale
        (d,) about the means and standard deviations of the variables: curves are functions of
        ``z = (x - centre) / scale``.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.sim import Shapes
    >>> shapes = Shapes(centre=np.array([1.0]), scale=np.array([2.0]))
    >>> shapes.standardised(np.array([3.0]), 0).tolist()
    [1.0]
    """

    curves: Mapping[Edge, Curve] = field(default_factory=dict)
    products: tuple[Product, ...] = ()
    centre: FloatArray = field(default_factory=lambda: np.zeros(0))
    scale: FloatArray = field(default_factory=lambda: np.zeros(0))

    def damped(self, factor: float) -> Shapes:
        """The shapes with every product multiplied by `factor` to the power of its largest lag."""
        products = tuple(
            replace(product, weight=product.weight * factor ** max(lag for _, lag in product.causes))
            for product in self.products
        )
        return replace(self, products=products)

    def standardised(self, x: FloatArray, variable: int) -> FloatArray:
        """``z`` of values of a variable."""
        return np.asarray((x - self.centre[variable]) / self.scale[variable])

    def acting(self, product: Product, lagged: tuple[FloatArray, FloatArray]) -> FloatArray:
        """What a product adds to its target, given the values of its two causes."""
        size = product.weight
        total = np.ones_like(lagged[0])
        for (variable, _), x in zip(product.causes, lagged, strict=True):
            size *= float(np.sqrt(self.scale[variable]))
            total = total * np.clip(self.standardised(x, variable), -REACH, REACH)
        return size * total


@dataclass(frozen=True, eq=False)
class EdgeEffect:
    """The function of one edge: what a value of the cause adds to the target. Call it with values.

    Attributes
    ----------
    kind
        "linear", a kind of curve, or "product" for a cause that acts through products only (it then adds 0 by itself).
    weight
        Of the edge: ``weight * scale * f((x - centre) / scale)``, or ``weight * x`` if it is linear.
    centre, scale
        About the mean and the standard deviation of the cause.
    curve
        f, or None if it is linear.

    Examples
    --------
    >>> from feddbn.sim import EdgeEffect
    >>> straight = EdgeEffect("linear", weight=0.5, centre=0.0, scale=1.0, curve=None)
    >>> straight([0.0, 2.0]).tolist()
    [0.0, 1.0]
    """

    kind: str
    weight: float
    centre: float
    scale: float
    curve: Curve | None

    def __call__(self, values: ArrayLike) -> FloatArray:
        """What these values of the cause add to the target."""
        x = np.asarray(values, dtype=np.float64)
        if self.curve is None:
            return np.asarray(self.weight * x)
        return np.asarray(self.weight * self.scale * self.curve((x - self.centre) / self.scale))

    def points(self, n: int = 61) -> tuple[FloatArray, FloatArray]:
        """`n` values of the cause from three standard deviations below its mean to three above, and what they add."""
        x = self.centre + self.scale * np.linspace(-REACH, REACH, n)
        return x, self(x)
