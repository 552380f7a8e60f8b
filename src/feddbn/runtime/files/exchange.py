"""The lead's end: an exchange that writes questions into a folder and finds the answers that have come.

Theory of operation
-------------------
A question is in the lead's own store before it is in the folder, under its number at its site, and its bytes never change:
the same message is the same file, however often a run is stepped. An answer is in the store before it is used. So
a process that is killed leaves nothing but a file that the next one writes again, and files that were used may be deleted.

An answer is taken only if its site has signed it, for this run and for exactly this question. A refusal is told and not kept:
the site can answer the same question again when its reason is gone. Of everything else in the folder the lead is told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from feddbn.errors import FileError
from feddbn.federation.protocol.study import Study
from feddbn.privacy.keys import Identity
from feddbn.runtime.files.signed import (
    SignedFile,
    files_below,
    put_file,
    read_plain,
    read_signed,
    signed_file,
)
from feddbn.runtime.masked import refusal_in
from feddbn.runtime.store import Store

_LEVELS = 2
"""How many folders down answers are looked for."""


class FileExchange:
    """Questions and answers of one run in one folder.

    Parameters
    ----------
    folder
        Where a folder for each site is made; answers may lie anywhere in it.
    store
        The lead's own, in which questions and answers are kept.
    identity, name
        The lead's key and name.
    keys
        Site -> public key.
    tell
        Hears why a file in the folder is not used, each once.
    """

    def __init__(
        self,
        folder: Path,
        study: Study,
        run_id: str,
        store: Store,
        identity: Identity,
        name: str,
        keys: Mapping[str, bytes],
        tell: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._folder = Path(folder)
        self._study = study
        self._run = run_id
        self._store = store
        self._identity = identity
        self._name = name
        self._keys = keys
        self._tell = tell
        self._seen: set[tuple[str, int, int]] = set()
        self._asked: dict[tuple[str, str], SignedFile] = {}
        self._by_digest: dict[str, SignedFile] = {}
        self._count: dict[str, int] = {}
        self._replies: dict[str, bytes] = {}
        self.open: dict[str, Path] = {}
        for place in store.names(run_id):
            if place.startswith("question/"):
                self._know(read_signed(store.get(run_id, place) or b"", f"the stored {place}", "question"))

    def __call__(self, messages: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Ask what was not asked before; return the replies that are there. `open` has the files that wait for an answer."""
        self.open = {}
        for site, message in messages.items():
            if (site, _digest(message)) not in self._asked:
                self._ask(site, message)
        self._look()
        found: dict[str, bytes] = {}
        for site, message in messages.items():
            reply = self._reply(site, message)
            if reply is not None:
                found[site] = reply
            # One that is refused can be answered again.
            if reply is None or refusal_in(message, reply) is not None:
                self.open[site] = self._place(self._asked[site, _digest(message)])
        return found

    def receipts(self) -> tuple[str, ...]:
        """Return who has the result of a run that has ended; `open` has the files that bring it to the others."""
        self._look()
        last = [one for one in self._by_digest.values() if one.request.kind == "finish"]
        self.open = {}
        for question in sorted(last, key=lambda one: one.number):
            reply = self._reply(question.site, question.message)
            if reply is None or refusal_in(question.message, reply) is not None:
                self.open[question.site] = self._place(question)
        return tuple(sorted({one.site for one in last} - self.open.keys()))

    def _ask(self, site: str, message: bytes) -> None:
        number = self._count.get(site, 0) + 1
        content = signed_file(
            self._identity, "question", self._name, self._run, site, number, self._study.to_json(), message
        )
        self._store.put(self._run, f"question/{site}/{number:06d}", content)
        self._know(read_signed(content, "a new question", "question"))

    def _know(self, question: SignedFile) -> None:
        self._by_digest[question.digest] = question
        self._count[question.site] = max(self._count.get(question.site, 0), question.number)
        self._asked[question.site, _digest(question.message)] = question

    def _place(self, question: SignedFile) -> Path:
        """Return where a question lies; it is put there if it is not."""
        path = self._folder / question.site / question.name
        stored = self._store.get(self._run, f"question/{question.site}/{question.number:06d}") or b""
        try:
            is_there = read_plain(path) == stored
        except FileError:
            is_there = False
        if not is_there:
            path.parent.mkdir(parents=True, exist_ok=True)
            put_file(path, stored)
        return path

    def _reply(self, site: str, message: bytes) -> bytes | None:
        question = self._asked.get((site, _digest(message)))
        if question is None:
            return None
        if question.digest not in self._replies:
            stored = self._store.get(self._run, _answer_place(question))
            if stored is None:
                return None
            self._replies[question.digest] = read_signed(stored, "a stored answer", "answer").message
        return self._replies[question.digest]

    def _look(self) -> None:
        """Take the answers that have come since the last look."""
        for path, about in files_below(self._folder, _LEVELS):
            mark = (str(path), about.st_mtime_ns, about.st_size)
            if mark in self._seen:
                continue
            self._seen.add(mark)
            try:
                self._take(read_plain(path), str(path))
            except FileError as error:
                self._tell(str(error))

    def _take(self, content: bytes, source: str) -> None:
        try:
            answer = read_signed(content, source)
        except FileError as error:
            if error.code == "no-file":
                # Results and other files of ours.
                return
            raise
        if answer.direction == "question":
            return
        if answer.run != self._run:
            raise FileError(
                f"{source} is an answer in run {answer.run!r}, not in {self._run!r}; it is not used.",
                code="other-run",
            )
        key = self._keys.get(answer.site)
        if key is None or answer.site not in self._study.sites:
            raise FileError(
                f"{source} is from {answer.site!r}, which is no site of this study.", code="other-site"
            )
        answer.check_signature(key, source, f"the site {answer.site!r}")
        question = self._by_digest.get(answer.question)
        if question is None or (question.site, question.number) != (answer.site, answer.number):
            raise FileError(
                f"{source} answers a question that this run did not ask of {answer.site!r}; it is not used.",
                code="other-question",
            )
        if refusal_in(question.message, answer.message) is None:
            with self._store.hold():
                if self._store.get(self._run, _answer_place(question)) is None:
                    self._store.put(self._run, _answer_place(question), content)
            self._replies.pop(question.digest, None)
        elif self._store.get(self._run, _answer_place(question)) is None:
            self._replies[question.digest] = answer.message


def _answer_place(question: SignedFile) -> str:
    return f"answer/{question.site}/{question.number:06d}"


def _digest(message: bytes) -> str:
    return hashlib.sha256(message).hexdigest()
