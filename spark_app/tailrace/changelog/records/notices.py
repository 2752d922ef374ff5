"""The event of notifications: how far they were sent."""

from typing import Literal

from tailrace.changelog.records.terms import Closed, RecordNumber


class Notified(Closed):
    """All notifications about records up to this one were sent, or dropped."""

    kind: Literal["notified"] = "notified"
    record: RecordNumber
