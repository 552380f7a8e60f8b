"""A network that changes at every site at a time of its own, from the moments of each site's blocks.

The blocks of one site after the other are asked for, so this is for sites in one process. It cannot be done by sums over
sites: whoever chooses the networks by which sites deal out their blocks can make a single site move one block from one
regime to the next, and the sums before and after then differ by that block of that site.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from feddbn.core.changes.fits import ChangeOptions
from feddbn.core.changes.regimes import learn_regimes
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.federation.programs.block_moments import block_moments_program
from feddbn.federation.programs.changing import (
    ChangingOutcome,
    TimeBlocks,
    first_sums_program,
    shortest_segment,
    trimmed,
)
from feddbn.federation.programs.oneshot import OneShotOptions, learn_from_moments
from feddbn.federation.protocol.block_wish import BlockWish
from feddbn.federation.protocol.rows import treated
from feddbn.federation.protocol.task import ServerProgram, asked_of

__all__ = ["site_clocks_program"]


def site_clocks_program(
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    options: OneShotOptions,
    changes: ChangeOptions,
    wish: BlockWish,
    sites: tuple[str, ...],
    rng: np.random.Generator,
) -> ServerProgram[ChangingOutcome]:
    """Ask, find the regimes and every site's changes, and learn one network for all rows if there are none."""
    asked, n_sums, blocks, question = yield from first_sums_program(variables, options, wish, None)
    by_site = {}
    for name in sites:
        program = asked_of(treated(block_moments_program(question), asked.treatment), (name,))
        by_site[name] = yield from program
    if not blocks.rows:
        last = max(trimmed(blocks, found)[0].n for found in by_site.values())
        blocks, by_site = replace(blocks, n=last), {name: found[:last] for name, found in by_site.items()}
    by_site = {name: found for name, found in by_site.items() if sum(block.n for block in found) > 0}
    n = sum(block.n for found in by_site.values() for block in found)
    shortest = shortest_segment(n, blocks, asked.moments.q)
    found = learn_regimes(by_site, len(variables), constraints, replace(changes, shortest=shortest), rng)
    constant = None
    if not found.changing.cuts:
        constant = learn_from_moments(asked.moments, variables, constraints, options, rng)
    regimes = TimeBlocks(BlockWish("regime"), len(found.moments), 0, 1)
    return ChangingOutcome(
        found.changing,
        constant,
        found.moments,
        regimes,
        asked.moments,
        asked,
        n_sums + len(sites),
        n >= 2 * shortest,
        site_cuts=found.cuts,
        site_blocks=blocks,
    )
