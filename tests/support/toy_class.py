"""The estimator of `support.toy_method` without its row in the method table, which importing that module adds."""

from feddbn import method_table
from feddbn.federation.protocol import study as study_methods
from support.toy_method import Toy, ToySettings

__all__ = ["Toy", "ToySettings"]

method_table._TABLE.pop("toy", None)
study_methods._METHODS.pop("toy", None)
