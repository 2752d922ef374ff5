"""Questions to the source and the storage, on threads beside the driver's main loop.

Either may hang: a firewall that drops packets, a server that stands still. Signals are obeyed and the status is shown
meanwhile. A thread whose answer is no longer needed ends by itself, and does not delay the end of the process.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from tailrace.changelog.records.terms import Position
from tailrace.changelog.state import LogState
from tailrace.errors import Retry

Answer = TypeVar("Answer")


class Question(Generic[Answer]):
    def __init__(self, ask: Callable[[], Answer], name: str) -> None:
        """`name`: of the thread."""
        self._answer: Future[Answer] = Future()
        threading.Thread(target=self._run, args=(ask,), name=name, daemon=True).start()

    def _run(self, ask: Callable[[], Answer]) -> None:
        try:
            self._answer.set_result(ask())
        except BaseException as error:  # raised to the thread that waits
            self._answer.set_exception(error)

    def answered(self, seconds: float = 0.0) -> bool:
        """Waits for up to so many seconds."""
        return bool(wait([self._answer], seconds).done)

    def answer(self) -> Answer:
        """Once it is answered. Raises what `ask` raised."""
        return self._answer.result()


class PositionQuestion:
    """The end of the source's log now, for `--once`, asked in each step of the main loop until it is known."""

    def __init__(self, ask: Callable[[LogState], Position]) -> None:
        self._ask = ask
        self._asked: tuple[Position, Question[Position]] | None = None
        """The position at which the log of the server that was asked begins."""

    def __call__(self, state: LogState) -> Position:
        """`Retry`: the source has not answered yet; or what it answered with, and is asked again then."""
        if self._asked is None or self._asked[0] != state.source_since:
            self._asked = state.source_since, Question(lambda: self._ask(state), "position-at-start")
        question = self._asked[1]
        if not question.answered():
            raise Retry("the source has not answered yet")
        self._asked = None
        return question.answer()
