"""What carries messages between the server and its sites: the only thing an engine has to provide."""

from __future__ import annotations

from collections.abc import Callable, Mapping

__all__ = ["Exchange"]

Exchange = Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
"""Sends one message to each named site and returns one reply from each that answered in time.

Who is missing from the replies has dropped out; a silent site raises nothing.
"""
