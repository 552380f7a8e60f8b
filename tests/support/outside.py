"""Parts of examples and benchmarks that tests look into."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def outside(path: str) -> ModuleType:
    """Return the module at a path below the project's root."""
    name = path.removesuffix(".py").replace("/", "_")
    if name not in sys.modules:
        spec = spec_from_file_location(name, ROOT / path)
        assert spec is not None
        assert spec.loader is not None
        # Data classes look for their module there.
        sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]
