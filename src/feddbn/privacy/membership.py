"""A note that a federation has grown: the names and public keys of all its sites, signed by who makes its kits.

The note holds nothing secret. Who makes the kits is the federation's *authority*: its key lies with the kits' maker, never at
the server. What a note may do is little: name sites that a kit did not know. It never changes a key and never takes a site
away, so an old note, or one that came twice, does nothing. Two names with one key are one site twice, and refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from pydantic import ConfigDict, TypeAdapter, ValidationError

from feddbn.errors import FileError

SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Note:
    """All sites of a federation.

    Attributes
    ----------
    federation
        Its name.
    sites
        Site -> public key, in hexadecimal.
    authority
        The public key that signed, empty where that is the federation's certificate authority.
    signature
        Of all the rest.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    federation: str
    sites: dict[str, str]
    authority: str = ""
    signature: str = ""

    @property
    def statement(self) -> bytes:
        """What is signed."""
        values = {**asdict(self), "signature": ""}
        return b"membership 1 " + json.dumps(values, sort_keys=True, separators=(",", ":")).encode()

    def signed(self, signature: bytes) -> Note:
        """Return it with its signature."""
        return replace(self, signature=signature.hex())

    def to_text(self) -> str:
        """Return it as JSON, for a file."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    def new_to(self, known: Mapping[str, bytes]) -> dict[str, str]:
        """Return the sites that are not known yet; refuse other keys of known ones, and one key under two names."""
        other = [
            name for name, key in sorted(self.sites.items()) if name in known and known[name].hex() != key
        ]
        if other:
            raise FileError(
                f"the note has another key of {other[0]!r} than this kit has; nothing was changed. Ask that site which key "
                "is its own, by another way than this note came.",
                code="other-key",
            )
        new = {name: key for name, key in sorted(self.sites.items()) if name not in known}
        keys = [*(key.hex() for key in known.values()), *new.values()]
        if len(set(keys)) < len(keys):
            raise FileError(
                "the note has one key under two names, which would be one site counted twice; nothing was changed.",
                code="same-key",
            )
        return new


_NOTE = TypeAdapter(Note)


def read_note(text: str | bytes) -> Note:
    """Inverse of `Note.to_text`; anything else is refused."""
    try:
        note = _NOTE.validate_json(text, strict=True)
        bytes.fromhex(note.signature)
    except (ValidationError, ValueError):
        raise FileError(
            "this is not a note on the sites of a federation, or it is damaged.", code="no-note"
        ) from None
    wrong = [
        name for name, key in note.sites.items() if not SITE_NAME.fullmatch(name) or not _KEY.fullmatch(key)
    ]
    if wrong or not note.sites:
        raise FileError("the note names a site that cannot be one, or none; it is damaged.", code="no-note")
    return note
