"""One thread of linear algebra: small matrices are slower with more, and sums keep their last digit."""

from __future__ import annotations

import functools
import sys
from contextlib import AbstractContextManager

from threadpoolctl import ThreadpoolController


def one_thread() -> AbstractContextManager[object]:
    """Return a context in which linear algebra uses one thread."""
    limit: AbstractContextManager[object] = _libraries(len(sys.modules)).limit(limits=1)
    return limit


@functools.lru_cache(maxsize=1)
def _libraries(n_modules: int) -> ThreadpoolController:
    """The thread pools of this process. Looking for them takes milliseconds, so it is done when a module was added."""
    return ThreadpoolController()
