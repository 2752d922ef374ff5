"""The changes of a small batch, row by row instead of with arrays: a call of Arrow or numpy costs as much for one row
as for a thousand, and numbering, comparing and choosing are some two hundred of them (docs/decisions/0153).

A target asks for these first. They are the fold of a batch in which nothing is read, replayed, withheld or moved
without its values, and each change carries its whole row: then a key's newest change is all there is to know of it. Any
other batch is left to the arrays (`fold.numbered`, `fold.decide`), which say the same of this one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.changelog.bundles import bundled_batch
from tailrace.changelog.paths import is_bundle
from tailrace.changelog.records import Segment
from tailrace.changelog.segments import OP, SEQ
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.key_columns import Columns, taken, typed
from tailrace.fold.key_words import key_words

FEW = 64
"""Rows up to which a loop over them, and a commit that is made for few, costs less than the arrays."""
_DELETED, _TRUNCATED = "D", "T"


@dataclass(frozen=True)
class FewChanges:
    keys: Columns
    """The keys that have changed, each once, in rising order: columns in key order."""
    left: Columns
    """Those of them that have a row afterwards, in that order."""
    rows: pa.RecordBatch
    """Their rows: the schema's columns in its order, as the log has them."""


def few_changes(work: FoldInput, most: int = FEW) -> FewChanges | None:
    """None: the batch is not of few whole rows. `most`: the number of rows that are few."""
    if not _is_plain(work, most):
        return None
    rows = _rows(work, work.slice.new_segments)
    if rows is None:
        return None
    keys = typed((rows.column(column.name) for column in work.slice.schema.key_columns), work.key_types)
    listed = _listed(keys)
    if listed is None:
        return None
    first, last = work.slice.start_seq, work.slice.through_seq
    kinds, newest = rows.column(OP).to_pylist(), dict[Any, int]()
    for place, (key, kind, seq) in enumerate(zip(listed, kinds, rows.column(SEQ).to_pylist(), strict=True)):
        if first < seq <= last and kind != _TRUNCATED:
            newest[key] = place
    if not newest:
        return None
    changed = [newest[key] for key in sorted(newest)]
    left = [place for place in changed if kinds[place] != _DELETED]
    whole, found = rows.select(work.names), _chosen(keys, changed)
    return FewChanges(found, found if len(left) == len(changed) else _chosen(keys, left), _picked(whole, left))


def _is_plain(work: FoldInput, most: int) -> bool:
    part, segments = work.slice, work.slice.new_segments
    return (
        not (part.chunks or part.finished or part.clear or part.applied.holes or part.schema.keyless)
        and part.schema.history is None
        and part.evolve is None
        and 0 < sum(segment.rows for segment in segments) <= most
        and all(
            is_bundle(segment.path) and not segment.unchanged and segment.schema_version == part.schema.version
            for segment in segments
        )
    )


def _rows(work: FoldInput, segments: Sequence[Segment]) -> pa.RecordBatch | None:
    """The segments' rows together. None: one has other columns than the first, or is not what its record says, which
    whoever reads them all tells."""
    found = [bundled_batch(work.log, segment) for segment in segments]
    if any(batch.num_rows != segment.rows for batch, segment in zip(found, segments, strict=True)):
        return None
    if len(found) == 1:
        return found[0]
    schema = found[0].schema
    if any(batch.schema is not schema and not batch.schema.equals(schema) for batch in found):
        return None
    return pa.concat_batches(found)


def _listed(keys: Columns) -> Sequence[object] | None:
    """The keys as values that are equal, and that rise, as the columns' do; None: of some type they are not, or a key
    has a NULL."""
    columns = list[list[object]]()
    for column in keys:
        kind = column.type
        if column.null_count or pa.types.is_floating(kind):
            return None
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            columns.append(column.to_pylist())
            continue
        found = key_words([column], hashed=False)
        if not found.exact:
            return None
        columns.append(found.words.tolist())
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _chosen(keys: Columns, places: list[int]) -> Columns:
    """The keys at these places; nothing that is kept of them keeps the bundle in memory, too."""
    if len(keys) == 1 and places == list(range(len(keys[0]))) and pa.types.is_primitive(keys[0].type):
        return keys  # the words that are made of it are a copy; several columns are kept as they are
    return taken(keys, np.array(places, np.int64))


def _picked(rows: pa.RecordBatch, places: list[int]) -> pa.RecordBatch:
    if len(places) == 1:
        return rows.slice(places[0], 1)
    if places == list(range(rows.num_rows)):
        return rows
    return rows.take(pa.array(places, pa.int64()))
