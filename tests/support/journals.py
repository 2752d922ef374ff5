"""Random valid journals for tests of the fold, of retention and of what is derived from the state."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from support.origins import origin as make_origin
from support.transactions import numbered
from tailrace.changelog.records import EpochStarted, Event, Heartbeat, Record, Segment
from tailrace.changelog.records.snapshots import (
    ChunkRegistered,
    SnapshotEnded,
    SnapshotPlanned,
    SnapshotTableFinished,
    SnapshotTableStarted,
)
from tailrace.changelog.records.tables import (
    Applied,
    SchemaChanged,
    SegmentsRemoved,
    TableAdded,
    TransactionsRemoved,
    Truncated,
)
from tailrace.changelog.records.terms import Column, Position, RecordNumber, Seq, TableSchema
from tailrace.changelog.state import LogState, fold

TABLE_IDS = (1, 2, 3)
SECOND = 1_000_000


def table_schema(table_id: int, version: int = 1) -> TableSchema:
    columns = [Column(name="id", id=1, source_type="bigint", type="int64", nullable=False, key=0)]
    columns += [Column(name=f"c{v}", id=v + 1, source_type="text", type="string") for v in range(1, version + 1)]
    return TableSchema(
        table_id=table_id, schema_name="public", table_name=f"t{table_id}", version=version, columns=tuple(columns)
    )


class Journal:
    """Makes records that follow from one another; remembers what it put into them."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.state = LogState()
        self.segments: dict[int, list[Segment]] = {table_id: [] for table_id in TABLE_IDS}
        self.transactions: list[tuple[int, int]] = []
        """(first sequence, xid)"""
        self._snapshots = 0
        self._chunks = 0

    def records(self, length: int) -> Iterator[Record]:
        yield self.origin()
        yield self.plain(events=tuple(TableAdded(table=table_schema(i), edge="5") for i in TABLE_IDS))
        for _ in range(length):
            yield self.any()

    def origin(self) -> Record:
        origin = make_origin("log")
        return self._done(
            Record(
                number=RecordNumber(0),
                epoch=0,
                nonce="n0",
                first_seq=Seq(1),
                last_seq=Seq(0),
                position=Position(1000),
                written_at=0,
                events=(origin,),
            )
        )

    def plain(self, rows: int = 0, events: tuple[Event, ...] = (), **changes: Any) -> Record:
        """A record with `rows` sequences, one transaction each, without segments."""
        first = self.state.last_seq + 1
        seqs = tuple(range(first, first + rows))
        xids = tuple(1000 + s for s in seqs)
        values: dict[str, Any] = {
            "number": self.state.number + 1,
            "epoch": self.state.epoch,
            "nonce": self.state.nonce,
            "first_seq": first,
            "last_seq": first + rows - 1,
            "position": self.state.position + rows,
            "written_at": (self.state.number + 1) * SECOND,
            "commit_time": (first, first + rows) if rows else None,
            "transactions": numbered(xids, seqs),
            "events": events,
        }
        return self._done(Record(**{**values, **changes}))

    @staticmethod
    def following(state: LogState, events: tuple[Event, ...]) -> Record:
        """A record without changes that follows any state."""
        journal = Journal(Random(0))
        journal.state = state
        return journal.plain(events=events)

    def any(self) -> Record:
        """Changes, epochs, schema changes, snapshots, applied, retention: whatever the state allows."""
        if self.random.random() < 0.1:
            epoch = self.state.epoch + 1
            return self.plain(epoch=epoch, nonce=f"n{epoch}", events=(EpochStarted(),))
        if self.random.random() < 0.1:
            return self.plain(events=(Heartbeat(),))
        rows = self.random.choice([0, 1, 5, 20])
        events, segments = self._changes(self.state.last_seq + 1, rows)
        events += self._snapshot_events(rows)
        events += self._bookkeeping()
        return self.plain(rows, events=tuple(events), segments=tuple(segments))

    def _changes(self, first: int, rows: int) -> tuple[list[Event], list[Segment]]:
        events: list[Event] = []
        segments: list[Segment] = []
        last = first + rows - 1
        # Bundles of some tables each, or none.
        token = f"{self.random.getrandbits(64):016x}"
        bundles = [f"segments/bundles/{first}-{last}-{token[n:]}.arrow" for n in range(self.random.randint(0, 2))]
        for table_id in TABLE_IDS if rows else ():
            version = self.state.tables[table_id].schema.version
            cut = self.random.randint(first, last)
            segments.append(self._segment(table_id, version, first, cut, bundles))
            if self.random.random() < 0.2:
                version += 1
                events.append(SchemaChanged(table=table_schema(table_id, version), seq=Seq(cut)))
            if cut < last and self.random.random() < 0.8:
                segments.append(self._segment(table_id, version, cut + 1, last, bundles))
            if self.random.random() < 0.1:
                events.append(Truncated(table_id=table_id, seq=Seq(last), transaction=str(1000 + last)))
        return events, segments

    def _segment(self, table_id: int, version: int, first: int, last: int, bundles: Sequence[str] = ()) -> Segment:
        own = f"segments/t{table_id}/{first}-{last}-{len(self.segments[table_id]):x}.parquet"
        segment = Segment(
            table_id=table_id,
            schema_version=version,
            path=self.random.choice((own, *bundles)),
            rows=1,
            size=10,
            first_seq=Seq(first),
            last_seq=Seq(last),
        )
        self.segments[table_id].append(segment)
        return segment

    def _snapshot_events(self, rows: int) -> list[Event]:
        running = [s for s in self.state.snapshots.values() if s.ended is None]
        if not running:
            self._snapshots += 1
            name, table_id = f"s{self._snapshots}", self.random.choice(TABLE_IDS)
            started = SnapshotTableStarted(snapshot_id=name, table_id=table_id, max_key=("9",), estimated_rows=9)
            return [SnapshotPlanned(snapshot_id=name, tables=(table_id,)), started]
        name, table = running[0].plan.snapshot_id, next(iter(running[0].tables.values()))
        if table.chunks and self.random.random() < 0.3:
            done = SnapshotTableFinished(
                snapshot_id=name, table_id=table.table_id, chunks=len(table.chunks), complete=True
            )
            return [done, SnapshotEnded(snapshot_id=name, outcome="completed")]
        self._chunks += 1
        kept = max(self.state.tables[table.table_id].trimmed_through, self.state.transactions.trimmed_through) + 1
        return [
            ChunkRegistered(
                snapshot_id=name, table_id=table.table_id, chunk=self._chunks, lower=None, upper=("5",), path="p",
                rows=3, size=9, schema_version=self.state.tables[table.table_id].schema.version,
                replay_point=Seq(self.random.randint(kept, self.state.last_seq + rows + 1)), layout="form",
                high=self.state.position,
            )
        ]  # fmt: skip

    def _bookkeeping(self) -> list[Event]:
        events: list[Event] = []
        for table in self.state.tables.values():
            if self.random.random() < 0.3:
                record = self.random.randint(table.applied_record, self.state.number)
                seq = self.random.randint(min(table.applied_seq, self.state.last_seq), self.state.last_seq)
                events.append(
                    Applied(table_id=table.table_id, applied_seq=Seq(seq), applied_record=RecordNumber(record))
                )
            if self.random.random() < 0.2 and table.applied_seq > table.trimmed_through:
                through = self.random.randint(table.trimmed_through, table.applied_seq)
                events.append(SegmentsRemoved(table_id=table.table_id, through_seq=Seq(through)))
        if self.random.random() < 0.2:
            through = self.random.randint(self.state.transactions.trimmed_through, self.state.last_seq)
            events.append(TransactionsRemoved(through_seq=Seq(through)))
        return events

    def _done(self, record: Record) -> Record:
        self.state = fold(self.state, record)
        self.transactions += zip(record.transactions.first_seqs, record.transactions.numbers, strict=True)
        return record
