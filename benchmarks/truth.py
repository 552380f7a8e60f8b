"""Claims against a known truth: simulated systems, from clean networks to services that call each other.

    python -m benchmarks truth                               # every kind, 20 seeds: long
    python -m benchmarks truth --kind clean --seeds 1

A link or delayed edge between two variables is drawn above one half and claimed above .9; "wrong" are those
drawn that are not there and those there that are not drawn. A direction above .9 is right, reversed, or false
where there is no link.
"""

from __future__ import annotations

import argparse

from benchmarks.systems import KINDS
from benchmarks.tables import Score, fitted, print_head, print_line


def add_options(parser: argparse.ArgumentParser) -> None:
    """Nothing is returned: the options of this command are added to the parser."""
    parser.add_argument("--kind", choices=sorted(KINDS), help="one kind of system (default: all)")
    parser.add_argument(
        "--seeds", type=int, default=20, metavar="N", help="systems of each case (default: 20)"
    )
    parser.add_argument("--first-seed", type=int, default=0, metavar="SEED", help="the first of them")


def run(asked: argparse.Namespace) -> None:
    """Nothing is returned: one line is printed for each case."""
    print_head(["case", *Score.columns()])
    for kind in [asked.kind] if asked.kind else KINDS:
        for case, drawn in KINDS[kind].items():
            score = Score()
            for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
                sites, true = drawn(seed)
                score.add(fitted(sites), true)
            print_line([case, *score.cells()])
