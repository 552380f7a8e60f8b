"""A study over any exchange: run it, or go on with it, in a folder."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection
from pathlib import Path

from feddbn.errors import reading
from feddbn.federation.protocol.messages import Exchange, check_run_id
from feddbn.federation.protocol.study import Study, StudyResult, parse_study

_log = logging.getLogger("feddbn.server")


def conduct(
    study: Study | str | Path,
    exchange: Exchange,
    folder: str | Path,
    *,
    run: str | None = None,
    here: Collection[str] | None = None,
    log: Callable[[str], None] = _log.warning,
) -> StudyResult:
    """Run a study, or go on with a run of it, and return its result.

    Parameters
    ----------
    study
        A study, or the path of its TOML file.
    exchange
        Carries one message to each site named and returns the replies of those that answered; silence is no error.
    folder
        Where the server keeps its runs: journals, and for each run a folder with ``outcome.json`` and ``result.feddbn``.
    run
        Name of the run. One that the folder has already goes on where it stopped, with the same numbers as if it had not;
        None begins a new one, named after the study and the time.
    here
        The sites that the exchange can reach now; None is all. Others are not waited for.
    log
        Hears in one sentence each of what a person should know while it runs.

    Raises
    ------
    ParameterError
        If the study cannot be run as it is written; nothing was sent.
    NotEnoughSites
        If sites that it needs are silent or refuse; the run can go on later.
    StillCollecting
        If a study that collects waits for sites; the run goes on when it is called again.

    Examples
    --------
    >>> import tempfile
    >>> import feddbn
    >>> from feddbn.engine import conduct, make_sites, open_site
    >>> from feddbn.federation.protocol.study import Study
    >>> made = feddbn.simulate(d=3, n_sites=3, n_samples=900, random_state=0)
    >>> about = {"purpose": "a trial", "contact": "lead@example.org", "retention": "a day"}
    >>> names = {"variables": ("x0", "x1", "x2"), "sites": tuple(made.sites)}
    >>> study = Study(name="try", method="summary", about=about, **names)
    >>> policy = "approve_by_rule = true; require_masking = false".replace("; ", chr(10))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     places = make_sites(folder, made.sites)
    ...     for name, place in places.items():
    ...         made.sites[name][0].to_csv(place / "data" / "rows.csv", index=False)
    ...         _ = (place / "policy.toml").write_text(policy)
    ...     ends = {name: open_site(place) for name, place in places.items()}
    ...     result = conduct(study, lambda asked: {n: ends[n].handle(m) for n, m in asked.items()}, folder)
    >>> result.arrays["A"].shape
    (1, 3, 3)
    """
    # A site imports this module, too, and needs none of it.
    from feddbn.runtime.server import conduct as server
    from feddbn.runtime.store import run_directory

    if not isinstance(study, Study):
        path = Path(study)
        with reading(f"the study file {path}"):
            study = parse_study(path.read_text(encoding="utf-8"), str(path))
    server.check_study(study)
    now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    run_id = check_run_id(f"{study.name}-{now}-{secrets.token_hex(2)}" if run is None else run)
    runs = Path(folder)
    out = run_directory(runs, run_id)
    return server.conduct(exchange, study, run_id, runs, out, server.Progress(run_id, study.sites), log, here)
