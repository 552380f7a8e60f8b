"""Public benchmark data, read from a directory or downloaded with checksums; none is in the package."""

from feddbn.datasets.dream4 import dream4
from feddbn.datasets.it_monitoring import IT_SYSTEMS, load_it_monitoring
from feddbn.datasets.netsim import netsim
from feddbn.datasets.source import Dataset
from feddbn.datasets.tennessee_eastman import load_tennessee_eastman

__all__ = ["IT_SYSTEMS", "Dataset", "dream4", "load_it_monitoring", "load_tennessee_eastman", "netsim"]
