"""What tests ask of refusals and findings: codes, names and numbers, never wording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from feddbn.errors import FeddbnError, NotEnoughSites
from feddbn.findings import Finding, Findings


@contextmanager
def refused(kind: type[FeddbnError], *names: object, code: str | None = None) -> Iterator[Any]:
    """Expect this error, with this code if one is given, in one sentence that has all these names and values in it."""
    with pytest.raises(kind) as caught:
        yield caught
    sentence = str(caught.value)
    assert "\n" not in sentence
    for name in names:
        assert str(name) in sentence, (name, sentence)
    if code is not None:
        assert caught.value.code == code, (caught.value.code, sentence)


def codes(findings: Iterable[Finding]) -> list[str]:
    """The codes of single findings, in order."""
    return [one.code for whole in findings for one in (whole.parts or (whole,))]


def only(findings: Iterable[Finding], code: str) -> Finding:
    """The one finding with this code, also a part of another."""
    found = Findings(findings).of(code)
    assert len(found) == 1, codes(findings)
    return found[0]


@contextmanager
def kept_out(code: str, *sites: str) -> Iterator[Any]:
    """Expect that too few sites are there, and that these, or at least one, said no with this code."""
    with pytest.raises(NotEnoughSites) as caught:
        yield caught
    reasons = caught.value.values["reasons"]
    found = {site for site, why in reasons.items() if why == code}
    assert found, reasons
    assert set(sites) <= found, reasons
