"""A study in a job of a server's kit, whatever carries its messages: NVFlare's calls, or tasks where it has no calls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from feddbn.federation.protocol.messages import check_run_id
from feddbn.federation.protocol.study import Study, study_from_json
from feddbn.runtime.engines.nvflare.housekeeping import PROGRESS_TOPIC, leave_out_tensors, prune_job_results
from feddbn.runtime.server.conduct import Progress, conduct
from feddbn.runtime.settings import load_programs, read_server_settings
from feddbn.runtime.store import prune_runs

leave_out_tensors()
_log = logging.getLogger("feddbn.server")


class Carrier(Protocol):
    """An exchange that knows its sites."""

    @property
    def sites(self) -> frozenset[str]:
        """The sites of this job; one that comes later is in the next."""
        ...

    def __call__(self, messages: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Send and wait for all replies or the timeout."""
        ...

    def awaited(self) -> Mapping[str, float]:
        """Return the sites that have not answered yet, and for how many seconds."""
        ...

    def close(self) -> None:
        """End what it has begun."""
        ...


def run_in_kit(study_text: str, run_id: str, fl_ctx: Any, carry: Callable[[Study], Carrier]) -> None:
    """Run or resume the study; result files go to the job's directory, where a download finds them."""
    engine, job = fl_ctx.get_engine(), fl_ctx.get_job_id()
    workspace = engine.get_workspace()
    settings = read_server_settings(Path(workspace.get_site_config_dir()) / "feddbn_server.toml")
    load_programs(settings.programs)
    study = study_from_json(study_text)
    prune_runs(settings.runs, settings.keep_days, keep=(check_run_id(run_id), study.update_of))
    prune_job_results(Path(workspace.get_root_dir()), settings.keep_days, keep=job)
    exchange = carry(study)
    progress = Progress(run_id, study.sites, exchange.awaited)
    engine.register_app_command(PROGRESS_TOPIC, _answer_progress, progress)
    out = Path(workspace.get_run_dir(job))
    try:
        conduct(exchange, study, run_id, settings.runs, out, progress, _log.warning, exchange.sites)
    finally:
        exchange.close()


def _answer_progress(topic: str, data: Any, fl_ctx: Any, progress: Progress) -> dict[str, Any]:
    return progress.read()
