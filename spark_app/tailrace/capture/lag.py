"""The progress of capture, for the board that the status server reads. Called by the loop once a second."""

import time
from collections import deque
from collections.abc import Callable, Sequence

from tailrace.capture.inbox import Board
from tailrace.capture.protocol import StateAnswer
from tailrace.capture.recorder import Recorder
from tailrace.changelog.records.terms import Position
from tailrace.sources.api import Distance

SMOOTHING = 0.3
"""Weight of the newest second in the rate."""


SAMPLES = 1000
"""Places of the log's end that are remembered; of more, every second one is forgotten."""


class Behind:
    """The time since the source's log ended where capture is now. Under steady writing capture never reaches the
    present end, so each end that was seen is remembered until capture has reached it."""

    def __init__(self) -> None:
        self._ends: deque[tuple[float, Position]] = deque()

    def seconds(self, now: float, end: Position, reached: Position) -> float:
        self._ends.append((now, end))
        while self._ends and self._ends[0][1] <= reached:
            self._ends.popleft()
        if len(self._ends) > SAMPLES:
            self._ends = deque(list(self._ends)[::2])
        return max(0.0, now - self._ends[0][0]) if self._ends else 0.0


class Meter:
    def __init__(
        self,
        distance: Callable[[Position], Distance],
        recorder: Recorder,
        board: Board,
        of_other_case: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._distance = distance
        self._of_other_case = of_other_case
        self._recorder = recorder
        self._board = board
        self._rows = 0
        self._at = time.monotonic()
        self._rate = 0.0
        self._behind = Behind()

    def measure(self, position: Position) -> None:
        reached = max(position, self._recorder.journal.state.position)
        distance = self._distance(self._recorder.durable)
        now, rows = time.monotonic(), self._recorder.counters.rows
        rate = (rows - self._rows) / max(now - self._at, 0.001)
        self._rate += SMOOTHING * (rate - self._rate)
        self._rows, self._at = rows, now
        journal = self._recorder.journal
        lag = self._behind.seconds(now, distance.end, reached)
        self._board.show(
            StateAnswer(
                record=journal.state.number,
                epoch=journal.state.epoch,
                position=journal.state.position,
                behind_bytes=distance.behind_bytes,
                lag_seconds=round(lag, 3),
                retained_bytes=distance.retained_bytes,
                log_held_by=distance.held_by,
                waiting_for=distance.waiting_for,
                rows_per_second=round(self._rate, 1),
                of_other_case="; ".join(self._of_other_case()) or None,
            ),
            lambda: journal.state.number,
        )
