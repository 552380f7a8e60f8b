"""A lead who plans many studies: no set of dry rounds shows few sites, and greetings tell nothing of rows."""

import contextlib
import itertools

import numpy as np
import pytest

from feddbn.errors import NotEnoughSites, SiteRefused
from feddbn.runtime.server.conduct import run_study
from feddbn.runtime.server.coordinator import Coordinator
from feddbn.runtime.server.plan import dry_round
from feddbn.runtime.settings import load_programs
from support.faults import MemoryJournal
from support.hostile import Sites

pytestmark = pytest.mark.usefixtures("light")

K, FEWEST = 6, 3


def shows_few(sets):
    """Whether a combination of sums over these sets vanishes but at one or two sites; tried for all of these."""
    table = np.array([[float(i in one) for i in range(K)] for one in sets])
    full = np.linalg.matrix_rank(table)
    for n in range(1, FEWEST):
        for few in itertools.combinations(range(K), n):
            rest = np.delete(table, few, axis=1)
            if np.linalg.matrix_rank(rest) < full:
                return True
    return False


def test_no_sequence_of_plans_isolates_sites(tmp_path):
    load_programs(("feddbn.analysis.studies",))
    sites = Sites(tmp_path, k=K, rows=40)

    def exchange(messages):
        return {name: sites.ends[name].handle(message) for name, message in messages.items()}

    opened = []
    wanted = [(0, 1, 2), (0, 1, 2, 3), (0, 1, 2, 3, 4, 5), (2, 3, 4), (3, 4, 5), (0, 3, 4, 5)]
    for number, chosen in enumerate(wanted):
        dry = dry_round(sites.study("oneshot", [sites.names[i] for i in chosen]))
        run = Coordinator(exchange, dry, f"plan-{number}", MemoryJournal(), pause_s=0.0, opening_s=0.0)
        with contextlib.suppress(NotEnoughSites):
            run_study(run, dry)
            opened.append(chosen)
    refused = [one for one in wanted if one not in opened]
    assert not shows_few(opened)
    # The rule is no more than that: whatever was refused would have shown few.
    assert opened == [(0, 1, 2), (0, 1, 2, 3, 4, 5), (3, 4, 5)]
    assert all(shows_few([*opened, one]) for one in refused)


def test_what_a_greeting_says_does_not_depend_on_rows(tmp_path):
    told = []
    for seed, rows in ((0, 60), (1, 90)):
        (tmp_path / str(seed)).mkdir()
        sites = Sites(tmp_path / str(seed), k=3, rows=rows, seed=seed)
        study = sites.study("oneshot")
        agreed = sites.greet(dry_round(study), "plan-1")
        with pytest.raises(SiteRefused, match=r"units = \{x0") as error:
            sites.greet(dry_round(study.model_copy(update={"units": {"x0": "mmHg"}})), "plan-2")
        meta = {name: {k: v for k, v in reply.meta.items() if k != "head"} for name, reply in agreed.items()}
        told.append((meta, {name: list(reply.arrays) for name, reply in agreed.items()}, str(error.value)))
    assert told[0] == told[1]
