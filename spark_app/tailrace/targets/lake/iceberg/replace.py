"""An Iceberg table made into one of another generation, in one transaction: `IcebergTable.ensure` calls it.

Every present column goes and every wanted one comes with a new field id, even under the same name: a chunk file or a
commit that was prepared for the former generation can never be taken for one of the new. Removing the rows asks for no
list of files, so that a table which no reader can open any longer is replaced like any other.
"""

import json
import uuid
from collections.abc import Mapping
from typing import Any

from tailrace.batch.applied import AppliedState
from tailrace.changelog.records.terms import TableSchema
from tailrace.errors import RESYNC, TargetChanged
from tailrace.targets.lake.columns import COLUMNS, Columns
from tailrace.targets.lake.files.access import FileAccess
from tailrace.targets.lake.iceberg import schema as iceberg_schema
from tailrace.targets.lake.iceberg import state as iceberg_state
from tailrace.targets.lake.iceberg.clock import clock_named
from tailrace.targets.lake.iceberg.commit import Builder, Plan, check_partitions, fill, row_delta, type_of
from tailrace.targets.lake.iceberg.files import LiveFile, Vector, listed
from tailrace.targets.lake.iceberg.java import CommitConflict, Java, guarded
from tailrace.targets.lake.iceberg.state import Mirror, StoredSummary
from tailrace.targets.lake.model import Replacement

_METRICS = "write.metadata.metrics.column."


def mirrored(properties: Mapping[str, str], name: str) -> AppliedState | None:
    """The newest state in the table's properties, without its holes; None: it is not Tailrace's."""
    text = properties.get(iceberg_state.STATE)
    return None if text is None else iceberg_state.decode_mirror(text, name).stored.applied


def replace(
    java: Java,
    access: FileAccess,
    table: Any,
    name: str,
    *,
    by: Replacement,
    stored: StoredSummary,
    vectors: Mapping[str, Vector],
    nonce: str,
) -> None:
    """One commit. `stored`: the state of `by`; `vectors`: of its files with dead rows."""
    with clock_named(java, table, name), guarded(name, "preparing the replacement of"):
        present = _present(java, table, name, by)
        former, transaction = Builder.of(java, access, table), table.newTransaction()
        staged = transaction.table()
        _drop_partitions(java, transaction, name)
        _set_columns(java, transaction, name, by)
        _add_partitions(java, transaction, by)
        _set_properties(java, transaction, by)
        operation = _rows((former, Builder.of(java, access, staged)), transaction, present, by, vectors)
        operation.set(iceberg_state.STATE, iceberg_state.encode_text(stored)).set(iceberg_state.NONCE, nonce)
        operation.set(iceberg_state.ADOPTED, str(len(by.files))).commit()
        doc = iceberg_state.snapshot_of(json.loads(java.iceberg.SnapshotParser.toJson(staged.currentSnapshot())))
        mirror = iceberg_state.encode_mirror(Mirror(stored, doc.id, doc.sequence))
        transaction.updateProperties().set(iceberg_state.STATE, mirror).commit()
    # Dying here leaves the former generation untouched: the next opening replaces it.
    with guarded(name, "replacing", committing=True):
        transaction.commitTransaction()


_Present = tuple[int | None, Mapping[str, LiveFile]]


def _present(java: Java, table: Any, name: str, by: Replacement) -> _Present:
    """The current snapshot and what is live in it, by metadata alone: rows that no reader can open any longer are
    removed like any others."""
    current = table.currentSnapshot()
    if current is None or not by.files:
        return None, {}
    return int(current.snapshotId()), listed(java, table, name, keys=(), columns=by.columns)[0]


def _drop_partitions(java: Java, transaction: Any, name: str) -> None:
    """First: they are of a column that goes. Those of another program stay: its owner is to know."""
    staged = transaction.table()
    columns = java.properties(staged).get(COLUMNS)
    if columns is not None and iceberg_schema.partition_of(Columns.from_json(columns)) is None:
        check_partitions(name, staged, None)
    fields = list(staged.spec().fields())
    if fields:
        update = transaction.updateSpec()
        for field in fields:
            update.removeField(str(field.name()))
        update.commit()


def _add_partitions(java: Java, transaction: Any, by: Replacement) -> None:
    days = iceberg_schema.days_of(by.schema)
    if days is not None:
        transaction.updateSpec().addField(java.iceberg.expressions.Expressions.day(days)).commit()


def _rows(
    builders: tuple[Builder, Builder],
    transaction: Any,
    present: _Present,
    by: Replacement,
    vectors: Mapping[str, Vector],
) -> Any:
    """All that is there goes, the new files come: in one snapshot. `builders`: for these two, whose partitions may
    differ."""
    (former, builder), (base, found) = builders, present
    if not by.files:
        return transaction.newDelete().deleteFromRowFilter(builder.java.iceberg.expressions.Expressions.alwaysTrue())
    kept = [(tracked.raw, tracked.vector) for tracked in found.values() if tracked.vector is not None]
    work = Plan(by.files, list(found.values()), {f.path: f.dead for f in by.files if f.dead}, replaced=kept)
    operation = row_delta(transaction, builder.java, base, [], work)
    fill(operation, builder, work, vectors, former)
    return operation


def _set_properties(java: Java, transaction: Any, by: Replacement) -> None:
    """Before the rows: Iceberg keeps statistics of the files as they say."""
    update = transaction.updateProperties()
    wanted = iceberg_schema.properties(by.schema) | {COLUMNS: by.columns.to_json()}
    present = {key for key in java.properties(transaction.table()) if key.startswith(_METRICS)}
    for key in present - wanted.keys():
        update.remove(key)
    for key, value in wanted.items():
        update.set(key, value)
    update.commit()


def _set_columns(java: Java, transaction: Any, name: str, by: Replacement) -> None:
    """Drop all columns and add the new ones. Identifier fields go first and come last: Iceberg finds them by name."""
    schema, columns = iceberg_schema.shown(by.schema), by.columns
    last_id = int(transaction.table().operations().current().lastColumnId())
    if columns.ids and min(columns.ids.values()) <= last_id:
        what = "columns were added to the target while the table was read into a new copy"
        raise TargetChanged(schema.name, what, f"Read the table again: {RESYNC}.")
    transaction.updateSchema().setIdentifierFields(java.jvm.java.util.ArrayList()).commit()
    update = transaction.updateSchema().allowIncompatibleChanges()
    for field in iceberg_schema.present_fields(java.iceberg.SchemaParser.toJson(transaction.table().schema())):
        update.deleteColumn(field.name)
    update.commit()
    # An update of its own: what is in a struct or a list goes with it, but within one update its name is still taken.
    update = transaction.updateSchema().allowIncompatibleChanges()
    gaps = _add(java, update, last_id, schema, columns)
    update.commit()
    if gaps:
        update = transaction.updateSchema()
        for gap in gaps:
            update.deleteColumn(gap)
        update.commit()
    identifier = iceberg_schema.identifier(schema)
    if identifier:
        names = java.jvm.java.util.ArrayList()
        for column in identifier:
            names.add(column.name)
        transaction.updateSchema().setIdentifierFields(names).commit()
    after = iceberg_schema.present_fields(java.iceberg.SchemaParser.toJson(transaction.table().schema()))
    if len(after) != len(schema.columns) or iceberg_schema.unforeseen(columns, schema, after):
        raise CommitConflict(f"{name}: the new columns got other field ids than foreseen", "The table is read again.")


def _add(java: Java, update: Any, last_id: int, schema: TableSchema, columns: Columns) -> list[str]:
    """Iceberg numbers what is added. For the numbers of columns that have been dropped while the copy was made, it adds
    some that go again: their names."""
    wanted, gaps = {columns.ids[c.id]: c for c in schema.columns}, list[str]()
    given = {id_ for c in schema.columns for id_ in columns.inner.get(c.id, ())}
    for id_ in range(last_id + 1, columns.highest + 1):
        column = wanted.get(id_)
        if id_ in given:
            continue  # with its column
        if column is None:
            gaps.append(f"_tailrace_{uuid.uuid4().hex}")
            update.addColumn(None, gaps[-1], type_of(java, "int"))
            continue
        kind = type_of(java, iceberg_schema.iceberg_type(column.type))
        add = update.addColumn if column.key is None else update.addRequiredColumn
        add(None, column.name, kind)  # with a parent, or a dot in the name would be taken for one
    return gaps
