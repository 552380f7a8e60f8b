"""The class an NVFlare site runs: installed with the package and named on the site's allow-list."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path

from nvflare.collab import collab

from feddbn.errors import FeddbnError, SiteRefused
from feddbn.federation.protocol.endpoint import SiteEndpoint
from feddbn.federation.protocol.messages import WITHHELD, encode_reply, refusal
from feddbn.runtime.engines.nvflare.housekeeping import leave_out_tensors, prune_site_jobs
from feddbn.runtime.settings import read_site_settings
from feddbn.runtime.site.open_site import open_site

leave_out_tensors()
_log = logging.getLogger("feddbn.site")


def _submitter(meta: Path) -> str:
    """Return who sent the job: the name in the certificate that the server saw, as the server tells it."""
    try:
        return str(json.loads(meta.read_text(encoding="utf-8")).get("submitter_name") or "")
    except (OSError, ValueError, AttributeError):
        return ""


class FeddbnSite:
    """Passes bytes between NVFlare and the site's endpoint."""

    def __init__(self) -> None:
        self._endpoint: SiteEndpoint | None = None
        self._opening = threading.Lock()

    def _open(self) -> SiteEndpoint:
        # NVFlare calls from several threads; a message that is asked again while the data are still being read must
        # meet the same endpoint, whose lock puts messages in order.
        with self._opening:
            if self._endpoint is None:
                path = Path(collab.workspace.get_site_config_dir()) / "feddbn_site.toml"
                settings = read_site_settings(path)
                kit = Path(collab.workspace.get_root_dir())
                job = collab.fl_ctx.get_job_id()
                prune_site_jobs(kit, settings.keep_days, keep=job)
                sent_by = _submitter(Path(collab.workspace.get_job_meta_path(job)))
                self._endpoint = open_site(settings, collab.site_name, _log, submitter=sent_by)
            return self._endpoint

    @collab.publish  # type: ignore[untyped-decorator]
    def handle(self, message: bytes) -> bytes:
        """Return the endpoint's reply.

        Settings are read with the first message, not when the job starts: NVFlare fails the whole job if one
        site cannot start, while a site that answers with a refusal only leaves itself out.
        """
        try:
            return self._open().handle(message, caller=str(collab.caller))
        except FeddbnError as error:
            _log.error("%s", error)
            return encode_reply(refusal(collab.site_name, None, SiteRefused(WITHHELD)))
