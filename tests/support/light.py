"""The fixture `light`: fits without what takes longer than the fit itself.

Left out are resamples, doubts of edges that a hidden cause could stand for, and the comparison with sites alone.
A file names it by `pytestmark = pytest.mark.usefixtures("light")`; every other file tests what users get.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest


@contextmanager
def light_fits(*, alone_only: bool = False) -> Iterator[None]:
    """Leave it out in this process; with `alone_only` just the comparison with sites alone."""
    from feddbn.core.orders.hidden import HiddenDoubts
    from feddbn.federation.guards import study_plan
    from feddbn.methods.oneshot import OneShotSettings

    check = OneShotSettings.__post_init__

    def no_doubts(moments: Any, support: np.ndarray, *others: Any) -> HiddenDoubts:
        return HiddenDoubts(np.zeros_like(support))

    def no_resamples(settings: OneShotSettings) -> None:
        check(settings)
        if settings.resamples == "auto":
            object.__setattr__(settings, "resamples", 0)

    with pytest.MonkeyPatch.context() as patch:
        for method in ("oneshot", "fdbnl"):
            patch.setattr(f"feddbn.methods.{method}.is_compared", lambda federation: False)
        patch.setattr(study_plan, "_compares_alone", lambda study: False)
        if not alone_only:
            for program in ("oneshot", "residual_checks"):
                patch.setattr(f"feddbn.federation.programs.{program}.doubtful_edges", no_doubts)
            patch.setattr(OneShotSettings, "__post_init__", no_resamples)
            patch.setattr(study_plan, "usual_resamples", lambda d: 0)
        yield


@pytest.fixture(scope="module")
def light(pytestconfig: pytest.Config) -> Iterator[None]:
    """Fits of this file are light; what `make test-all` adds leaves out only the comparison with sites alone."""
    with light_fits(alone_only=pytestconfig.getoption("hypothesis_profile", None) == "thorough"):
        yield
