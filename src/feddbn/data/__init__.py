"""From files and frames to recordings, segments and rows.

What a table's columns are is one `Layout`, times are one `Clock`, and rows
in memory and in files are cut into segments by the same code.
May import: core and below.
"""

from feddbn.core.designs.recordings import Recording, SiteData
from feddbn.data.checks import check_sites, check_variances, missing_cells, summary
from feddbn.data.layout import ROW_TIMES
from feddbn.data.memory import ArrayRecording, MemorySite
from feddbn.data.plausible import PLAUSIBLE
from feddbn.data.read import read_sites
from feddbn.data.streaming import CsvSite, ParquetSite
from feddbn.data.tables import SqlTable

__all__ = [
    "PLAUSIBLE",
    "ROW_TIMES",
    "ArrayRecording",
    "CsvSite",
    "MemorySite",
    "ParquetSite",
    "Recording",
    "SiteData",
    "SqlTable",
    "check_sites",
    "check_variances",
    "missing_cells",
    "read_sites",
    "summary",
]
