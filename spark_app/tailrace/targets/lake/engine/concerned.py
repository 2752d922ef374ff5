"""The rows of a batch's chunk files that anything else may concern: the log, the target, another chunk.

Most chunks bring rows that nothing else knows: such a file is adopted as it is, and the price of that must not grow
with its rows. `engine.build` asks for the few others before it divides a batch; only these are numbered, located and
decided. Which ones they are is found by the words of their keys: a word that two keys share names a row too many, which
is decided like any other.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from tailrace.fold.concerned import MANY, disjoint, named_words
from tailrace.fold.key_columns import Ints, joined, taken, words
from tailrace.targets.lake.engine.chunk_files import key_batches
from tailrace.targets.lake.engine.part import ChunkKeyRows, PartInput
from tailrace.targets.lake.files.index import Span
from tailrace.targets.lake.files.index_cache import IndexCache
from tailrace.targets.lake.files.locate import index_of, is_disjoint, joint_span, key_span
from tailrace.targets.lake.model import DataFile


def concerned_rows(work: PartInput, cache: IndexCache) -> dict[str, ChunkKeyRows]:
    """The rows by chunk file; one that is not named here counts with all its rows."""
    chunks = {chunk.path: chunk for chunk in work.slice.chunks if chunk.path is not None}
    alone = [path for path, chunk in chunks.items() if work.slice.emptied_at(chunk) is None]
    if not alone or (named := named_words(work.fold, MANY)) is None:
        return {}
    spans = {path: key_span(work.lake, path, work.layout) for path in chunks}
    alone = [path for path in alone if spans[path] is not None]
    for one, other in combinations(spans, 2):
        if not disjoint(chunks[one], chunks[other]) and not _apart(spans[one], spans[other]):
            alone = [path for path in alone if path not in (one, other)]
    files = list(_meeting(joint_span([spans[path] for path in alone]), work.files, work))
    earlier = {chunk.path: chunk for chunk in work.slice.earlier}
    out = dict[str, ChunkKeyRows]()
    cache.begin()
    for path in alone:
        near = _meeting(spans[path], files, work)
        near = (file for file in near if not disjoint(chunks[path], earlier.get(file.path, chunks[path])))
        standing = _standing(work, list(near), cache)
        if standing is not None:
            out[path] = _having(work, path, np.union1d(named, standing))
    return out


def _meeting(span: Span, files: Sequence[DataFile], work: PartInput) -> Iterator[DataFile]:
    """Files that may have a key between these."""
    name = work.layout.key[0]
    return (file for file in files if not is_disjoint(span, (file.lower.get(name), file.upper.get(name))))


def _apart(one: Span, other: Span) -> bool:
    return other is not None and is_disjoint(one, (other[0].as_py(), other[1].as_py()))


def _standing(work: PartInput, files: Sequence[DataFile], cache: IndexCache) -> Ints | None:
    """The words of the files' keys; None: there are many."""
    if sum(file.rows for file in files) > MANY:
        return None
    found = [np.empty(0, np.int64)]
    for file in files:
        index = index_of(work.lake, file, work.layout, cache)
        if index is None:
            return None
        found.append(index.words)
    return np.concatenate(found)


def _having(work: PartInput, path: str, wanted: Ints) -> ChunkKeyRows:
    """The rows whose key has one of these words. Without any, the file is not read."""
    positions, lists = [np.empty(0, np.int64)], []
    for at, keys in key_batches(work, path) if len(wanted) else ():
        rows = np.flatnonzero(np.isin(words(keys), wanted)).astype(np.int64)
        positions.append(rows + at)
        lists.append(taken(keys, rows))
    return np.concatenate(positions), joined(lists, work.fold.key_types)
