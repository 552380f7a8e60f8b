"""A site's endpoint from its settings file: data, policy, durable store, event log."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from feddbn.core.designs.recordings import SiteData
from feddbn.core.kinds import Kind
from feddbn.data.checks import summary
from feddbn.data.layout import ROW_TIMES, Layout
from feddbn.data.profile import profile_of
from feddbn.data.read import read_sites
from feddbn.data.site import with_columns
from feddbn.data.times import clock_of
from feddbn.errors import FeddbnError, FileError, SiteRefused
from feddbn.federation.guards.study_plan import check_tasks, scope_of
from feddbn.federation.protocol.endpoint import (
    SiteEndpoint,
    SiteEvent,
    StudyCheck,
    kind_differences,
    unit_differences,
    unsaid_units,
)
from feddbn.federation.protocol.rows import BlockWish
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.study import Study, check_about
from feddbn.findings import Finding
from feddbn.privacy.keys import RandomBytes
from feddbn.privacy.policy import SitePolicy
from feddbn.runtime.settings import SiteSettings, load_programs, read_policy
from feddbn.runtime.site.audit import budget_finding
from feddbn.runtime.site.owner import Owner
from feddbn.runtime.site.protection import Protection
from feddbn.runtime.site.registers import SameData
from feddbn.runtime.store import (
    EventLog,
    FileStore,
    private_directory,
    prune_runs,
    run_directory,
)
from feddbn.words import card, say


def read_data(
    settings: SiteSettings, variables: tuple[str, ...] | None = None, kinds: Mapping[str, Kind] | None = None
) -> SiteData:
    """Return the site's recordings, with these of its variables; `kinds` are those of a study, of what it leaves open."""
    layout = settings.layout
    if variables is not None:
        said = {**(kinds or {}), **layout.kinds}
        own = {name: kind for name, kind in said.items() if name in variables}
        layout = replace(layout, variables=variables, kinds=own)
    # Rows that are too many for memory are written where the owner keeps everything else.
    place = settings.state if settings.state.is_dir() else None
    return read_sites({settings.name: settings.data}, layout=layout, place=place)[settings.name]


def rows_of(study: Study, settings: SiteSettings, data: SiteData, names: tuple[str, ...]) -> dict[str, Any]:
    """How many rows of this site a study can use; one that does not fill empty cells in uses complete rows only."""
    n_lags = 1 if study.n_lags is None else study.n_lags
    rows = summary({settings.name: with_columns(data, names)}, n_lags).iloc[0]
    fills = "fill" in scope_of(study, settings.max_lags).transformations
    return {
        "usable": int(rows["usable_rows" if fills else "complete_rows"]),
        "rows": int(rows["rows"] + rows["dropped_rows"]),
        "n_lags": n_lags,
        "complete": int(rows["complete_rows"]),
        "missing_percent": float(rows["missing_percent"]),
        "recordings": int(rows["recordings"]),
    }


def about_data(data: SiteData) -> Finding:
    """Return what the data are; counts only."""
    counts = summary({"": data}).iloc[0]
    values: dict[str, float] = {
        "recordings": int(counts["recordings"]),
        "rows": int(counts["rows"]),
        "left_out": int(counts["dropped_rows"]),
        "missing_percent": float(counts["missing_percent"]),
        "complete": int(counts["complete_rows"]),
    }
    return Finding("data-read", "good", values, tuple(data.variables))


def about_variables(data: SiteData, layout: Layout) -> Iterator[Finding]:
    """Yield of each variable where it comes from, what is done to it and how much there is; counts only."""
    is_changed = any(one.factor != 1 or one.offset for one in layout.units.values())
    if not (layout.names or layout.sources or layout.limits or is_changed):
        return
    said: dict[str, dict[str, int]] = {}
    for one in getattr(data, "findings", ()):
        said |= {key: one.values[key] for key in ("readings", "cells") if key in one.values}
    n_rows, profile = int(summary({"": data})["rows"].iloc[0]), profile_of("", data)
    for name in data.variables:
        filled = int(profile.n_numbers[profile.place[name]])
        values = {
            "sources": [
                {"name": one, **(asdict(layout.units[name]) if name in layout.units else {})}
                for _, one in layout.sources_of([name])
            ],
            "limits": layout.limits.get(name),
            "readings": said.get("readings", {}).get(name, filled),
            "beyond": said.get("cells", {}).get(name, 0),
            "filled": filled,
            "rows": n_rows,
        }
        yield Finding("variable-read", "note", values, (name,))


def study_checks(settings: SiteSettings, policy: SitePolicy, data: SiteData) -> list[StudyCheck]:
    """Return the site's own conditions on a study."""

    def lags(study: Study) -> None:
        if study.n_lags is not None and study.n_lags > settings.max_lags:
            raise SiteRefused(
                f"the study asks for n_lags = {study.n_lags}; this site allows at most {settings.max_lags}.",
                code="too-many-lags",
            )

    def rules(study: Study) -> None:
        privacy = study.privacy
        n_sites, masked = len(study.sites), privacy.secure_aggregation
        for method in study.methods:
            policy.check_study(method, n_sites, masked, privacy.epsilon, privacy.unit)

    def transformations(study: Study) -> None:
        policy.check_transformations(scope_of(study, settings.max_lags).transformations)

    def units(study: Study) -> None:
        differ = unit_differences(study, settings.units)
        if differ:
            raise SiteRefused(
                f"the study {study.name!r} and this site name other units ({'; '.join(differ)}); convert the data, or "
                "correct `units` in the study or in the site's settings.",
                code="other-units",
            )
        if not study.units.keys() - settings.units.keys():
            return
        unsaid = {name: study.units[name] for name in unsaid_units(study, settings.units, data.variables)}
        if unsaid:
            line = ", ".join(f"{name} = {json.dumps(unit)}" for name, unit in unsaid.items())
            raise SiteRefused(
                f"the study {study.name!r} gives units, and this site does not say its own of {', '.join(unsaid)}. If they "
                f"are the same, put units = {{{line}}} into the site's settings; if not, say there which it has.",
                code="units-unsaid",
            )

    def step(study: Study) -> None:
        if not study.step:
            return
        own: str | None = getattr(data, "step", None)
        if own is None:
            raise SiteRefused(
                f"the study {study.name!r} has rows {study.step} apart, and those of this site have no times; name their "
                "column in the site's settings (time).",
                code="other-step",
            )
        if not clock_of(own).is_like(clock_of(study.step)):
            raise SiteRefused(
                f"the study {study.name!r} has rows {study.step} apart, and this site {own}; freq = {study.step!r} and "
                "irregular = 'average' in the site's settings put its rows on these steps.",
                code="other-step",
            )

    def kinds(study: Study) -> None:
        differ = kind_differences(study, settings.layout.kinds)
        if differ:
            raise SiteRefused(
                f"the study {study.name!r} and this site mean other kinds or levels ({'; '.join(differ)}); make `kinds` "
                "in the study's parameters and in the site's settings the same, with levels in the same order.",
                code="other-kinds",
            )

    def clock(study: Study) -> None:
        layout = settings.layout
        if study.privacy.epsilon is not None and layout.time and layout.freq is None:
            raise SiteRefused(
                "the study promises noise for each unit, but this site reads the step between rows off all of them, so one "
                'can change the others; say it in the site\'s settings (freq, for example "1h").',
                code="step-from-rows",
            )

    def blocks(study: Study) -> None:
        wish = BlockWish.of(study.parameters.get("blocks", "auto"))
        needed = {"calendar": ROW_TIMES, "column": wish.column}.get(wish.kind)
        if needed is not None and settings.layout.label != needed:
            raise SiteRefused(
                f"the study cuts time into blocks by {'dates' if wish.unit else f'the column {needed!r}'}, and rows of this "
                f"site have other labels; put label = {needed!r} into the site's settings to take part.",
                code="other-labels",
            )
        if wish.kind == "calendar" and wish.first is None:
            raise SiteRefused(
                f"the study does not say which {wish.period} is the first; use for example blocks = '{wish.period} from "
                "2024-01-01'.",
                code="no-first-block",
            )

    return [
        lambda study: check_about(study, f"the study {study.name!r}", SiteRefused),
        lags,
        rules,
        lambda study: policy.check_variables(study.variables),
        transformations,
        lambda study: check_tasks(policy, study),
        units,
        step,
        kinds,
        clock,
        blocks,
    ]


def _about(study: Study | None, submitter: str) -> str:
    """Name a study and who answers for it."""
    if study is None:
        return "a study"
    lead = submitter or study.lead
    return f"study {study.name!r} from {lead}" if lead else f"study {study.name!r}"


def open_site(
    settings: SiteSettings,
    name: str,
    log: logging.Logger,
    submitter: str = "",
    keep_masks: bool = False,
    entropy: RandomBytes = os.urandom,
) -> SiteEndpoint:
    """Return the endpoint of the site called `name`; its old runs are pruned.

    What it needs from message to message is in its store. Its masks are there with `keep_masks`, so that it may be opened
    anew for each message; else they are in memory, unless the study collects, and it lives as long as a run. `submitter` is
    who sent the study, if the engine says so. Keys of a run, masks and noise are made of bytes of `entropy`; a test seeds it.
    """
    if settings.name != name:
        raise FileError(
            f"the settings are for site {settings.name!r}, but the engine calls this site {name!r}.",
            code="other-site",
        )
    load_programs(settings.programs)
    # Made here, since a directory that is made on the way to another one is open to everybody.
    private_directory(settings.state)
    owner = Owner(settings, log.warning)
    prune_runs(settings.state, settings.keep_days)
    store = FileStore(settings.state, name)
    policy = read_policy(settings.policy)

    def warn(sentence: str) -> None:
        log.warning("%s", sentence)

    data = read_data(settings)
    same_data = SameData(settings.state, data)
    protection = Protection(
        settings.state,
        name,
        policy,
        data,
        settings.max_lags,
        owner.audit,
        lambda note: warn(say(note, "owner")),
        entropy,
    )
    masked = None
    if owner.identity is not None and settings.peers is not None:
        from feddbn.runtime.site.masking import SiteMasking

        # Only a budget keeps many noisy sums from telling together what one does not.
        covers = policy.max_epsilon is not None
        masked = SiteMasking(
            name, owner.identity, owner.keys, policy.min_sites, settings.state, covers, keep_masks, entropy
        )

    def approve(run_id: str, study: Study, begins: bool) -> None:
        if submitter and study.lead and submitter != study.lead:
            raise SiteRefused(
                f"the study {study.name!r} is led by {study.lead!r}, but {submitter!r} has sent it; its lead sends it.",
                code="other-lead",
            )
        if not policy.approve_by_rule:
            owner.check(run_id, study, begins)
        same_data.check(run_id, begins)

    def tell(event: SiteEvent) -> None:
        if event.error is not None:
            log.error("unexpected error in run %r", event.run_id, exc_info=event.error)
        elif event.what == "refused":
            of = "" if event.study is None else f"{_about(event.study, submitter)} "
            how = "waits" if event.code == "not-approved" else "was refused" if of else "refused"
            log.warning("%s%s: %s", of, how, event.sentence)
        elif event.what == "agreed":
            about = _about(event.study, submitter)
            log.info("%s began (run %s): %s", about, event.run_id, event.sentence)
        elif event.what == "finished":
            log.info("run %s has ended; its result is in %s", event.run_id, settings.state / event.run_id)
            if policy.max_epsilon is not None:
                log.info(
                    "privacy budget: %s", card(budget_finding(owner.audit.account(), policy), "owner").detail
                )
        elif event.what == "note":
            log.warning("about the data of this site: %s", event.sentence)
        if event.kind == "hello" or event.what == "finished":
            try:
                owner.take_down(event, submitter)
            except (FeddbnError, OSError) as error:
                log.error("the audit log of this site cannot be written: %s", error)
                # A site that cannot write down to what it agrees does not agree.
                if event.what != "refused":
                    raise
        if event.run_id and (place := run_directory(settings.state, event.run_id, create=False)).is_dir():
            values = {k: v for k, v in vars(event).items() if k not in ("error", "study")}
            EventLog(place / "events.jsonl").write(values)

    return SiteEndpoint(
        Site(name, data),
        store,
        checks=study_checks(settings, policy, data),
        approve=approve,
        last_hash=owner.audit.last_hash,
        guards=protection.guards,
        masked=masked,
        keep=store.keep,
        on_event=tell,
        max_bytes=settings.max_message_mb * 2**20,
    )
