"""The class an NVFlare server runs for a study, and the exchange over NVFlare's calls."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nvflare.collab import collab
from nvflare.collab.api.exceptions import RunAborted

from feddbn.federation.protocol.messages import check_run_id
from feddbn.federation.protocol.study import study_from_json
from feddbn.runtime.engines.nvflare.housekeeping import PROGRESS_TOPIC, leave_out_tensors, prune_job_results
from feddbn.runtime.server.conduct import Progress, conduct
from feddbn.runtime.settings import load_programs, read_server_settings
from feddbn.runtime.store import prune_runs

leave_out_tensors()
_log = logging.getLogger("feddbn.server")


class NVFlareExchange:
    """One call per site in parallel, each with its own timeout; a failed call is a silent site."""

    def __init__(self, proxies: list[Any], timeout_s: float) -> None:
        self._proxies = {proxy.name: proxy for proxy in proxies}
        self._timeout_s = timeout_s
        self._asked: dict[str, float] = {}
        self._pool = ThreadPoolExecutor(max_workers=max(len(proxies), 1), thread_name_prefix="feddbn_call")

    @property
    def sites(self) -> frozenset[str]:
        """The sites of this job; one that comes later is in the next."""
        return frozenset(self._proxies)

    def awaited(self) -> dict[str, float]:
        """Return the sites that have not answered yet, and for how many seconds."""
        now = time.monotonic()
        return {site: now - asked for site, asked in sorted(self._asked.copy().items())}

    def __call__(self, messages: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Send and wait for all replies or the timeout."""
        calls = {
            site: self._pool.submit(self._call, self._proxies[site], message)
            for site, message in messages.items()
            if site in self._proxies
        }
        replies = {site: call.result() for site, call in calls.items()}
        return {site: reply for site, reply in replies.items() if reply is not None}

    def _call(self, proxy: Any, message: bytes) -> bytes | None:
        self._asked[proxy.name] = time.monotonic()
        try:
            reply = proxy(timeout=self._timeout_s).handle(message)
        except RunAborted:
            raise
        except Exception as error:
            _log.warning("the call to site %r failed: %s", proxy.name, type(error).__name__)
            return None
        finally:
            self._asked.pop(proxy.name, None)
        return reply if isinstance(reply, bytes) else None

    def close(self) -> None:
        """Stop the threads; calls under way are not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class FeddbnServer:
    """Runs one study; `study` is its canonical text, `run_id` outlives this job."""

    def __init__(self, study: str, run_id: str) -> None:
        self._study = study
        self._run_id = run_id

    @collab.main  # type: ignore[untyped-decorator]
    def run(self) -> None:
        """Run or resume the study; result files go to the job's directory, where a download finds them."""
        workspace = collab.workspace
        settings = read_server_settings(Path(workspace.get_site_config_dir()) / "feddbn_server.toml")
        load_programs(settings.programs)
        study = study_from_json(self._study)
        run_id = check_run_id(self._run_id)
        prune_runs(settings.runs, settings.keep_days, keep=(run_id, study.update_of))
        kit = Path(workspace.get_root_dir())
        prune_job_results(kit, settings.keep_days, keep=collab.fl_ctx.get_job_id())
        exchange = NVFlareExchange(list(collab.clients), study.attendance.timeout_s)
        progress = Progress(run_id, study.sites, exchange.awaited)
        collab.fl_ctx.get_engine().register_app_command(PROGRESS_TOPIC, _answer_progress, progress)
        out = Path(workspace.get_run_dir(collab.fl_ctx.get_job_id()))
        try:
            conduct(exchange, study, run_id, settings.runs, out, progress, _log.warning, exchange.sites)
        finally:
            exchange.close()


def _answer_progress(topic: str, data: Any, fl_ctx: Any, progress: Progress) -> dict[str, Any]:
    return progress.read()
