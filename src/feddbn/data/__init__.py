"""Anything with rows -> sites of recordings, with a profile of their tables and findings; rows are read once.

What a table's columns are is one `Layout`; what comes in is tables of any kind, what goes out is a `Site`.
May import: core and below.
"""

from feddbn.core.designs.recordings import SiteData
from feddbn.data.checks import check_sites, summary
from feddbn.data.layout import ROW_TIMES
from feddbn.data.read import read_site, read_sites
from feddbn.data.site import Recording, Site
from feddbn.data.sources import PLAUSIBLE
from feddbn.data.tables import SqlTable, batches

__all__ = [
    "PLAUSIBLE",
    "ROW_TIMES",
    "Recording",
    "Site",
    "SiteData",
    "SqlTable",
    "batches",
    "check_sites",
    "read_site",
    "read_sites",
    "summary",
]
