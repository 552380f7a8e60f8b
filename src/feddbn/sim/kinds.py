"""Kinds of simulated variables, as they are asked for: by name, or in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from feddbn.core.kinds import Kind, read_kinds
from feddbn.errors import ParameterError

__all__ = ["AskedKinds", "kinds_asked"]

AskedKinds = Mapping[str, object] | Sequence[object] | None


def kinds_asked(asked: AskedKinds, variables: Sequence[str]) -> tuple[Kind, ...]:
    """The kind of each variable; empty if none is asked for.

    A mapping names variables (`feddbn.core.kinds.read_kinds`), a list is given out in turn, again and again. "ordinal:4"
    stands for four levels.

    Examples
    --------
    >>> from feddbn.sim import kinds_asked
    >>> [kind.name for kind in kinds_asked({"y": "count"}, ["x", "y"])]
    ['continuous', 'count']
    """
    if asked is None:
        return ()
    if isinstance(asked, Mapping):
        said = dict(asked)
    elif isinstance(asked, Sequence) and not isinstance(asked, str) and len(asked):
        said = {name: asked[k % len(asked)] for k, name in enumerate(variables)}
    else:
        raise ParameterError(
            f"kinds={asked!r} must name kinds by variable, such as {{'x0': 'count'}}, or be a list of kinds that are given"
            " out in turn, such as ['continuous', 'binary']."
        )
    return read_kinds({name: _with_levels(kind) for name, kind in said.items()}, variables)


def _with_levels(said: object) -> object:
    if isinstance(said, str) and ":" in said:
        name, _, number = said.partition(":")
        if number.isdecimal():
            return {name: int(number)}
    return said
