"""How a site says no: one sentence that travels, and the error the server raises from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from feddbn import errors

__all__ = ["raise_refusal", "refusal_fields"]

# What an error may be called on the way; any other becomes a ProtocolError.
_TRAVELLING = {
    kind.__name__: kind
    for kind in (
        errors.ProtocolError,
        errors.SiteRefused,
        errors.StateError,
        errors.NotEnoughSites,
        errors.BudgetExceeded,
        errors.AggregationError,
    )
}
_LONGEST = 500


def refusal_fields(error: Exception) -> dict[str, str]:
    """Return what travels of an error: a sentence, no traceback; an unexpected error shows only its type."""
    name = type(error).__name__
    if isinstance(error, errors.FeddbnError):
        return {"error": name, "sentence": str(error)}
    sentence = f"an unexpected {name} occurred at the site; its own log has the details."
    return {"error": "StateError", "sentence": sentence}


def raise_refusal(site: str, fields: Mapping[str, Any]) -> NoReturn:
    """Raise the error that a site named, with the site's own sentence."""
    error = _TRAVELLING.get(str(fields.get("error")), errors.ProtocolError)
    raise error(f"site {site!r} refused: {str(fields.get('sentence'))[:_LONGEST]}")
