"""One batch of a table that has a row for each change into one commit that only adds rows (`fold.logged_changes`).

Called by `LakeTable` instead of `engine.build`. Chunk files lack the sequence of their rows, which is known only when
they are registered: they are copied once instead of adopted, and deleted by the clean-up as files that no version
names. In a table that is partitioned by days no file has rows of two.
"""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.changelog.history import COMMIT_DAY, named
from tailrace.fold.logged_changes import change_rows, read_rows
from tailrace.targets.lake.engine.chunk_files import whole_rows
from tailrace.targets.lake.engine.part import PartInput
from tailrace.targets.lake.files.write import write_files
from tailrace.targets.lake.model import TableCommit


def build_changes(work: PartInput) -> TableCommit:
    part = work.slice
    days = ((None, rows) for rows in _rows(work)) if part.schema.partition_by is None else _by_day(work)
    added = [
        new.file
        for day, pieces in groupby(days, itemgetter(0))
        for new in write_files(work.lake, work.location, work.layout, (rows for _, rows in pieces), day=day)
    ]
    return TableCommit(part.applied_after(frozenset()), added, {}, False, evolve=part.evolve, before=part.before)


def _by_day(work: PartInput) -> Iterator[tuple[str | None, pa.Table]]:
    """The rows some at a time, with their day, in nearly the order of the log: most neighbours are of one day."""
    name = named(work.slice.schema, COMMIT_DAY)
    for rows in _rows(work):
        column = rows.column(name)
        for day in pc.unique(column):
            of_day = pc.equal(column, day) if day.is_valid else pc.is_null(column)
            yield (str(day) if day.is_valid else None), rows.filter(of_day)


def _rows(work: PartInput) -> Iterator[pa.Table]:
    for chunk in work.slice.chunks:
        if chunk.path is not None:
            for rows in whole_rows(work, chunk.path, np.arange(chunk.rows, dtype=np.int64)):
                yield read_rows(work.fold, chunk, rows)
    yield from change_rows(work.fold)
