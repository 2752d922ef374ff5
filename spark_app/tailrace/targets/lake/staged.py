"""A table's next generation, made beside the one that readers see, until it is complete. For Delta and Iceberg alike.

`LakeTable` opens it where the former generation is kept. Its data and chunk files are where those of the table are, and
no version names them. What it is made of stands in one document below `_tailrace/next`, written by each commit under
the next number, exclusively: state and files move together, as in the formats. When the snapshot that reads the table
has ended, `FormatTable.replace` takes all of its files over in one commit.

Dying anywhere leaves the document of the last commit, from which the next process continues. Once the table has taken
the files over, or is of another generation again, the document is no longer read.
"""

import base64
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from tailrace.batch.applied import AppliedState, Generation
from tailrace.changelog.records.terms import TableSchema
from tailrace.errors import RESYNC, Retry, SchemaChangeUnsupported, TailraceError, TargetChanged
from tailrace.seams import seam
from tailrace.storage.store import AlreadyExists, NotFound
from tailrace.targets import stored_state
from tailrace.targets.api import Admit
from tailrace.targets.lake.columns import Columns
from tailrace.targets.lake.delta.stats import bounds, file_stats
from tailrace.targets.lake.files.access import FileAccess, footer_of
from tailrace.targets.lake.files.layout import Layout, physical_field
from tailrace.targets.lake.kept import CHUNK, name_of
from tailrace.targets.lake.model import DataFile, Naming, NewFile, Replacement, TableCommit

FOLDER = "_tailrace/next"
"""Below the table's folder. A folder with `_` survives other tools' clean-up."""
_NAME = re.compile(r"(\d{20})-\d{20}\.json")
KEPT = 2
"""Documents that stay: a writer that was taken over from must not find the next number free again."""


@dataclass(frozen=True)
class _File:
    """A live file; `stats`: of its key columns, as Delta writes them."""

    path: str
    rows: int
    size: int
    dead: BitMap64
    stats: str
    day: str | None = None


@dataclass(frozen=True)
class _Version:
    number: int
    applied: AppliedState
    schema: TableSchema
    columns: Columns
    last_id: int
    """The highest field id used, here or in the table."""
    live: dict[str, _File] = field(default_factory=dict)


class StagedTable:
    """See `model.FileTable`. Not thread-safe."""

    def __init__(self, access: FileAccess, location: str, naming: Naming, admit: Admit) -> None:
        self.location = location
        self._access, self._naming, self._admit = access, naming, admit
        self._at: _Version | None = None
        self._files: list[DataFile] | None = None

    def ensure(
        self, schema: TableSchema, log_id: str, generation: Generation, last_id: int, shown: int
    ) -> AppliedState:
        """The state that the copy has applied; a new one begins if there is none of this generation. `last_id`: of the
        table; `shown`: the generation that readers see. Copies between the two were never shown and never will be: they
        go."""
        self._at = self._files = None
        found = self._documents()
        if generation.number in found:
            self._at = self._read(found[generation.number][-1])
            return self._at.applied
        new = self._naming.shown(schema)
        self._abandon(paths for number, paths in found.items() if shown < number < generation.number)
        columns = Columns(0, {}, {}).extended(new, last_id, self._naming.physical)
        highest = max(last_id, columns.highest)
        self._write(_Version(0, generation.begin(schema, log_id), schema, columns, highest))
        return self._known.applied

    def files(self) -> Sequence[DataFile]:
        if self._files is None:
            at = self._known
            layout = Layout(at.schema, self.arrow_schema(at.schema))
            key = {name: layout.fields[name] for name in layout.key}
            self._files = [
                DataFile(file.path, file.rows, file.size, file.dead, *bounds(file.stats, key), file.day)
                for file in at.live.values()
            ]
        return self._files

    def arrow_schema(self, schema: TableSchema, before: TableSchema | None = None) -> pa.Schema:
        at = self._known
        known = self._extended(at, schema)
        if known.ids != at.columns.ids and schema.version <= at.applied.schema_version:
            raise Retry(f"{schema.name}: version {schema.version} has a column that the new copy does not know")
        return self._fields(schema, known)

    def commit(self, change: TableCommit) -> None:
        at = self._known
        schema = change.evolve or at.schema
        columns = at.columns if change.evolve is None else self._evolved(at, change.evolve)
        layout = Layout(schema, self._fields(schema, columns))
        key = [layout.fields[name] for name in layout.key]
        live = {} if change.clear else dict(at.live)
        for path, dead in change.marks.items():
            file = live.pop(path)
            if len(dead) < file.rows:
                live[path] = replace(file, dead=dead)
        for path in change.remove:
            del live[path]
        for new in change.add:
            if len(new.dead) < new.rows:
                stats = file_stats(footer_of(self._access, new.path), key, tight=False)
                live[new.path] = _File(new.path, new.rows, new.size, new.dead, stats, new.day)
        seam("staged.before-commit")
        highest = max(at.last_id, columns.highest)
        self._at = self._files = None
        self._write(_Version(at.number + 1, change.applied, schema, columns, highest, live))
        seam("staged.after-commit")
        # Nobody else reads them. Chunks may be asked for once more, by their snapshot's end.
        self._discard(path for path in at.live if path not in live and not name_of(path).startswith(CHUNK))

    def replacement(self) -> Replacement:
        """All of it, proven to be there: another tool's clean-up knows nothing of these files."""
        at = self._known
        for file in at.live.values():
            self._check(at.schema, file)
        files = [NewFile(file.path, file.rows, file.size, file.dead, file.day) for file in at.live.values()]
        return Replacement(at.applied, at.schema, at.columns, files)

    def forget(self) -> None:
        """Ends the copies beside the table, up to this generation; the files are left to the next sweep."""
        mine, self._at, self._files = self._known.applied.generation, None, None
        with suppress(TailraceError):
            self._discard(path for number, paths in self._documents().items() if number <= mine for path in paths)

    @property
    def _known(self) -> _Version:
        if self._at is None:
            raise Retry(f"{self.location}: the new copy's version is not known", "It is read again.")
        return self._at

    def _fields(self, schema: TableSchema, columns: Columns) -> pa.Schema:
        required = self._naming.key_required
        return pa.schema(
            [
                physical_field(
                    columns.names[c.id],
                    c.type,
                    columns.ids[c.id],
                    not required or c.key is None,
                    columns.inner.get(c.id, ()),
                )
                for c in schema.columns
            ]
        )

    def _extended(self, at: _Version, schema: TableSchema) -> Columns:
        return at.columns.extended(self._naming.shown(schema), at.last_id, self._naming.physical)

    def _evolved(self, at: _Version, schema: TableSchema) -> Columns:
        types = {column.id: column.type for column in at.schema.columns}
        for column in schema.columns:
            if types.get(column.id, column.type) != column.type:
                what = f"column {column.name!r} changed from {types[column.id]} to {column.type}"
                fix = f"Read the table as it is now: {RESYNC}."
                raise SchemaChangeUnsupported(schema.name, f"{what}, which cannot be done in place", fix)
        return self._extended(at, schema)

    def _check(self, schema: TableSchema, file: _File) -> None:
        try:
            same = self._access.size(file.path) == file.size
        except NotFound:
            same = False
        if not same:
            what = f"{file.path}, a file of the table's new copy, is gone or has another size"
            raise TargetChanged(schema.name, what, f"Read the table again: {RESYNC}.")

    # ---- the document ----

    def _place(self, generation: int, number: int) -> str:
        return f"{self.location}/{FOLDER}/{generation:020d}-{number:020d}.json"

    def _documents(self) -> dict[int, list[str]]:
        """Generation -> its documents, the newest one last."""
        found: dict[int, list[str]] = {}
        for path in sorted(path for path, _ in self._access.aged(f"{self.location}/{FOLDER}")):
            if match := _NAME.fullmatch(name_of(path)):
                found.setdefault(int(match[1]), []).append(path)
        return found

    def _abandon(self, copies: Iterable[list[str]]) -> None:
        """Their files, then their documents: dying in between leaves what the next one finds."""
        for paths in copies:
            self._admit()
            with suppress(NotFound):
                self._discard(self._read(paths[-1]).live)
            self._discard(paths)

    def _write(self, version: _Version) -> None:
        generation = version.applied.generation
        self._admit()
        path = self._place(generation, version.number)
        try:
            self._access.create(path, self._document(version))
        except AlreadyExists as error:
            raise Retry(f"{path} was written by another driver, or by an attempt of this one", "It is read.") from error
        # Whoever was taken over from while it wrote deletes nothing of what its successor has.
        self._admit()
        self._at = version
        if version.number >= KEPT:
            self._discard([self._place(generation, version.number - KEPT)])

    def _document(self, version: _Version) -> bytes:
        files = [
            {"path": self._relative(f.path), "rows": f.rows, "size": f.size, "stats": f.stats}
            | ({"dead": base64.b64encode(f.dead.serialize()).decode()} if f.dead else {})
            | ({"day": f.day} if f.day is not None else {})
            for f in version.live.values()
        ]
        document = {
            "state": stored_state.document(version.applied) | {"holes": sorted(version.applied.holes)},
            "schema": version.schema.model_dump(mode="json"),
            "columns": json.loads(version.columns.to_json()),
            "lastId": version.last_id,
            "files": files,
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    def _read(self, path: str) -> _Version:
        document: dict[str, Any] = json.loads(self._access.get(path))
        state = document["state"]
        live = {}
        for doc in document["files"]:
            dead = BitMap64.deserialize(base64.b64decode(doc["dead"])) if "dead" in doc else BitMap64()
            uri = f"{self.location}/{doc['path']}"
            live[uri] = _File(uri, doc["rows"], doc["size"], dead, doc["stats"], doc.get("day"))
        return _Version(
            int(name_of(path)[21:41]),
            stored_state.applied_state(state, state["holes"], path),
            TableSchema.model_validate(document["schema"]),
            Columns.from_json(json.dumps(document["columns"])),
            document["lastId"],
            live,
        )

    def _relative(self, path: str) -> str:
        return path.removeprefix(f"{self.location}/")

    def _discard(self, paths: Iterable[str]) -> None:
        self._access.delete_many(list(paths))
