"""A site's end: a signed question in, a signed answer out, and a folder that is watched.

An answer is in the site's store before it is in a file, so the same question gets the same bytes whenever it comes again. A
refusal is not kept: when its reason is gone, the same question is answered.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from feddbn.errors import FeddbnError, FileError, ProtocolError, SiteRefused
from feddbn.federation.protocol.study import Study, study_from_json
from feddbn.runtime.files.kit import open_kit
from feddbn.runtime.files.signed import (
    MOST_BYTES,
    SignedFile,
    files_below,
    put_file,
    read_plain,
    read_signed,
    signed_file,
)
from feddbn.runtime.masked import refusal_in
from feddbn.runtime.settings import read_policy, read_site_settings
from feddbn.runtime.site.current import CurrentSite
from feddbn.runtime.site.kit_files import SITE_SETTINGS
from feddbn.runtime.site.open_site import open_site
from feddbn.runtime.site.owner import Owner
from feddbn.runtime.store import FileStore, Store

LOG = logging.getLogger("feddbn.files")
PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
_LEVELS = 3


@dataclass(frozen=True)
class Answered:
    """The bytes of an answer, what it answers, whether it was given before, and what the site says no with, if it does."""

    content: bytes
    question: SignedFile
    was_given: bool
    refusal: FeddbnError | None = None


class FileSite:
    """Answers the questions of the lead to the site of a kit; its data are read with the first one of a run."""

    def __init__(self, kit: Path, log: logging.Logger = LOG) -> None:
        opened = open_kit(kit, "site")
        self._kit = opened
        self._settings = read_site_settings(opened.place / SITE_SETTINGS)
        if self._settings.name != opened.name:
            raise FileError(
                f"the settings are for site {self._settings.name!r}, but the kit {kit} is that of {opened.name!r}.",
                code="other-site",
            )
        self._store = Store(self._settings.state)
        self._log = log
        self._endpoint: CurrentSite | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self._kit.name

    def read(self, content: bytes, source: str) -> SignedFile:
        """Return a question of the lead to this site; anything else is refused with one sentence."""
        question = read_signed(content, source, "question")
        question.check_signature(self._kit.lead_key, source, f"the lead {self._kit.settings.lead!r}")
        if question.by != self._kit.settings.lead:
            raise FileError(
                f"{source} names {question.by!r} as its lead, who is not that of this kit.", code="other-lead"
            )
        if question.site != self.name:
            raise FileError(
                f"{source} is a question to the site {question.site!r}; this kit is that of {self.name!r}.",
                code="other-site",
            )
        self.check_study(question, source)
        return question

    def check_study(self, question: SignedFile, source: str) -> None:
        """What a question says of its study, which is what people read, must be what its message is about."""
        record = FileStore(self._settings.state, self.name).load(question.run)
        known = None if record is None else record.study
        try:
            request = question.request
        except ProtocolError:
            # It is refused as any other message that cannot be read.
            return
        said = request.meta.get("study") if request.kind == "hello" else known
        if request.run_id != question.run or said not in (None, question.study):
            raise FileError(
                f"{source} shows another run or study than it asks about; it is not answered. Tell its lead.",
                code="other-study",
            )

    def kept(self, question: SignedFile) -> bytes | None:
        """Return the answer that was given to a question before."""
        return self._store.get(question.run, f"answer/{question.digest}")

    def answer(self, question: SignedFile) -> Answered:
        """Return the answer to a question that `read` has returned."""
        study = study_from_json(question.study)
        given = self.kept(question)
        if given is not None:
            self._allow(question, study)
            return Answered(given, question, True)
        if self._endpoint is None:
            self._endpoint = self._open()
        reply = self._endpoint.handle(question.message)
        content = signed_file(
            self._kit.identity,
            "answer",
            self.name,
            question.run,
            self.name,
            question.number,
            study.digest,
            reply,
            question.digest,
        )
        refusal = refusal_in(question.message, reply)
        if refusal is not None:
            # What the owner changes is read anew.
            self._endpoint = None
            return Answered(content, question, False, refusal)
        with self._store.hold():
            before = self.kept(question)
            if before is None:
                self._store.put(question.run, f"answer/{question.digest}", content)
        return Answered(before or content, question, before is not None)

    def decisions(self) -> tuple[object, ...]:
        """Return what changes when the owner decides something: what was refused is then worth another try."""
        owner = Owner(self._settings)
        given = (
            []
            if owner.identity is None
            else [(one.digest, one.given, state) for one, state in owner.approvals.all()]
        )
        files = [self._settings.policy, self._kit.place / SITE_SETTINGS]
        return (
            tuple(given),
            *(path.stat().st_mtime_ns for path in files if path is not None and path.exists()),
        )

    def _open(self) -> CurrentSite:
        about = (self._settings, self.name, self._log, self._kit.settings.lead)
        return CurrentSite(self._settings.policy, lambda: open_site(*about, keep_masks=True))

    def _allow(self, question: SignedFile, study: Study) -> None:
        """Refuse to give an answer again whose approval was taken back."""
        if not read_policy(self._settings.policy).approve_by_rule:
            Owner(self._settings).approvals.check(question.run, study, begins=False)


def answer_name(question: SignedFile) -> str:
    """Return the name of a question's answer."""
    return question.name.replace("-question", "-answer")


@dataclass
class _Tried:
    """When a question that was refused is tried again."""

    pause_s: float
    at: float
    decisions: tuple[object, ...]
    said: str = ""


class Watch:
    """Answers what comes into a shared folder, below it, each answer beside its question.

    What is refused is said to the lead in an answer, and tried again when the owner has decided something, or ever more
    rarely.
    """

    def __init__(
        self,
        kit: Path,
        log: logging.Logger = LOG,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = open_kit(kit, "site").shared_folder()
        self._site = FileSite(kit, log)
        self._log = log
        self._clock = clock
        self._seen: set[tuple[str, int, int]] = set()
        self._again: dict[str, _Tried] = {}

    @property
    def folder(self) -> Path:
        """Where questions are looked for."""
        return self._folder

    def look(self) -> int:
        """Answer what is there; return how many answers were written."""
        written = 0
        for path, about in files_below(self._folder, _LEVELS):
            mark = (str(path), about.st_mtime_ns, about.st_size)
            tried = self._again.get(str(path))
            if mark in self._seen and (tried is None or not self._is_due(tried)):
                continue
            self._seen.add(mark)
            try:
                written += self._try(path)
            except (FeddbnError, OSError) as error:
                said = str(error) if isinstance(error, FeddbnError) else f"{path}: {error.strerror}."
                self._log.warning("%s", said)
        return written

    def _is_due(self, tried: _Tried) -> bool:
        return self._clock() >= tried.at or self._site.decisions() != tried.decisions

    def _try(self, path: Path) -> int:
        content = read_plain(path, MOST_BYTES)
        try:
            found = read_signed(content, str(path))
        except FileError as error:
            if error.code == "no-file":
                return 0
            raise
        if found.direction != "question" or found.site != self._site.name:
            # Others' questions and answers lie here, too.
            return 0
        question = self._site.read(content, str(path))
        place = path.with_name(answer_name(question))
        decisions = self._site.decisions()
        try:
            answered = self._site.answer(question)
        except SiteRefused as error:
            self._wait(path, decisions, str(error))
            return 0
        if answered.refusal is not None:
            # The site has told its owner why.
            self._wait(path, decisions, "")
        else:
            self._again.pop(str(path), None)
        if not place.is_symlink() and place.is_file() and read_plain(place) == answered.content:
            return 0
        put_file(place, answered.content)
        if answered.refusal is None:
            self._log.info("%s is answered.", path.name)
        return 1

    def _wait(self, path: Path, decisions: tuple[object, ...], said: str) -> None:
        before = self._again.get(str(path))
        pause = (
            5.0
            if before is None or before.decisions != decisions
            else min(2 * before.pause_s, LONGEST_PAUSE_S)
        )
        if before is None or before.said != said:
            self._log.warning("%s", f"{path.name} waits until its owner has decided. {said}".rstrip())
        self._again[str(path)] = _Tried(pause, self._clock() + pause, decisions, said)


def watch(kit: Path) -> NoReturn:
    """Answer what comes into the shared folder of a site's kit, for ever."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s  %(message)s", datefmt="%Y-%m-%d %H:%M:%S"
    )
    end = Watch(kit)
    LOG.info("watching %s; Ctrl-C ends it.", end.folder)
    while True:
        end.look()
        time.sleep(PAUSE_S)
