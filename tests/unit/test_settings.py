"""Settings: one frozen class gives the signature, the checks and the names."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from feddbn.settings import MethodSettings, Settings, group, setting, takes, whole, word


@dataclass(frozen=True)
class Rows(Settings):
    center: str = setting("auto", word("auto", "none"), "Whose mean is taken off.")


@dataclass(frozen=True)
class Toy(MethodSettings):
    n_lags: int = setting(1, whole(0), "Lags.", kw_only=False)
    rows: Rows = setting(Rows(), group(Rows), "What is done to the rows.")


class ToyDBN(BaseEstimator):  # type: ignore[misc]
    @takes(Toy)
    def __init__(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def test_the_signature_is_that_of_the_settings() -> None:
    assert str(signature(ToyDBN)).startswith("(n_lags: 'int' = 1, *, rows: 'Rows' = ")
    assert ToyDBN._get_param_names() == ["federation", "n_lags", "rows"]
    assert Toy.given_names() == ("n_lags", "rows.center")


def test_values_are_stored_as_given_and_cloned() -> None:
    model = ToyDBN(3, rows=Rows(center="none"))
    assert clone(model).get_params() == {"federation": None, "n_lags": 3, "rows": Rows(center="none")}


def test_dotted_names() -> None:
    assert ToyDBN(**{"rows.center": "none"}).rows == Rows(center="none")


def test_numbers_of_numpy_become_plain() -> None:
    assert type(Toy(n_lags=np.int64(2)).n_lags) is int
