"""The class an NVFlare server runs for a study, and the exchange over NVFlare's calls."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

from nvflare.apis.controller_spec import Task
from nvflare.apis.shareable import Shareable
from nvflare.collab import collab
from nvflare.collab.api.exceptions import RunAborted
from nvflare.collab.runtime.defs import SETUP_TASK_NAME, SyncKey

from feddbn.runtime.engines.nvflare.running import run_in_kit

_log = logging.getLogger("feddbn.server")


class NVFlareExchange:
    """One call per site in parallel, each with its own timeout; a failed call is a silent site."""

    def __init__(
        self, proxies: list[Any], timeout_s: float, missed: Callable[[Any], None] = lambda proxy: None
    ) -> None:
        self._proxies = {proxy.name: proxy for proxy in proxies}
        self._timeout_s = timeout_s
        self._missed = missed
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
            self._missed(proxy)
            return None
        finally:
            self._asked.pop(proxy.name, None)
        return reply if isinstance(reply, bytes) else None

    def close(self) -> None:
        """Stop the threads; calls under way are not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class SecondSetup:
    """Has a site that was started again set up its end of the calls, which NVFlare does once, when a job begins."""

    def __init__(self, fl_ctx: Any) -> None:
        self._fl_ctx = fl_ctx
        self._asked: dict[str, Task] = {}
        self._lock = Lock()

    def __call__(self, proxy: Any) -> None:
        """Leave the task for a site that could not be called; it fetches it when it is back."""
        with self._lock:
            try:
                self._ask(proxy.name, proxy.backend.manager)
            except Exception as error:
                # The run can be resumed, as ever; another NVFlare may be built otherwise.
                _log.info("site %r is not set up again: %s", proxy.name, error)

    def _ask(self, site: str, controller: Any) -> None:
        # A site that is back has a new token, which the server's main process tells.
        self._fl_ctx.get_engine().sync_clients_from_main_process()
        before = self._asked.get(site)
        if before is not None and before.completion_status is None:
            return
        interfaces = {name: info.publish_interface for name, info in controller.client_info.items()}
        data = {
            SyncKey.COLLAB_INTERFACE: controller.server_app.get_collab_interface(),
            SyncKey.CLIENT_INTERFACES: interfaces,
            SyncKey.SERVER_FQCN: controller.cell.get_fqcn(),
        }
        self._asked[site] = task = Task(name=SETUP_TASK_NAME, data=Shareable(data))
        controller.broadcast(task=task, fl_ctx=self._fl_ctx, targets=[site])


class FeddbnServer:
    """Runs one study; `study` is its canonical text, `run_id` outlives this job."""

    def __init__(self, study: str, run_id: str) -> None:
        self._study = study
        self._run_id = run_id

    @collab.main  # type: ignore[untyped-decorator]
    def run(self) -> None:
        """Run or resume the study."""
        run_in_kit(
            self._study,
            self._run_id,
            collab.fl_ctx,
            lambda study: NVFlareExchange(
                list(collab.clients), study.attendance.timeout_s, SecondSetup(collab.fl_ctx)
            ),
        )
