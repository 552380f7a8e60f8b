"""Importing this package registers every site program: what a site can be asked.

A site loads this and nothing above it, so that a site process starts without the estimators and their
libraries.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

__all__: list[str] = []

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
