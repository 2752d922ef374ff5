"""One batch of a table whose deleted rows stay, marked (`batch.soft_delete`), into one commit.

Called by `LakeTable` instead of `engine.build`, which makes a commit of each stage. They are joined here: a stage
works on the files that the one before would have left. A row is marked by writing it again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tailrace.batch.slice import TableSlice
from tailrace.batch.soft_delete import Stage, stages
from tailrace.changelog import keys
from tailrace.changelog.history import DELETED, DELETED_AT, named
from tailrace.changelog.records.terms import Key
from tailrace.fold.key_columns import Ints, joined, of_texts, taken
from tailrace.fold.missing import missing_keys
from tailrace.targets.lake.engine.build import PART_ROWS, Spread, build
from tailrace.targets.lake.engine.chunk_files import ChunkFiles
from tailrace.targets.lake.engine.part import PartInput
from tailrace.targets.lake.engine.snapshot_end import Candidates, ScannedKeys, find_deletions
from tailrace.targets.lake.files.locate import CACHE, locate, read_rows
from tailrace.targets.lake.files.write import write_files
from tailrace.targets.lake.model import DataFile, NewFile, TableCommit
from tailrace.targets.lost_rows import warn_of_lost_rows

Places = Iterable[tuple[str, Ints]]
"""Files, each with rising positions in it."""


def build_marked(work: PartInput, spread: Spread | None = None) -> TableCommit:
    """`work`: of a slice that `stored_slice` has made."""
    part, holes = work.slice, work.slice.applied.holes
    joint = _Joint({file.path: file for file in work.files})
    for stage in stages(part):
        holes = _stage(joint, work, stage.over(holes), spread)
    first = {file.path: file for file in work.files}
    return TableCommit(
        part.applied_after(holes),
        [
            NewFile(file.path, file.rows, file.size, file.dead)
            for path, file in joint.files.items()
            if path not in first and len(file.dead) < file.rows
        ],
        {path: joint.files[path].dead for path, file in first.items() if joint.files[path].dead != file.dead},
        evolve=part.evolve,
        before=part.before,
    )


@dataclass
class _Joint:
    """The files that the table would have."""

    files: dict[str, DataFile] = field(default_factory=dict)

    def add(self, commit: TableCommit) -> None:
        for path, dead in commit.marks.items():
            self.files[path] = replace(self.files[path], dead=dead)
        for new in commit.add:
            self.files[new.path] = DataFile(new.path, new.rows, new.size, new.dead)

    def kill(self, path: str, positions: Ints) -> None:
        file = self.files[path]
        self.files[path] = replace(file, dead=file.dead | BitMap64(positions))


def _stage(joint: _Joint, work: PartInput, stage: Stage, spread: Spread | None) -> frozenset[Key]:
    """Bring the files forward; returns the holes that are left."""
    own = _over(joint, work, stage.slice)
    built = build(own, spread)
    joint.add(built)
    holes = there = built.applied.holes
    if stage.truncated:
        _mark(joint, work, _living(joint), stage.truncated_at)
        holes = frozenset()
    if stage.asked:
        gone = missing_keys(own.fold, stage.asked, ChunkFiles(replace(own, concerned={})))
        holes -= gone
        _mark(joint, work, _places(joint, own, gone), None)
    if stage.finished:
        ending = replace(stage.slice, chunks=(), finished=stage.finished)
        for places, gone in _unread(_over(joint, work, ending), holes):
            holes -= gone
            _mark(joint, work, places, None)
    warn_of_lost_rows(stage.slice.schema, len(there) - len(holes))
    return holes


def _over(joint: _Joint, work: PartInput, part: TableSlice) -> PartInput:
    return replace(work, fold=replace(work.fold, slice=part), files=tuple(joint.files.values()))


def _living(joint: _Joint) -> Places:
    """All rows, those of one file after the other: what is held of the others is their dead rows, a bit each."""
    for path, file in list(joint.files.items()):
        yield path, _numbers(BitMap64(range(file.rows)) - file.dead)


def _numbers(rows: BitMap64) -> Ints:
    return np.array(rows.to_array(), np.int64)


def _places(joint: _Joint, work: PartInput, wanted: frozenset[Key]) -> Places:
    """The rows of these keys."""
    if not wanted:
        return ()
    rows = pa.table(of_texts(sorted(wanted), work.fold.key_types), names=work.fold.key)
    found = locate(work.lake, tuple(joint.files.values()), work.layout, rows, CACHE)
    return [(path, np.unique(hits.positions)) for path, hits in found.items()]


def _unread(work: PartInput, holes: frozenset[Key]) -> Iterator[tuple[Places, frozenset[Key]]]:
    """Rows and holes that complete snapshots have not found, for some keys at a time: those are held in memory."""
    there = sum(file.rows - len(file.dead) for file in work.files if file.path in work.existing_files)
    parts = max(1, -(-there // (4 * PART_ROWS)))
    work = replace(work, fold=replace(work.fold, parts=parts))
    waiting = of_texts(sorted(holes), work.fold.key_types)
    for part in range(parts):
        own = taken(waiting, np.flatnonzero(work.fold.owner(waiting) == part).astype(np.int64))
        candidates = Candidates(joined([], work.fold.key_types), own)
        gone = find_deletions(work, ScannedKeys(work, part), candidates, {})
        places = ((path, _numbers(dead)) for path, dead in gone.dead.items())
        yield places, frozenset(keys.keys(taken(own, np.flatnonzero(gone.holes).astype(np.int64))))


def _mark(joint: _Joint, work: PartInput, places: Places, at: int | None) -> None:
    """Write those of the rows that are not marked again, marked. `at`: microseconds since the Unix epoch."""
    rows = _marked(joint, work, places, at)
    for new in write_files(work.lake, work.location, work.layout, rows):
        joint.files[new.file.path] = DataFile(new.file.path, new.file.rows, new.file.size, new.file.dead)


def _marked(joint: _Joint, work: PartInput, places: Places, at: int | None) -> Iterator[pa.Table]:
    names: Sequence[str] = work.fold.names
    deleted, deleted_at = (named(work.slice.schema, name) for name in (DELETED, DELETED_AT))
    for path, positions in places:
        kept: list[Ints] = []
        for before, rows in read_rows(work.lake, path, positions, work.layout, names) if len(positions) else ():
            # NULL, which another program may have written, is no mark.
            there = pc.invert(pc.fill_null(rows.column(deleted).combine_chunks(), False))
            kept.append(positions[before + np.flatnonzero(np.asarray(there))])
            found = rows.filter(there)
            time = pa.array([at] * found.num_rows, pa.timestamp("us", "UTC"))
            found = found.set_column(names.index(deleted), deleted, pa.array([True] * found.num_rows))
            found = found.set_column(names.index(deleted_at), deleted_at, time)
            if found.num_rows:
                yield found
        if kept:
            joint.kill(path, np.concatenate(kept))
