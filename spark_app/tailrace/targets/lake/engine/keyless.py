"""One batch of a table without a key into one commit: rows are counted, as all their values tell them apart.

Called by `LakeTable` instead of `engine.build`. `fold.keyless` counts; the rows that go are located here, in the files
of the target or, where a chunk takes their place, in the chunk's.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tailrace.fold.key_columns import Ints
from tailrace.fold.keyless import CountedChanges, CountedSlice
from tailrace.fold.row_digests import numbered_within
from tailrace.targets.lake.engine.build import merge
from tailrace.targets.lake.engine.part import PartInput, PartResult
from tailrace.targets.lake.files.index import Span, span_of
from tailrace.targets.lake.files.locate import Found
from tailrace.targets.lake.files.locate_rows import WantedRows, locate_rows
from tailrace.targets.lake.files.write import write_files
from tailrace.targets.lake.model import DataFile, TableCommit


def build_keyless(work: PartInput) -> TableCommit:
    part = CountedSlice.of(work.slice)
    changes = CountedChanges(work.fold, part)
    work = replace(work, fold=replace(work.fold, slice=part.slice))
    if changes.only_inserts:
        dead, rows = dict[str, BitMap64](), changes.rows()
    else:
        spans = _Spans()
        counts = changes.counts(spans.add)
        # The files' bounds are under the columns' names before the batch.
        wanted = WantedRows(counts.digests, counts.counts, {} if part.slice.evolve is not None else spans.known())
        found = locate_rows(work.lake, _files(work), work.layout, wanted)
        groups = np.concatenate([np.empty(0, np.int64), *(rows.keys for rows in found.values())])
        there = np.bincount(groups, minlength=len(counts.counts))
        part.check(counts, there)
        written, marks = counts.settled(there)
        dead, rows = _first(found, groups, marks), changes.rows(written)
    added = tuple(new.file for new in write_files(work.lake, work.location, work.layout, rows))
    return merge(work, [PartResult(dead, added)])


def _files(work: PartInput) -> list[DataFile]:
    """The files that the changes are counted over: a reading's, which are not in the target yet, or the target's."""
    chunks = [DataFile(c.path, c.rows, c.size) for c in work.slice.chunks if c.path is not None]
    return chunks if work.slice.clear else [*work.files]


def _first(found: Mapping[str, Found], groups: Ints, marks: Ints) -> dict[str, BitMap64]:
    """Positions of so many rows of each group. `groups`: of the rows that were found, one file after the other."""
    chosen = numbered_within(groups) < marks[groups]
    parts = np.split(chosen, np.cumsum([len(rows.keys) for rows in found.values()]))
    pairs = zip(found.items(), parts, strict=False)  # behind the last file is nothing
    return {path: BitMap64(rows.positions[here]) for (path, rows), here in pairs if here.any()}


class _Spans:
    """The bounds of all rows' values, by column; columns in which one is NULL, or says nothing, are left out."""

    def __init__(self) -> None:
        self._ends: list[dict[str, pa.Array]] = []

    def add(self, rows: pa.Table) -> None:
        if rows.num_rows:
            ends = ((name, _ends(rows[name].combine_chunks())) for name in rows.column_names)
            self._ends.append({name: values for name, values in ends if values is not None})

    def known(self) -> dict[str, Span]:
        names = set[str].intersection(*map(set, self._ends)) if self._ends else set[str]()
        return {name: span_of(pa.concat_arrays([ends[name] for ends in self._ends])) for name in names}


def _ends(column: pa.Array) -> pa.Array | None:
    """The smallest and the largest value; None: they say nothing."""
    span = None if column.null_count or pa.types.is_nested(column.type) else span_of(column)
    return None if span is None else pa.array(span, column.type)
