"""What a session does without asking the service."""

import pytest

from tailrace.targets.bigquery.rest import BigQueryConfig
from tailrace.targets.bigquery.session import BigQuerySession


def test_a_table_that_is_to_take_its_own_place_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[object, ...]]()
    session = BigQuerySession(BigQueryConfig("p", "d", "EU", "http://127.0.0.1:9", None))

    def call(*request: object, **_: object) -> dict[str, object]:
        asked.append(request)
        return {}

    monkeypatch.setattr(session._client, "call", call)
    session.replace(("d", "t"), ("d", "t"), lambda: None)
    assert asked == []
    session.replace(("d", "t"), ("d", "u"), lambda: None)
    assert asked == [("GET", "datasets/d/tables/u")]
