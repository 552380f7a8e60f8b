"""One method as a row of words: what `feddbn.method_table` is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from feddbn.errors import ParameterError
from feddbn.settings import flat_names

__all__ = ["Method"]


@dataclass(frozen=True)
class Method:
    """One method: a row of the table.

    Attributes
    ----------
    name, aliases
        What people type in commands and studies; other names it answers to, in lower case.
    cls, module
        Its class, which is also its name in Python, in stored results and in sites' policies; where the class is.
    label
        What tables show: the paper's name where it has one.
    summary
        One line for lists.
    assumes, reveals, rounds, gives
        For people who choose: what must hold, what leaves a site, how often, and what comes out.
    citation
        Who found it.
    tasks, further_tasks
        Site tasks it asks for as it is, and those that only some of its settings need: the default policy of a site
        allows the first, the others have to be allowed by name.
    in_studies
        Whether a study may name it: it learns from sums alone, and what it learns is meant for everybody.
    takes_noise
        Whether a study of it may promise differential privacy: all it asks for are sums that sites can protect by noise.
    is_personal
        Whether it learns one network per site (``dbns_``).
    needs_truth
        Whether `fit` wants the true network; such a method is a yardstick, not a method.
    predicts
        Whether its weights are effects of straight lines, so that rows can be predicted with them alone.
    reads_scales
        Whether it fits one common noise variance in effect: least squares then prefers the order in which variance
        grows, so directions within a moment depend on the units.
    plain_messages
        What a server can read from messages that nothing protects, in short and in a sentence; None if it depends on
        how often the method asks.
    selects
        Parameters that `feddbn select` chooses by held-out loss if nothing else is asked for; empty if it cannot.
    resamples
        Whether it learns from summed moments alone (``fit_moments``), so that edges can be counted over resamples.
    lag_reach
        How many times its ``n_lags`` the rows it asks for reach back.
    is_usual
        Whether a comparison has it if no methods are named: it answers which edges one constant network of numbers has.

    Examples
    --------
    >>> from feddbn.method_table import get_method
    >>> method = get_method("oneshot")
    >>> method.cls, method.in_studies, method.summary
    ('OneShotDBN', True, 'one network from one exact sum, by a search over orders')
    """

    name: str
    cls: str
    module: str
    label: str
    summary: str
    assumes: str
    reveals: str
    rounds: str
    gives: str
    citation: str = ""
    aliases: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    further_tasks: tuple[str, ...] = ()
    in_studies: bool = False
    takes_noise: bool = False
    is_personal: bool = False
    needs_truth: bool = False
    predicts: bool = True
    reads_scales: bool = False
    plain_messages: tuple[str, str] | None = None
    selects: tuple[str, ...] = ()
    resamples: bool = False
    lag_reach: int = 1
    is_usual: bool = True

    @property
    def is_installed(self) -> bool:
        """Whether this installation has it."""
        return find_spec(self.module) is not None

    def load(self) -> type[Any]:
        """Return the estimator class."""
        found: type[Any] = getattr(import_module(self.module), self.cls)
        return found

    def defaults(self) -> dict[str, Any]:
        """Return its arguments with their defaults, without the federation, which is not a choice about the model."""
        found: dict[str, Any] = self.load()().get_params(deep=False)
        return {name: value for name, value in found.items() if name != "federation"}

    def parameters(self) -> tuple[str, ...]:
        """Names of its settings in the order in which they are given, without the federation."""
        cls = self.load()
        settings = getattr(cls, "settings", None)
        if settings is not None and not cls.rules:
            found: tuple[str, ...] = settings.names()
            return found
        from inspect import signature

        return tuple(name for name in signature(cls).parameters if name != "federation")

    def named(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return values under its own names for them; one that it does not have raises ParameterError with the nearest."""
        cls = self.load()
        settings = getattr(cls, "settings", None)
        if settings is not None and not cls.rules:
            found: dict[str, Any] = settings.named(parameters, self.cls)
            return found
        flat = flat_names(parameters)
        known = self.parameters()
        for name in flat:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}."
                raise ParameterError(f"{self.cls} has no setting {name!r}; {hint}", code="no-such-setting")
        return flat

    def has(self, name: str) -> bool:
        """Whether it has a setting of this name, plain, with a dot or flat."""
        last = name.rpartition(".")[2]
        return name == "prepare" or any(last == known.rpartition(".")[2] for known in self.parameters())

    def own(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of some values that it has, under its own names for them."""
        spread = {
            one if name == one else f"{name}.{one}": each
            for name, value in parameters.items()
            for one, each in (
                value.items() if isinstance(value, Mapping) and name == "prepare" else [(name, value)]
            )
        }
        return self.named({name: value for name, value in spread.items() if self.has(name)})
