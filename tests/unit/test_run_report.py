from typing import Any, cast

from tailrace.apply.progress import Progress, TableProgress
from tailrace.capture.client import CaptureClient
from tailrace.changelog.records import Applied
from tailrace.changelog.state import LogState, TableLog
from tailrace.errors import Retry
from tailrace.run.report import Reporter


class Client:
    def __init__(self) -> None:
        self.told: list[tuple[Applied, ...]] = []
        self.away = False

    def report_applied(self, tables: list[Applied]) -> None:
        if self.away:
            raise Retry("capture is starting")
        self.told.append(tuple(tables))


def test_capture_hears_of_commits_only_and_again_after_it_was_away() -> None:
    now, client, progress = [0.0], Client(), Progress()
    reporter = Reporter(cast(CaptureClient, client), progress, lambda: now[0])
    state = LogState.model_construct(tables=cast(dict[int, TableLog], {7: cast(Any, None)}))
    reporter.tell(state)
    assert client.told == []
    progress.put(7, TableProgress(applied_seq=4, applied_record=9, committed_record=8))
    now[0] += 3
    client.away = True
    reporter.tell(state)
    client.away = False
    now[0] += 3
    reporter.tell(state)
    assert client.told == [(Applied(table_id=7, applied_seq=4, applied_record=9),)]
    progress.put(7, TableProgress(applied_seq=4, applied_record=12, committed_record=8))
    now[0] += 3
    reporter.tell(state)
    assert len(client.told) == 1, "a record that brought the table nothing calls for no report"
