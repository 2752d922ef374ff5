"""The segments of the record that is being built: small ones are written together, all others at once.

Called by capture's recorder; `finish` comes before the record that names the segments.
"""

from collections.abc import Callable
from secrets import token_hex

import pyarrow as pa

from tailrace.changelog.bundles import FULL, SMALL, Bundle, encoded
from tailrace.changelog.records import Segment
from tailrace.changelog.records.terms import TableSchema
from tailrace.changelog.segments import segment_of, write_segment
from tailrace.storage.store import Storage


class RecordSegments:
    """A list in order of arrival, whatever is written first: sequences of a table must rise."""

    def __init__(self, token: Callable[[], str] = lambda: token_hex(8)) -> None:
        self._token = token
        self._segments: list[Segment] = []
        self._bundle = Bundle()
        self._waiting: list[int] = []
        """Places of the bundle's segments."""

    def add(
        self, storage: Storage, table: TableSchema, rows: pa.Table, known: Callable[[Segment], Segment] = lambda s: s
    ) -> Segment:
        """Take rows (not none, of `segment_schema(table)`, sequences rising); `known` adds to their segment what they
        do not show."""
        data = encoded(rows)
        if data is None:
            segment = known(write_segment(storage, table, rows, self._token))
        else:
            segment = known(segment_of(table, rows).model_copy(update={"size": len(data)}))
            if len(data) < SMALL:
                self._bundle.add(segment, data)
                self._waiting.append(len(self._segments))
            else:
                own = Bundle()
                own.add(segment, data)
                segment = segment.model_copy(update={"path": own.write(storage, self._token())})
        self._segments.append(segment)
        if self._bundle.size >= FULL:
            self._write(storage)
        return segment

    def finish(self, storage: Storage) -> tuple[Segment, ...]:
        """All segments; they are durable."""
        if self._waiting:
            self._write(storage)
        return tuple(self._segments)

    def _write(self, storage: Storage) -> None:
        path = self._bundle.write(storage, self._token())
        for place in self._waiting:
            self._segments[place] = self._segments[place].model_copy(update={"path": path})
        self._bundle, self._waiting = Bundle(), []
