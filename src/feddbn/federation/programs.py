"""Importing this module registers every site program of the package: what a site can be asked.

A site loads this and nothing above it, so that a site process starts without the estimators and their
libraries.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

import feddbn.federation

__all__: list[str] = []

for _module in pkgutil.iter_modules(feddbn.federation.__path__, "feddbn.federation."):
    if _module.name != __name__:
        import_module(_module.name)
