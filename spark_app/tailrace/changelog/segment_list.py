"""A table's segments in the state: a sequence of `LoggedSegment`, kept as packed rows (`changelog.packed`).

Made and changed by the fold, read by retention and where batches are cut. A segment takes some 30 bytes instead of two
thousand: its path follows from the table's folder, its sequences and its token, or from the range and the token of its
bundle. Segments stand in order of records and of sequences, so readers ask for a range instead of walking over all.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema
from typing_extensions import override

from tailrace.changelog.packed import WITHOUT_BLOCKS, PackedRows
from tailrace.changelog.paths import bundle_path, is_bundle, segment_range
from tailrace.changelog.records import Segment
from tailrace.changelog.records.terms import Closed, RecordNumber, Seq

RECORD, LAST_SEQ, FIRST_SEQ, WRITTEN_AT, ROWS, SIZE, INSERTS, UPDATES, DELETES, VERSION, FLAGS, TOKEN, NAME = range(13)
BEFORE, AFTER = 13, 14
"""The sequences by which the segment's bundle begins before it and ends after it."""
WIDTH = 15
UNCHANGED, MOVES, BUNDLED = 1, 2, 4
TOKEN_SHIFT = 3
"""Above the flags: how many digits the token has; 0: the name is the whole path."""
_PATH = re.compile(r"(.+)/\d+-\d+-([0-9a-f]{1,16})\.\w+")


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
        place = _split(one)
        # Bundles have no name: they would take turns with the folder.
        names = self._names if place.name in ("", *self._names[-1:]) else (*self._names, place.name)
        flags = one.unchanged * UNCHANGED | one.moves * MOVES | (not place.name) * BUNDLED
        flags |= place.digits << TOKEN_SHIFT
        line = (
            logged.record, one.last_seq, one.first_seq, logged.written_at, one.rows, one.size, one.inserts,
            one.updates, one.deletes, one.schema_version, flags, place.token, len(names) - 1, place.before, place.after,
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

    def sizes_after(self, record: RecordNumber) -> Iterator[tuple[RecordNumber, int, int]]:
        """(record, rows, bytes) of those that later records bring."""
        for piece in self._rows.pieces(self._rows.find(RECORD, record + 1)):
            yield from ((line[0], line[1], line[2]) for line in piece[:, [RECORD, ROWS, SIZE]].tolist())

    def ending_from(self, seq: Seq) -> Iterator[LoggedSegment]:
        """Those whose last sequence is not below `seq`."""
        return self._from(self._rows.find(LAST_SEQ, seq))

    def ended_through(self, seq: Seq) -> int:
        """The number of segments that end at or below `seq`."""
        return self._rows.find(LAST_SEQ, seq + 1)

    @property
    def last_seq(self) -> Seq | None:
        """The newest segment's last sequence."""
        return Seq(int(self._rows.line(len(self) - 1)[LAST_SEQ])) if len(self) else None

    @property
    def last_record(self) -> RecordNumber | None:
        """The newest segment's."""
        return RecordNumber(int(self._rows.line(len(self) - 1)[RECORD])) if len(self) else None

    def record_after(self, record: RecordNumber) -> RecordNumber | None:
        """The first record above this one that brings a segment."""
        last = self.last_record
        if last is None or last <= record:
            return None  # as for nearly all tables, nearly always
        index = self._rows.find(RECORD, record + 1)
        return RecordNumber(int(self._rows.line(index)[RECORD]))

    def last_seq_through(self, record: RecordNumber) -> Seq | None:
        """The last sequence of the segments up to this record."""
        count = self.through_record(record)
        return Seq(int(self._rows.line(count - 1)[LAST_SEQ])) if count else None

    def through_record(self, record: RecordNumber) -> int:
        """The number of segments up to this record."""
        return self._rows.find(RECORD, record + 1)

    def bundles(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[str, RecordNumber]]:
        """Path and record of the bundles that hold the segments from `start` to `stop`, some more than once."""
        for piece in self._rows.pieces(start, stop):
            bundled = piece[piece[:, FLAGS] & BUNDLED != 0].tolist()
            yield from ((self._path(line), RecordNumber(line[RECORD])) for line in bundled)

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
        digits = line[FLAGS] >> TOKEN_SHIFT
        token = f"{line[TOKEN] % 2**64:0{digits}x}"
        if line[FLAGS] & BUNDLED:
            return bundle_path(Seq(line[FIRST_SEQ] - line[BEFORE]), Seq(line[LAST_SEQ] + line[AFTER]), token)
        name = self._names[line[NAME]]
        return f"{name}/{line[FIRST_SEQ]}-{line[LAST_SEQ]}-{token}.parquet" if digits else name

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


class _Place(NamedTuple):
    """The parts of a path."""

    name: str
    """The folder; empty: it is a bundle's. Without `digits` the whole path."""
    digits: int = 0
    token: int = 0
    """A signed number."""
    before: int = 0
    after: int = 0


def _split(segment: Segment) -> _Place:
    found, covered = _PATH.fullmatch(segment.path), segment_range(segment.path)
    if found is None or covered is None:
        return _Place(segment.path)
    token, digits = int(found[2], 16), len(found[2])
    token -= 2**64 if token >= 2**63 else 0
    before, after = segment.first_seq - covered[0], covered[1] - segment.last_seq
    if is_bundle(segment.path):
        return _Place("", digits, token, before, after)
    return _Place(segment.path) if before or after else _Place(found[1], digits, token)
