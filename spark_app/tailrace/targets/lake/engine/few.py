"""The commit of a batch of few whole rows: `engine.build` asks for it first, and works every other batch with arrays.

See `fold.few_changes`.
"""

from pyroaring import BitMap64

from tailrace.changelog.records.terms import Key
from tailrace.fold.few_changes import FewChanges, few_changes
from tailrace.targets.lake.engine.part import PartInput
from tailrace.targets.lake.files.index import WantedKeys
from tailrace.targets.lake.files.index_cache import IndexCache
from tailrace.targets.lake.files.locate import locate_keys, note_keys
from tailrace.targets.lake.files.write import write_batch
from tailrace.targets.lake.model import NewFile, TableCommit

NO_HOLES = frozenset[Key]()


def build_few(work: PartInput, cache: IndexCache) -> TableCommit | None:
    """None: the batch is not of few whole rows."""
    found = few_changes(work.fold)
    if found is None:
        return None
    dead = {}
    if work.files:
        located = locate_keys(work.lake, work.files, work.layout, WantedKeys.of(found.keys), cache)
        dead = {path: BitMap64(hits.positions) for path, hits in located.items()}
    added = _written(work, found, cache) if found.rows.num_rows else ()
    marks = {file.path: file.dead | dead[file.path] for file in work.files if file.path in dead}
    return TableCommit(work.slice.applied_after(NO_HOLES), added, marks, before=work.slice.before)


def _written(work: PartInput, found: FewChanges, cache: IndexCache) -> tuple[NewFile, ...]:
    files = tuple(made.file for made in write_batch(work.lake, work.location, work.layout.arrow, found.rows.columns))
    if len(files) == 1:
        note_keys(files[0].path, work.layout, found.left, cache)
    return files
