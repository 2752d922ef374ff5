"""A log of what a database could write, and of a snapshot that reads it in ranges, for targets under test."""

import pyarrow as pa
from typing_extensions import override

from support.conforming import LogOf
from support.random_log import KeyOf
from support.states import chunk as made_chunk
from support.states import log_state
from support.states import snapshot as planned
from tailrace.batch.rule import Change
from tailrace.changelog.records.snapshots import SnapshotPlanned
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.changelog.state import LoggedChunk, LoggedFinish, LoggedSegment, LogState


class ReadRanges(LogOf):
    """What a database could write, and a snapshot that reads it in three ranges."""

    source: dict[int, tuple[object, ...]]

    @property
    @override
    def state(self) -> LogState:
        plan = SnapshotPlanned(snapshot_id="s", reason="repair", tables=(self.schema.table_id,))
        return log_state(self.table, number=self.record, last_seq=self.seq, snapshots={"s": planned(plan, record=2)})

    def change(self, rows: int) -> None:
        self.record, made = RecordNumber(self.record + 1), list[Change[KeyOf]]()
        for _ in range(rows):
            key = self.rnd.randrange(40)
            row = self._row((key,))
            if key in self.source and self.rnd.random() < 0.4:
                made.append(self._add("D", (key,)))
                del self.source[key]
                continue
            made.append(self._add("U" if key in self.source else "I", (key,), row))
            self.source[key] = row
        self._update(
            segments=self.table.segments.append(LoggedSegment(record=self.record, segment=self._write(made, False)))
        )

    def read(self, number: int, keys: range) -> None:
        found = {(key,): self.source[key] for key in keys if key in self.source}
        names = [column.name for column in self.schema.columns]
        written = self.put(number, pa.table(self._columns(list(found.values())), names=names))
        registered = made_chunk(
            self.schema.table_id, number, path=written and written.path, rows=len(found), layout=self.form,
            size=written.size if written else 0,
            replay_point=Seq(self.seq + 1), lower=(str(keys.start),), upper=(str(keys.stop),),
        )  # fmt: skip
        self._update(chunks=(*self.table.chunks, LoggedChunk(record=self.record, chunk=registered)))

    def finish(self) -> None:
        chunks = tuple(self.table.chunks)
        point = min(logged.chunk.replay_point for logged in chunks)
        self.record = RecordNumber(self.record + 1)
        ended = LoggedFinish(record=self.record, snapshot_id="s", complete=True, replay_point=point, chunks=chunks)
        self._update(finishes=(ended,))
