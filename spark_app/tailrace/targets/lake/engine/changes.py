"""One batch of a table that has a row for each change into one commit that only adds rows (`fold.logged_changes`).

Called by `LakeTable` instead of `engine.build`. Chunk files lack the sequence of their rows, which is known only when
they are registered: they are copied once instead of adopted, and deleted by the clean-up as files that no version
names.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tailrace.fold.logged_changes import change_rows, read_rows
from tailrace.targets.lake.engine.chunk_files import whole_rows
from tailrace.targets.lake.engine.part import PartInput
from tailrace.targets.lake.files.write import write_files
from tailrace.targets.lake.model import TableCommit


def build_changes(work: PartInput) -> TableCommit:
    added = [new.file for new in write_files(work.lake, work.location, work.layout, _rows(work))]
    part = work.slice
    return TableCommit(part.applied_after(frozenset()), added, {}, False, evolve=part.evolve, before=part.before)


def _rows(work: PartInput) -> Iterator[pa.Table]:
    for chunk in work.slice.chunks:
        if chunk.path is not None:
            for rows in whole_rows(work, chunk.path, np.arange(chunk.rows, dtype=np.int64)):
                yield read_rows(work.fold, chunk, rows)
    yield from change_rows(work.fold)
