from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    """Import a script of the folder; what it imported is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(os, "environ", os.environ.copy())
    before = set(sys.modules)
    yield import_module
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == BENCHMARKS:
            del sys.modules[name]
