"""A change log of 500 tables with a change each per second, as fast as the real fold, roll-ups and retention go.

Run in a process of its own (`python -m support.many_segments FOLDER SEGMENTS`), since it measures its own memory: it
prints one JSON document. Records are made up, with every other table's segments in bundles; storage, writer, reader,
roll-ups and removals are the real ones. Targets follow a minute behind; the log is kept for as long as the run lasts,
so that every segment stays in the state.
"""

import json
import os
import sys
import time
from pathlib import Path
from random import Random

from support.journals import table_schema
from support.origins import origin
from support.transactions import numbered
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.paths import bundle_path, segment_path
from tailrace.changelog.records import Segment
from tailrace.changelog.records.tables import Applied, TableAdded
from tailrace.changelog.records.terms import Position, RecordNumber, Seq, TableSchema
from tailrace.changelog.retention import Ages, Pins
from tailrace.changelog.trim import trim
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage

TABLES = 500
ORIGIN = origin()
HOUR = 3_600_000_000


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Log:
    """Writes a second of the log at a time: five records of a hundred tables each."""

    def __init__(self, storage: Storage) -> None:
        self.random = Random(1)
        self.now = 1_700_000_000.0
        self.journal = JournalWriter.create(storage, ORIGIN, Position(5), "a", clock=lambda: self.now)
        self.tables = [table_schema(1 + n) for n in range(TABLES)]
        self.journal.append(Position(5), events=tuple(TableAdded(table=table, edge="1") for table in self.tables))

    def second(self) -> None:
        for part in range(5):
            self.now += 0.2
            self._record(self.tables[part * 100 : part * 100 + 100])
        journal = self.journal
        behind = max(1, journal.state.number - 300)
        if int(self.now) % 2 == 0:
            applied = [
                Applied(table_id=t.table_id, applied_seq=Seq(0), applied_record=RecordNumber(behind))
                for t in self.tables
            ]
            journal.append(journal.state.position, events=tuple(applied))

    def _record(self, tables: list[TableSchema]) -> None:
        journal, at = self.journal, int(self.now * 1e6)
        first = journal.state.last_seq + 1
        segments, seqs = [], []
        counts = [self.random.randint(1, 9) for _ in tables]
        bundle = bundle_path(Seq(first), Seq(first + sum(counts) - 1), self._token())
        for table, rows in zip(tables, counts, strict=True):
            seqs.append(first)
            own = segment_path(table, Seq(first), Seq(first + rows - 1), self._token())
            segments.append(
                Segment(
                    table_id=table.table_id,
                    schema_version=1,
                    path=own if table.table_id % 2 else bundle,
                    rows=rows,
                    size=self.random.randint(2_000, 9_000),
                    first_seq=Seq(first),
                    last_seq=Seq(first + rows - 1),
                    inserts=rows,
                )
            )
            first += rows
        transactions = numbered(tuple(1_000_000 + s for s in seqs), tuple(seqs))
        position = journal.state.position + 1
        journal.append(
            Position(position),
            Seq(first - 1),
            transactions=transactions,
            segments=tuple(segments),
            commit_time=(at, at),
        )

    def _token(self) -> str:
        return f"{self.random.getrandbits(64):016x}"

    def trim(self, retention: int) -> None:
        """As capture does each minute. Snapshots taken now see all but the newest transactions."""
        now = int(self.now * 1e6)
        pins = Pins(Seq(max(1, self.journal.state.last_seq - 1000)))
        trim(self.journal, pins, Ages(now=now, retention=retention, retry=HOUR))


def main(folder: str, wanted: int) -> dict[str, object]:
    storage = Storage.open(StorageLocation(location=f"file://{folder}/log"))
    log = Log(storage)
    for _ in range(60):  # what Python and the tables themselves need
        log.second()
    log.trim(24 * HOUR)
    base, base_segments = resident(), count(log)
    begun, seconds = time.process_time(), 0
    while count(log) < wanted:
        for _ in range(60):
            log.second()
        seconds += 60
        log.trim(24 * HOUR)
    folding = time.process_time() - begun
    kept = count(log)
    per_segment = (resident() - base) / (kept - base_segments)
    sizes = dict(storage.list("journal/"))
    rolled_up = sum(size for path, size in sizes.items() if "/parts/" in path or "/rollup/" in path)
    records = sum(sizes.values()) - rolled_up
    heads = [size for path, size in sizes.items() if "/rollup/" in path]
    begun = time.process_time()
    reader = JournalReader.open(storage)
    started = time.process_time() - begun
    assert reader.state.number == log.journal.state.number
    assert sum(len(t.segments) for t in reader.state.tables.values()) == kept
    return {
        "segments": kept,
        "bytes_per_segment": round(per_segment, 1),
        "fold_us_per_segment": round(folding / (kept - base_segments) * 1e6, 1),
        "record_bytes": records,
        "part_bytes": rolled_up - sum(heads),
        "tables": TABLES,
        "first_head": heads[0],
        "last_head": heads[-1],
        "start_cpu_seconds": round(started, 2),
        "log_seconds": seconds + 60,
    }


def count(log: Log) -> int:
    return sum(len(table.segments) for table in log.journal.state.tables.values())


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
