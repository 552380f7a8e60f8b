"""What is asked to learn one kind of network, beyond the sums that all have in common.

Importing this package registers every site program, those of `federation.sums` included. A site loads this and nothing
above it, so that its process starts without the estimators and their libraries.
May import: federation.protocol, federation.sums, core and below.
"""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module

from feddbn.federation import sums

__all__: list[str] = []

for _room in (sums, sys.modules[__name__]):
    for _module in pkgutil.walk_packages(_room.__path__, f"{_room.__name__}."):
        import_module(_module.name)
