"""How far a fit is, while it runs: one line in a notebook or a terminal, and nothing where nobody watches."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from types import TracebackType
from typing import Any, Self, TextIO

from markupsafe import Markup

from feddbn.settings import nothing, whole

__all__ = ["Progress"]

# More often than a person can read would slow down rounds that take a millisecond.
_SECONDS_BETWEEN = 0.1


class Progress:
    """A line that says how far a fit is; give it as ``observer=`` or ``progress=``.

    In a notebook one output is written over and over, without widgets or scripts, and its last state stays in the stored
    notebook. In a terminal one line of standard error is. Otherwise nothing is printed. Use it in a ``with`` block where more
    follows in the same cell: the line then ends with the block, else with the cell.

    Parameters
    ----------
    what
        What is going on, in front of the line.
    total
        Number of parts, if it is known (refits, methods): then there is a bar.
    stream
        Where a terminal's line goes; standard error by default.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> with feddbn.Progress("OneShotDBN") as watch:
    ...     model = feddbn.OneShotDBN().fit(data.sites, observer=watch)
    >>> watch.n_sums >= model.n_rounds_
    True
    """

    def __init__(self, what: str = "", total: int | None = None, *, stream: TextIO | None = None) -> None:
        (whole(1) | nothing()).check("total", total)
        self.what = str(what)
        self.total = total
        self.n_sums = 0
        self.n_done = 0
        self._stream = sys.stderr if stream is None else stream
        self._note = ""
        self._began = time.monotonic()
        self._last = 0.0
        self._handle: Any = None
        self._is_over = False

    def __call__(self, task: Any, answer: Any = None) -> None:
        """Count one sum (a task and its answer), or take the number of parts that are done."""
        if isinstance(task, int):
            self.n_done = task
        else:
            self.n_sums += 1
            values = dict(getattr(task, "note", None) or {})
            self._note = (
                f"round {values['round']:.0f}" if "round" in values else str(getattr(task, "name", ""))
            )
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN:
            self._last = now
            self._show()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        self._note = "" if kind is None else "stopped"
        self._show()

    @property
    def line(self) -> str:
        """What is shown, as text."""
        done = (
            ""
            if not self.n_done
            else f"{self.n_done}"
            if self.total is None
            else f"{self.n_done} of {self.total}"
        )
        sums = f"{self.n_sums} sum{'' if self.n_sums == 1 else 's'}" if self.n_sums else ""
        parts = [done, sums, self._note, f"{time.monotonic() - self._began:.1f} s"]
        return (
            f"{self.what}: {', '.join(filter(None, parts))}" if self.what else ", ".join(filter(None, parts))
        )

    @property
    def share(self) -> float | None:
        """How much is done, 0 to 1; None if that is not known."""
        return None if not self.total else min(self.n_done / self.total, 1.0)

    def _show(self) -> None:
        if _in_notebook():
            self._show_html()
        elif self._stream.isatty():
            self._stream.write(f"\r\x1b[K{self.line[:120]}" + ("\n" if self._is_over else ""))
            self._stream.flush()

    def _show_html(self) -> None:
        shown = import_module("IPython.display")
        picture = shown.HTML(self._html())
        if self._handle is None:
            self._handle = shown.display(picture, display_id=True)
            # Without `with` nobody says when it is over; the end of the cell does.
            _shell().events.register("post_run_cell", self._at_the_end_of_the_cell)
        else:
            self._handle.update(picture)

    def _at_the_end_of_the_cell(self, *_: Any) -> None:
        _shell().events.unregister("post_run_cell", self._at_the_end_of_the_cell)
        if not self._is_over:
            self.__exit__(None, None, None)

    def _html(self) -> str:
        share = self.share
        bar = "" if share is None else Markup('<progress max="1" value="{:.3f}"></progress> ').format(share)
        return str(Markup("<div>{}{}</div>").format(bar, self.line))


def _in_notebook() -> bool:
    """Whether a notebook's kernel runs this: it can show HTML."""
    return "IPython" in sys.modules and "IPKernelApp" in getattr(_shell(), "config", {})


def _shell() -> Any:
    return sys.modules["IPython"].get_ipython()
