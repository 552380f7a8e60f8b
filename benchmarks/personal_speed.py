"""PFDBNL against a transcription of Algorithm 2 in the paper's fMRI setting (K=5, n=200 rows per site, d=15).

CPU seconds and the joint objective of both, seed by seed; see `naive.py` for the transcription.

    python benchmarks/personal_speed.py [n_seeds]
"""

import sys

from against_naive import pfdbnl_table
from threadpoolctl import threadpool_limits

if __name__ == "__main__":
    n_seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with threadpool_limits(1):
        for mu in (1.0, 0.1):
            table = pfdbnl_table(n_seeds, 300.0, mu)
            if table is not None:
                print(table.text(), flush=True)
