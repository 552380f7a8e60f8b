"""Questions and answers as signed files, and folders that other people can write to.

Theory of operation
-------------------
A *question* holds a message of a run to one site, an *answer* the reply to it. What is signed (Ed25519) is the whole
content: which of the two it is, who signs, the run, the study, the site, the number of the question at this site and, of an
answer, the SHA-256 of the question's file. So no file can be changed, nor passed off as one of another run, another site,
another question or the other direction. Files are not encrypted: who checks what leaves has to be able to read it. What
must not be read on the way is masked (`privacy.secure_aggregation`).

A folder may be written to by others. Of what is in it names mean nothing: files are known by their content. Links are not
followed, only plain files of a bounded size are read, and a file is put there under a new name first and then renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from feddbn.errors import FileError, ProtocolError
from feddbn.federation.protocol.encoding import decode, encode
from feddbn.federation.protocol.messages import (
    MAX_MESSAGE_BYTES,
    MOST_WORDS,
    Request,
    check_run_id,
    read_request,
)
from feddbn.privacy.keys import Identity, verify_signature

SUFFIX = ".feddbn"
SIGNED = "signed-file"
MOST_BYTES = MAX_MESSAGE_BYTES + 2**20
"""A message of the largest size, and what stands around it."""
Direction = Literal["question", "answer"]


@dataclass(frozen=True)
class SignedFile:
    """A question or an answer as it was read; whether its signature is right is asked with `check_signature`.

    `study` is the study's text in a question and its digest in an answer; `question` is the SHA-256 of the question that is
    answered; `digest` is that of this file.
    """

    direction: Direction
    by: str
    run: str
    site: str
    number: int
    study: str
    message: bytes = field(repr=False)
    question: str = ""
    digest: str = ""
    content: bytes = field(default=b"", repr=False)
    signature: bytes = field(default=b"", repr=False)

    def check_signature(self, public: bytes, source: str, who: str) -> None:
        """Refuse a file that the owner of a key has not signed as it is."""
        if not verify_signature(public, self.signature, _statement(self.direction, self.content)):
            raise FileError(
                f"{source} was not signed by {who}, or was changed since; ask {who} for the file again, and check that both "
                "kits were made together.",
                code="wrong-signature",
            )

    @property
    def request(self) -> Request:
        """The message of a question."""
        return read_request(self.message)

    @property
    def name(self) -> str:
        """A name for the file that tells what it is without its folder."""
        return f"{self.run}-{self.site}-{self.number:03d}-{self.direction}{SUFFIX}"


def _statement(direction: str, content: bytes) -> bytes:
    return f"file {direction} ".encode() + content


def signed_file(
    identity: Identity,
    direction: Direction,
    by: str,
    run: str,
    site: str,
    number: int,
    study: str,
    message: bytes,
    question: str = "",
) -> bytes:
    """Return the bytes of a signed file."""
    about = {"direction": direction, "by": by, "run": run, "site": site, "number": number, "study": study}
    told = {"type": "file-content", **about, "question": question}
    content = encode(told, {"message": np.frombuffer(message, np.uint8)})
    signature = identity.sign(_statement(direction, content))
    parts = {"content": np.frombuffer(content, np.uint8), "signature": np.frombuffer(signature, np.uint8)}
    return encode({"type": SIGNED}, parts)


def is_signed_file(content: bytes) -> bool:
    """Whether these bytes claim to be a question or an answer."""
    try:
        return bool(decode(content, MOST_WORDS)[0].get("type") == SIGNED)
    except ProtocolError:
        return False


def read_signed(content: bytes, source: str, direction: Direction | None = None) -> SignedFile:
    """Return the question or answer in these bytes, its signature not yet checked.

    Raises
    ------
    FileError
        If they are none, are damaged, or are the other one than is asked for.
    """
    try:
        outer, parts = decode(content, MOST_WORDS)
        if outer.get("type") != SIGNED:
            raise ValueError("no signed file")
        inner = parts["content"].tobytes()
        meta, arrays = decode(inner, MOST_WORDS)
        found = SignedFile(
            meta["direction"],
            str(meta["by"]),
            check_run_id(meta["run"]),
            str(meta["site"]),
            int(meta["number"]),
            str(meta["study"]),
            arrays["message"].tobytes(),
            str(meta["question"]),
            hashlib.sha256(content).hexdigest(),
            inner,
            parts["signature"].tobytes(),
        )
        if found.direction not in ("question", "answer") or len(arrays) != 1:
            raise ValueError("another kind of file")
    except ProtocolError as error:
        if error.code == "damaged":
            raise FileError(
                f"{source} is damaged or not complete; copy it again, or ask for it again.", code="damaged"
            ) from None
        why = f": {error}" if error.code == "other-format" else "; `feddbn show` says what it is."
        raise FileError(f"{source} is no question or answer of feddbn{why}", code="no-file") from None
    except (ValueError, KeyError, TypeError):
        raise FileError(
            f"{source} is no question or answer of feddbn; `feddbn show` says what it is.", code="no-file"
        ) from None
    if direction is not None and found.direction != direction:
        needed = {"question": "a question, which its lead makes", "answer": "an answer, which a site makes"}
        raise FileError(
            f"{source} is {'an answer' if found.direction == 'answer' else 'a question'}; give {needed[direction]}.",
            code="other-direction",
        )
    return found


# Folders that others can write to.


def read_plain(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return a plain file's bytes; a link, a device or a file that is too long is refused."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise FileError(f"{path} does not exist; check the path.", code="no-file") from None
    except OSError as error:
        why = "it is a link" if path.is_symlink() else error.strerror
        raise FileError(f"{path} cannot be read: {why}.", code="unreadable") from None
    with open(handle, "rb") as file:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise FileError(f"{path} is not a plain file.", code="not-plain")
        if about.st_size > most_bytes:
            raise FileError(
                f"{path} has {about.st_size:,} bytes; the limit is {most_bytes:,}.", code="too-long"
            )
        return file.read(most_bytes + 1)


def put_file(path: Path, content: bytes) -> None:
    """Put a file into a folder all or nothing, on disk when this returns; nothing there is followed or written over early."""
    folder = path.parent
    if folder.is_symlink() or not folder.is_dir():
        raise FileError(
            f"{folder} is not a folder, or a link to one; remove it and make a folder.", code="no-folder"
        )
    temporary = folder / f".{os.urandom(8).hex()}.new"
    # Others read it as far as the folder and this user's own setting (umask) allow.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(handle)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def files_below(folder: Path, depth: int) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the plain files of ours in a folder and in folders below it, so many levels, in order; links are passed over."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        with contextlib.suppress(OSError):
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False) and depth > 0:
                yield from files_below(Path(entry.path), depth - 1)
            elif entry.is_file(follow_symlinks=False) and entry.name.endswith(SUFFIX):
                yield Path(entry.path), entry.stat(follow_symlinks=False)
