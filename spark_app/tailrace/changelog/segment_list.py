"""A table's segments in the state: a sequence of `LoggedSegment`, kept as packed rows (`changelog.packed`).

Made and changed by the fold, read by retention and where batches are cut. A segment takes some 30 bytes instead of two
thousand: its path follows from the table's folder, its sequences and its token. Segments stand in order of records and
of sequences, so readers ask for a range instead of walking over all.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema
from typing_extensions import override

from tailrace.changelog.packed import WITHOUT_BLOCKS, PackedRows
from tailrace.changelog.records import Closed, RecordNumber, Segment, Seq

RECORD, LAST_SEQ, FIRST_SEQ, WRITTEN_AT, ROWS, SIZE, INSERTS, UPDATES, DELETES, VERSION, FLAGS, TOKEN, NAME = range(13)
WIDTH = 13
UNCHANGED, MOVES = 1, 2
TOKEN_SHIFT = 2
"""Above the two flags: how many digits the token has; 0: the name is the whole path."""
_PATH = re.compile(r"(.+)/(\d+)-(\d+)-([0-9a-f]{1,16})\.parquet")


class LoggedSegment(Closed):
    record: RecordNumber
    segment: Segment
    written_at: int = 0
    """The record's, by which retention counts age."""


class SegmentList(Sequence[LoggedSegment]):
    """A value: `append` and `drop` return another list that shares what is the same."""

    __slots__ = ("_names", "_rows", "table_id")

    def __init__(self, table_id: int = 0, names: tuple[str, ...] = (), rows: PackedRows | None = None) -> None:
        self.table_id = table_id
        self._names = names
        """Folders, or whole paths that are not made of a folder, sequences and a token."""
        self._rows = PackedRows(WIDTH) if rows is None else rows

    @classmethod
    def of(cls, segments: Iterable[LoggedSegment]) -> "SegmentList":
        made = cls()
        for segment in segments:
            made = made.append(segment)
        return made

    @property
    def rows(self) -> PackedRows:
        return self._rows

    def append(self, logged: LoggedSegment) -> "SegmentList":
        one = logged.segment
        name, digits, token = _split(one)
        names = self._names if name in self._names[-1:] else (*self._names, name)
        flags = one.unchanged * UNCHANGED | one.moves * MOVES | digits << TOKEN_SHIFT
        line = (
            logged.record, one.last_seq, one.first_seq, logged.written_at, one.rows, one.size, one.inserts,
            one.updates, one.deletes, one.schema_version, flags, token, len(names) - 1,
        )  # fmt: skip
        return SegmentList(one.table_id, names, self._rows.append(np.array([line], np.int64)))

    def drop(self, count: int) -> "SegmentList":
        """Without the first `count`."""
        return SegmentList(self.table_id, self._names, self._rows.drop(count))

    # ---- as a sequence ----

    @override
    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> LoggedSegment: ...
    @overload
    def __getitem__(self, index: slice) -> list[LoggedSegment]: ...
    @override
    def __getitem__(self, index: int | slice) -> LoggedSegment | list[LoggedSegment]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._made(self._rows.line(index + len(self) if index < 0 else index).tolist())

    @override
    def __iter__(self) -> Iterator[LoggedSegment]:
        return self._from(0)

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, SegmentList) and len(self) == len(other) and all(map(_equal, self, other))

    __hash__ = None  # type: ignore[assignment]  # compared by content, never a key

    @override
    def __repr__(self) -> str:
        return f"SegmentList({list(self)!r})"

    # ---- ranges ----

    def after_record(self, record: RecordNumber) -> Iterator[LoggedSegment]:
        return self._from(self._rows.find(RECORD, record + 1))

    def ending_from(self, seq: Seq) -> Iterator[LoggedSegment]:
        """Those whose last sequence is not below `seq`."""
        return self._from(self._rows.find(LAST_SEQ, seq))

    def ended_through(self, seq: Seq) -> int:
        """The number of segments that end at or below `seq`."""
        return self._rows.find(LAST_SEQ, seq + 1)

    def record_after(self, record: RecordNumber) -> RecordNumber | None:
        """The first record above this one that brings a segment."""
        index = self._rows.find(RECORD, record + 1)
        return RecordNumber(int(self._rows.line(index)[RECORD])) if index < len(self) else None

    def last_seq_through(self, record: RecordNumber) -> Seq | None:
        """The last sequence of the segments up to this record."""
        count = self._rows.find(RECORD, record + 1)
        return Seq(int(self._rows.line(count - 1)[LAST_SEQ])) if count else None

    def ends(self) -> Iterator[tuple[Seq, int]]:
        """(last sequence, written at) of each."""
        for piece in self._rows.pieces():
            yield from ((line[0], line[1]) for line in piece[:, [LAST_SEQ, WRITTEN_AT]].tolist())

    def _from(self, index: int) -> Iterator[LoggedSegment]:
        for piece in self._rows.pieces(index):
            yield from map(self._made, piece.tolist())

    def _made(self, line: Sequence[int]) -> LoggedSegment:
        segment = Segment.model_construct(
            table_id=self.table_id,
            schema_version=line[VERSION],
            path=self._path(line),
            rows=line[ROWS],
            size=line[SIZE],
            first_seq=line[FIRST_SEQ],
            last_seq=line[LAST_SEQ],
            unchanged=bool(line[FLAGS] & UNCHANGED),
            moves=bool(line[FLAGS] & MOVES),
            inserts=line[INSERTS],
            updates=line[UPDATES],
            deletes=line[DELETES],
        )
        return LoggedSegment.model_construct(record=line[RECORD], segment=segment, written_at=line[WRITTEN_AT])

    def _path(self, line: Sequence[int]) -> str:
        name, digits = self._names[line[NAME]], line[FLAGS] >> TOKEN_SHIFT
        if not digits:
            return name
        return f"{name}/{line[FIRST_SEQ]}-{line[LAST_SEQ]}-{line[TOKEN] % 2**64:0{digits}x}.parquet"

    # ---- as JSON ----

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._validated,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda segments, info: segments.document(info.context != WITHOUT_BLOCKS), info_arg=True
            ),
        )

    @classmethod
    def _validated(cls, value: Any) -> "SegmentList":
        if isinstance(value, SegmentList):
            return value
        return cls(int(value["table_id"]), tuple(value["names"]), PackedRows.from_document(value["rows"]))

    def document(self, blocks: bool) -> dict[str, Any]:
        rows = self._rows.document() if blocks else self._rows.head()
        return {"table_id": self.table_id, "names": list(self._names), "rows": rows}


def _equal(one: LoggedSegment, other: LoggedSegment) -> bool:
    return one == other


def _split(segment: Segment) -> tuple[str, int, int]:
    """Folder, digits of the token and token as a signed number; or the whole path, 0 and 0."""
    found = _PATH.fullmatch(segment.path)
    if found is None or (found[2], found[3]) != (str(segment.first_seq), str(segment.last_seq)):
        return segment.path, 0, 0
    token = int(found[4], 16)
    return found[1], len(found[4]), token - 2**64 if token >= 2**63 else token
