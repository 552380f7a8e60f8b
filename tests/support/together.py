"""What several processes do at the same time; a spawned process imports it from here."""

from __future__ import annotations

from feddbn.errors import AggregationError
from feddbn.privacy.register import Register
from feddbn.runtime.site.registers import FileShelf
from feddbn.runtime.store import Store


def add_ones(folders, n, together):
    """Add `n` ones to a number in each store, all at once."""
    for folder in folders:
        store = Store(folder)
        together.wait()
        for _ in range(n):
            with store.hold():
                store.put("run", "sum", b"%d" % (int(store.get("run", "sum") or 0) + 1))


def admit(place, entry, together, results):
    """Tell whether a site's register lets a set of sites be summed."""
    register = Register("1", FileShelf(place, "run", "s"))
    register.tell()
    together.wait()
    try:
        register.admit(entry, (), 3)
        results.put(True)
    except AggregationError:
        results.put(False)
