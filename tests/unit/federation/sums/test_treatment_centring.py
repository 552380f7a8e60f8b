"""Means of recordings that are asked for by name are taken off, also where nothing else is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import feddbn
from feddbn import AS_THEY_ARE
from feddbn.core.designs.design import Nuisance
from feddbn.core.designs.gram import restored


@pytest.mark.parametrize("look", [{}, {"missing": "fill"}, {"robust": "auto"}])
def test_means_of_recordings_are_taken_off(look):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 300, 2))
    prepare = replace(AS_THEY_ARE, **look, center="recording")
    near, far = (feddbn.summary({"a": x, "b": y + shift}, 1, prepare=prepare) for shift in (0.0, [5.0, -5.0]))
    np.testing.assert_allclose(near.covariance(), far.covariance(), atol=1e-9)
    parts = [np.hstack([one[1:], one[:-1]]) for one in (x, y)]
    within = sum((part - part.mean(axis=0)).T @ (part - part.mean(axis=0)) for part in parts)
    # What the means took along of the series is put back.
    whole = 598 * restored(within / 598, 2, Nuisance("recording"), 299)
    np.testing.assert_allclose(far.moments.scatter, whole, rtol=1e-9, atol=1e-8)
