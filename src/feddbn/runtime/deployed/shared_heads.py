"""Audit heads from site to site, carried by the server: each site's head to the others, their receipts back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feddbn.federation.protocol.messages import NEVER, Reply, Request, encode_request
from feddbn.runtime.deployed.asking import Line

__all__ = ["share_heads"]


def share_heads(line: Line, replies: Mapping[str, Reply]) -> None:
    """Carry the heads in these replies to the other sites; whoever does not answer goes without."""
    heads = {site: reply.meta["head"] for site, reply in replies.items() if reply.meta.get("head")}
    if len(heads) < 2:
        return
    others = {site: [head for name, head in heads.items() if name != site] for site in heads}
    held = _carry(line, "heads", others)
    receipts: dict[str, list[Any]] = {site: [] for site in heads}
    for reply in held.values():
        for receipt in reply.meta.get("receipts") or ():
            whose = receipt.get("head", {}).get("site") if isinstance(receipt, dict) else None
            if whose in receipts:
                receipts[whose].append(receipt)
    _carry(line, "receipts", {site: found for site, found in receipts.items() if found and site in held})


def _carry(line: Line, what: str, words: Mapping[str, list[Any]]) -> dict[str, Reply]:
    messages = {
        site: encode_request(Request("heads", line.run_id, meta={what: said})) for site, said in words.items()
    }
    return line.ask(messages, "heads", NEVER) if messages else {}
