"""What is registered while a test runs is forgotten after it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import feddbn.analysis.studies
import feddbn.federation.programs  # noqa: F401 (both register what the package brings)
from feddbn import method_table
from feddbn.core.designs import features
from feddbn.federation.protocol import site, study

_REGISTRIES = (method_table._TABLE, study._METHODS, study._PERSONAL, site._REGISTRY, features._REGISTRY)


@contextmanager
def restored(*modules: str) -> Iterator[None]:
    """Put methods, studies, site programs and feature maps back as they were; `modules` are imported anew within."""
    before = [dict(registry) for registry in _REGISTRIES]
    loaded = {name: sys.modules.pop(name, None) for name in modules}
    try:
        yield
    finally:
        for registry, was in zip(_REGISTRIES, before, strict=True):
            registry.clear()
            registry.update(was)
        for name, module in loaded.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module
