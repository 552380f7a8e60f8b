"""Public benchmark data, read from a directory or downloaded with checksums; none is in the package."""

from feddbn.datasets.dream4 import dream4
from feddbn.datasets.netsim import netsim
from feddbn.datasets.source import Dataset

__all__ = ["Dataset", "dream4", "netsim"]
