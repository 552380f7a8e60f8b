"""Audit heads from site to site, carried by the server: each site's head to the others, their receipts back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feddbn.errors import FileError
from feddbn.federation.protocol.messages import NEVER, Reply, Request, encode_request
from feddbn.privacy.audit import Head, Receipt, read_head, read_receipt
from feddbn.runtime.deployed.asking import Line

__all__ = ["share_heads"]


def share_heads(line: Line, replies: Mapping[str, Reply]) -> None:
    """Carry the heads in these replies to the other sites; whoever does not answer goes without.

    Only what a site says of itself is carried on, and only if it is well formed: a site cannot stop a run with it.
    """
    found = {site: _head_of(reply) for site, reply in replies.items()}
    heads = {site: head for site, head in found.items() if head is not None}
    if len(heads) < 2:
        return
    others = {site: [head.fields() for name, head in heads.items() if name != site] for site in heads}
    held = _carry(line, "heads", others)
    given = [receipt for reply in held.values() for receipt in _receipts_of(reply)]
    receipts = {site: [word.fields() for word in given if word.head.site == site] for site in held}
    _carry(line, "receipts", {site: words for site, words in receipts.items() if words})


def _head_of(reply: Reply) -> Head | None:
    try:
        head = read_head(reply.meta.get("head"))
    except FileError:
        return None
    return head if head.site == reply.site else None


def _receipts_of(reply: Reply) -> list[Receipt]:
    found = []
    words = reply.meta.get("receipts")
    for word in words if isinstance(words, list) else ():
        try:
            receipt = read_receipt(word)
        except FileError:
            continue
        if receipt.holder == reply.site:
            found.append(receipt)
    return found


def _carry(line: Line, what: str, words: Mapping[str, list[Any]]) -> dict[str, Reply]:
    messages = {
        site: encode_request(Request("heads", line.run_id, meta={what: said})) for site, said in words.items()
    }
    return line.ask(messages, "heads", NEVER) if messages else {}
