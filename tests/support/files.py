"""Tables as a check reads them, and tables that are too many for memory, without many rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from feddbn.data.doubts import doubts
from feddbn.data.layout import Layout
from feddbn.data.read import read_all
from feddbn.findings import Findings


def doubts_of(data: Any, **read: Any) -> Findings:
    """What tables show by themselves."""
    layout = Layout(**read)
    return doubts(read_all(data, layout).sites, layout.kinds)


@contextmanager
def in_files(batch_rows: int = 37, n_bytes: int = 0) -> Iterator[None]:
    """Rows that are read go into files from the first batch on, and come in small batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("feddbn.data.read.MOST_BYTES", n_bytes)
        for module in ("tables", "site", "rows"):
            patch.setattr(f"feddbn.data.{module}.BATCH_ROWS", batch_rows)
        patch.setattr("feddbn.data.rows._LOOKED_THROUGH", 2 * batch_rows)
        patch.setattr("feddbn.data.collect._AT_ONCE", 2 * batch_rows)
        yield


@contextmanager
def in_memory(batch_rows: int = 65536) -> Iterator[None]:
    """Rows stay in memory."""
    yield
