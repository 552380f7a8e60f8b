"""PFDBNL against a transcription of Algorithm 2 in the paper's fMRI setting (K=5, n=200 rows per site, d=15).

CPU seconds and the joint objective of both, seed by seed; see `naive.py` for the transcription.

    python benchmarks/personal_speed.py [n_seeds]
"""

import sys

from against_naive import FMRI, pfdbnl_table
from threadpoolctl import threadpool_limits


def main(n_seeds: int, setting: tuple[int, int, int] = FMRI) -> None:
    with threadpool_limits(1):
        for mu in (1.0, 0.1):
            print(pfdbnl_table(n_seeds, 300.0, mu, setting).text(), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
