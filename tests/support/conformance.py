"""The studies that must give the same numbers on every runtime, and their results in this process."""

from feddbn.engine.conformance import PARAMETERS, assert_same, in_process, make_study, plans

__all__ = ["PARAMETERS", "assert_same", "in_process", "make_study", "plans"]
