"""Sites of arrays in this process, as tests ask them."""

from __future__ import annotations

from contextlib import nullcontext

from feddbn.core.designs.recordings import Block
from feddbn.data import Recording
from feddbn.data import Site as DataSite
from feddbn.data.site import with_columns
from feddbn.federation.guards.row_set_guard import RowTable
from feddbn.federation.protocol.site import Site
from feddbn.runtime.simulated.in_process import InProcessFederation


def memory_site(*tables, names=None):
    """A site with one recording for each table: an array, or a block of rows."""
    blocks = [table if isinstance(table, Block) else Block(table) for table in tables]
    names = names or tuple(f"x{j}" for j in range(blocks[0].values.shape[1]))
    return DataSite(names, [Recording(f"r{k}", (block,)) for k, block in enumerate(blocks)])


def federation_of(data):
    """A federation of sites: their data by name, or lists of tables."""
    if not isinstance(data, dict):
        data = {f"s{k}": memory_site(*tables) for k, tables in enumerate(data)}
    return InProcessFederation({name: Site(name, site) for name, site in data.items()})


class ColumnsInMemory:
    """The book of columns of a site that are remembered as long as a test runs."""

    def __init__(self):
        self.kept = []

    def hold(self):
        return nullcontext()

    def told(self):
        return list(self.kept)

    def add(self, told):
        self.kept += told


class RowsInMemory:
    """The book of rows of a site that are remembered as long as a test runs; `data` may be replaced by a later version."""

    def __init__(self, data):
        self.kept = []
        self.show(data)

    def show(self, data, version="now"):
        """Offer these data from now on."""
        self.data, self.version = data, version

    def hold(self):
        return nullcontext()

    def order(self):
        return {one.name: number for number, one in enumerate(self.data.recordings())}

    def table(self, variables=None):
        data = with_columns(self.data, tuple(variables or self.data.variables))
        return RowTable.of(data, self.order(), self.version, b"key")

    def used(self):
        return list(self.kept)

    def add(self, used):
        self.kept += used
