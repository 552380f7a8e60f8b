"""What a deployment leaves as ``result.feddbn`` and ``personal.feddbn``, as the plain values that commands read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from feddbn.core.encoding import decode
from feddbn.errors import FeddbnError, FileError
from feddbn.federation.programs.pfdbnl.entries import Entries
from feddbn.federation.protocol.study_methods import StudyResult
from feddbn.model.dbn import DBN

__all__ = ["read_stored"]


def read_stored(path: Path, content: bytes) -> Mapping[str, Any]:
    """Return the stored result in `content`; a personal file needs ``result.feddbn`` beside it."""
    where = f"file {str(path)!r}"
    try:
        meta, arrays = decode(content)
    except FeddbnError as error:
        raise FileError(f"{where} cannot be read: {error}") from None
    if meta.get("type") == "personal":
        return _personal(path, str(meta.get("site")), arrays)
    if meta.get("type") == "study-result":
        return _shared(StudyResult.from_bytes(content), where)
    raise FileError(
        f"{where} holds no network; networks are in result.feddbn, personal.feddbn and result.json."
    )


def _shared(result: StudyResult, where: str) -> Mapping[str, Any]:
    found = result.summary.get("result")
    if not isinstance(found, dict):
        raise FileError(f"{where} is the result of a method that learns no network.")
    return found


def _personal(path: Path, site: str, own: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
    """Return the shared result with the site's own network in place of the shared one, and whose it is as `site`.

    It is under `personal` no more: whoever compared it with the network in that place would compare it with itself.
    """
    where, beside = f"file {str(path)!r}", path.with_name("result.feddbn")
    try:
        result = StudyResult.from_bytes(beside.read_bytes())
    except (OSError, FeddbnError):
        raise FileError(f"{where} needs {beside.name!r} of the same run beside it; copy both.") from None
    stored = _shared(result, f"file {str(beside)!r}")
    try:
        dbn = _network(own, result.arrays, tuple(str(name) for name in result.summary["variables"]))
    except (KeyError, IndexError, ValueError):
        raise FileError(
            f"{where} does not fit {beside.name!r} beside it, or both are from a version of feddbn that did not keep the "
            "units of the study; run the study again."
        ) from None
    edges = dbn.edges().to_dict("records")
    lone = {"raw": None, "personal": None, "site": site, "variables": list(dbn.variables)}
    return {**stored, **lone, "dbn": dbn.to_dict(), "edges": edges}


def _network(
    own: Mapping[str, np.ndarray], shared: Mapping[str, np.ndarray], variables: tuple[str, ...]
) -> DBN:
    """Return the network in the units of the data; a site's file holds it in those of the study."""
    names = tuple(variables[int(i)] for i in own["columns"])
    q, d = own["C"].shape
    most_lags = q // d - 1
    entries = Entries.of(names, variables, most_lags, most_lags)
    C, k = entries.take(own["C"]), len(names)
    center, scale = (entries.take(shared[name]) for name in ("center", "scale"))
    C = C * scale[:k] / scale[:, None]
    variances = 2.0 * np.maximum(own["target_loss"][entries.columns], 0.0) * scale[:k] ** 2
    return DBN(C[:k], C[k:].reshape(-1, k, k), names, center[:k] - center @ C, variances)
