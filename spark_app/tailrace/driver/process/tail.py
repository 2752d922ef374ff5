"""The journal's end as the driver knows it without asking the storage: capture, which writes every record, reports it.

Given to the `SharedJournal` that all of the driver reads by. On an object store each look for a record that is not
there yet is a request, several in a second, for as long as the Replicator lives.
"""

from tailrace.capture.client import CaptureClient
from tailrace.changelog.records.terms import RecordNumber
from tailrace.errors import Retry

ANSWER_SECONDS = 1.0
"""Capture answers at once, even while it waits. If it does not answer, the storage is asked."""

NONE = RecordNumber(-1)
PATIENCE = 1.0
"""Seconds between two looks at the journal while nothing is due, if no record comes."""


def await_record(
    client: CaptureClient, after: RecordNumber, patience: float, record_seconds: float = 0.0
) -> RecordNumber | None:
    """Waits up to `patience` seconds for a newer record than `after`. Returns the newest, as `newest_record`. The
    client is used for nothing else, because what else is asked would wait as well. `record_seconds`: as in
    `GetState`."""
    try:
        record = client.state(after, patience, record_seconds).record
    except Retry:
        return None
    return record if record >= 0 else None


def newest_record(client: CaptureClient) -> RecordNumber | None:
    """The number of the newest durable record; None: there is no capture, or it has not opened the journal."""
    return await_record(client, NONE, 0.0)
