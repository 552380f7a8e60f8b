"""The estimator of `support.toy_method` without its row in the method table, which importing that module adds."""

from support.registries import restored

with restored():
    from support.toy_method import Toy, ToySettings

__all__ = ["Toy", "ToySettings"]
