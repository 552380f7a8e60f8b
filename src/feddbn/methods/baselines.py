"""The paper's baselines: what sites can do without a federated method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from feddbn.core.constraints import Edge, has_cycle
from feddbn.core.graph import break_cycles, threshold
from feddbn.core.status import Status
from feddbn.data import SiteData
from feddbn.errors import ParameterError
from feddbn.federation.local_fits import LocalSettings, best_site_program, local_fits_program
from feddbn.federation.task import Federation, Observer
from feddbn.methods.base import DBNEstimator
from feddbn.methods.dynotears import Dynotears
from feddbn.methods.fdbnl import ConsensusEstimator
from feddbn.model.dbn import DBN

__all__ = ["Average", "BestSite", "LocalOnly", "Vote"]
