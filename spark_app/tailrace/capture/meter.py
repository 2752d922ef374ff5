"""How far capture is, for the board that the status server reads. Called by the loop once a second."""

import time

from tailrace.capture import slots
from tailrace.capture.inbox import Board
from tailrace.capture.protocol import StateAnswer
from tailrace.capture.recorder import Recorder
from tailrace.capture.startup import Place

SMOOTHING = 0.3
"""Weight of the newest second in the rate."""


class Meter:
    def __init__(self, place: Place, recorder: Recorder, board: Board) -> None:
        self._place = place
        self._recorder = recorder
        self._board = board
        self._rows = 0
        self._at = time.monotonic()
        self._rate = 0.0
        self._caught_up_at = time.time()

    def measure(self, position: int) -> None:
        distance = slots.distance(self._place.connection, self._place.names.slot)
        now, rows = time.monotonic(), self._recorder.counters.rows
        rate = (rows - self._rows) / max(now - self._at, 0.001)
        self._rate += SMOOTHING * (rate - self._rate)
        self._rows, self._at = rows, now
        journal = self._recorder.journal
        if position >= distance.insert_position or journal.state.position >= distance.insert_position:
            self._caught_up_at = time.time()
        self._board.show(
            StateAnswer(
                record=journal.state.number,
                epoch=journal.state.epoch,
                position=journal.state.position,
                source_position=distance.insert_position,
                lag_seconds=max(0.0, round(time.time() - self._caught_up_at, 3)),
                retained_bytes=distance.retained_bytes,
                rows_per_second=round(self._rate, 1),
            )
        )
