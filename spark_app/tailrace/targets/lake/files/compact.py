"""Compaction: rewrite small or heavily marked files as one commit that changes no rows. For Delta and Iceberg alike.

Apply calls `compact` between batches, as the table's only writer, so nothing can be located in a file that is being
rewritten. The applied state stands as it is. Old files stay until no kept version needs them (`cleanup`).
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import itemgetter

import numpy as np
import pyarrow as pa

from tailrace.batch.applied import AppliedState
from tailrace.changelog.parquet_batches import batch_rows
from tailrace.seams import seam
from tailrace.targets.lake.files.access import FileAccess, parquet
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.files.locate import forget
from tailrace.targets.lake.files.vector_costs import NO_COSTS, VectorCosts
from tailrace.targets.lake.files.write import FILE_BYTES, write_physical
from tailrace.targets.lake.kept import NO_CHUNKS, KeptChunks
from tailrace.targets.lake.model import DataFile, FileTable, TableCommit

PAST_SHARE = 4.0
"""The `largest_share` for files of a day that is over: few will come, so they are joined sooner."""


@dataclass(frozen=True)
class CompactionLimits:
    """When a rewrite is worth its reading and writing (docs/decisions/0154)."""

    small_bytes: int = FILE_BYTES // 4
    """A file below this is small."""
    min_files: int = 16
    """That many small files are needed before they are joined."""
    largest_share: float = 1.0
    """No file is joined that is larger than so many times the others together: otherwise every few batches would cost
    all rows that small files hold."""
    dead_share: float = 0.3
    """A file with more dead rows than this is rewritten, alone if need be, ..."""
    vector_share: float = 2.0
    """... or one whose deletion vectors have cost so many times its own bytes, ..."""
    tiny_bytes: int = 64 << 10
    """... unless it is below this: readers gain nothing, and of tables that are always written to, all files are. It is
    joined with the small ones."""
    dear_part: int = 8
    """Part of the files whose vectors cost too much that is rewritten at a look, at least one: random changes make all
    of a table's files dear at the same time, and changes wait meanwhile. 8: an eighth."""
    max_bytes: int = 4 * FILE_BYTES
    """At most so much is read in one go, so that changes do not wait long."""


def pick(
    files: Sequence[DataFile],
    limits: CompactionLimits,
    chunks: KeptChunks = NO_CHUNKS,
    costs: VectorCosts = NO_COSTS,
) -> list[DataFile]:
    """The files to rewrite now: those marked too much and, if there are enough, small ones; the smallest first. Not
    what a snapshot under way has just written: it would be the whole table."""
    marked = _marked(files, limits, costs)
    small = [file for file in files if file.size < limits.small_bytes and file not in marked]
    small = [file for file in small if not chunks.keeps(file.path)]
    chosen = marked + _joined(small, marked, limits)
    out: list[DataFile] = []
    total = 0
    for file in sorted(chosen, key=lambda file: file.size):
        if out and total + file.size > limits.max_bytes:
            break
        out.append(file)
        total += file.size
    return out


def _marked(files: Sequence[DataFile], limits: CompactionLimits, costs: VectorCosts) -> list[DataFile]:
    """Files with too many dead rows for readers, and the dearest of those whose vectors have cost too much."""
    dead, dear = list[DataFile](), list[tuple[float, DataFile]]()
    for file in files:
        if file.size < limits.tiny_bytes:
            continue
        if len(file.dead) > file.rows * limits.dead_share:
            dead.append(file)
        elif (share := costs.of(file) / file.size) > limits.vector_share:
            dear.append((share, file))
    dearest = heapq.nlargest(-(-len(dear) // limits.dear_part), dear, key=itemgetter(0))
    return dead + [file for _, file in dearest]


def _joined(small: Sequence[DataFile], marked: Sequence[DataFile], limits: CompactionLimits) -> list[DataFile]:
    """Takes as many of the small files as make none of them too large for the others. A row is then joined again only
    into a file of twice the size, so how often that happens is bounded by the logarithm of `small_bytes`; and so is the
    number of files that wait."""
    small = sorted(small, key=lambda file: file.size)
    sizes = [sum(file.size for file in marked), *(file.size for file in small)]
    before = list(accumulate(sizes))
    for count in range(len(small), max(limits.min_files - len(marked), 1) - 1, -1):
        if sizes[count] <= before[count - 1] * limits.largest_share:
            return small[:count]
    return []


def picks_of_days(
    files: Sequence[DataFile],
    limits: CompactionLimits,
    chunks: KeptChunks = NO_CHUNKS,
    costs: VectorCosts = NO_COSTS,
) -> list[list[DataFile]]:
    """Lists what `pick` takes of the newest day, and of the day before it of which it takes the most: rows of two days
    are never joined. Of a day that is over two small files are enough: hardly more of them will come. Both, since the
    newest day of a busy history always has something to join, and neither may wait for the other."""
    days = dict[str, list[DataFile]]()
    for file in files:
        days.setdefault(file.day or "", []).append(file)
    newest = max(days, default="")
    over = replace(limits, min_files=2, largest_share=max(limits.largest_share, PAST_SHARE))
    past = (pick(some, over if day else limits, chunks, costs) for day, some in days.items() if day != newest)
    picked = max(past, key=len, default=[]), pick(days.get(newest, []), limits, chunks, costs)
    return [some for some in picked if some]


def compact(
    table: FileTable,
    access: FileAccess,
    layout: Layout,
    applied: AppliedState,
    limits: CompactionLimits,
    *,
    chunks: KeptChunks = NO_CHUNKS,
    costs: VectorCosts = NO_COSTS,
) -> int:
    """Rewrite what is worth it; returns the number of files replaced. `applied`: the table's present state."""
    picked = picks_of_days(table.files(), limits, chunks, costs)
    for chosen in picked:
        _rewrite(table, access, layout, applied, chosen)
    return sum(map(len, picked))


def _rewrite(
    table: FileTable, access: FileAccess, layout: Layout, applied: AppliedState, chosen: Sequence[DataFile]
) -> None:
    schema = _schema(access, chosen, layout)
    batches = (batch for file in chosen for batch in live_rows(access, file, schema))
    new = [written.file for written in write_physical(access, table.location, schema, batches, day=chosen[0].day)]
    seam("compact.before-commit")
    table.commit(TableCommit(applied, new, data_change=False, remove=[file.path for file in chosen]))
    forget([file.path for file in chosen])


def _schema(access: FileAccess, files: Sequence[DataFile], layout: Layout) -> pa.Schema:
    """The source's columns as the target has them, and those that the source has dropped as they stand in the files."""
    fields = {field.name: field for field in layout.arrow}
    for file in files:
        with parquet(access, file.path) as opened:
            for field in opened.schema_arrow:
                fields.setdefault(field.name, field)
    return pa.schema(fields.values())


def live_rows(access: FileAccess, file: DataFile, schema: pa.Schema) -> Iterator[pa.Table]:
    """The file's live rows in this schema, some at a time; a column that the file lacks is null."""
    dead = np.fromiter(file.dead, np.int64, len(file.dead))
    start = 0
    with parquet(access, file.path) as opened:
        present = set(opened.schema_arrow.names)
        names = [name for name in schema.names if name in present]
        for batch in opened.iter_batches(batch_rows(opened, names), columns=names):
            first, last = np.searchsorted(dead, [start, start + batch.num_rows])
            alive = np.ones(batch.num_rows, np.bool_)
            alive[dead[first:last] - start] = False
            yield _in_schema(pa.table(batch).filter(pa.array(alive)), schema)
            start += batch.num_rows


def _in_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
