"""The package's own site programs, each with a pause, so that a run of a real method can be hit in its middle."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import feddbn.federation.programs  # noqa: F401 (registers what is slowed down here)
from feddbn.federation.protocol.site import register_site_task, site_task

PACED = ("step.fdbnl", "step.personal")
PAUSE_S = 0.15


def _paced(answer):
    def slow(sites, question, memo):
        if not Path(os.environ.get("FEDDBN_TEST_QUICK", "")).is_file():
            time.sleep(PAUSE_S)
        return answer(sites, question, memo)

    return slow


for _name in PACED:
    _task = site_task(_name)
    register_site_task(replace(_task, answer=_paced(_task.answer)))
