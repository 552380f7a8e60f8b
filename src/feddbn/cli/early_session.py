"""A session that is opened while a study is tried out: one mostly waits for the server, the other for imports."""

from __future__ import annotations

from concurrent.futures import Future, wait
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feddbn.runtime.engines.interface import Session

__all__ = ["EarlySession"]

# A server that is there has answered by then; of one that is not there is nothing to close.
_LINGER_S = 2.0


class EarlySession:
    """A context manager that is entered once; what goes wrong while the session is opened is told then.

    Parameters
    ----------
    session
        Not yet connected. It is being opened when this returns.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._opened: Future[Session] = Future()
        Thread(target=self._open, daemon=True).start()

    def __enter__(self) -> Session:
        try:
            return self._opened.result()
        except KeyboardInterrupt:
            self.give_up()
            raise

    def __exit__(self, *error: object) -> None:
        self._session.__exit__(*error)

    def give_up(self) -> None:
        """Close the session without having used it.

        Where the server is not there, an engine's own threads may keep the process until their time to connect is over.
        """
        wait((self._opened,), timeout=_LINGER_S)
        self._opened.add_done_callback(self._close)

    def _open(self) -> None:
        try:
            self._opened.set_result(self._session.__enter__())
        except BaseException as error:
            self._opened.set_exception(error)

    def _close(self, opened: Future[Session]) -> None:
        if opened.exception() is None:
            self._session.__exit__(None, None, None)
