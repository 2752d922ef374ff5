"""An Iceberg table made into one of another generation, in one transaction: `IcebergTable.ensure` calls it.

Every present column goes and every wanted one comes with a new field id, even under the same name: a chunk file or a
commit that was prepared for the former generation can never be taken for one of the new. Removing the rows asks for no
list of files, so that a table which no reader can open any more is replaced like any other.
"""

from typing import Any

from tailrace.batch.applied import AppliedState
from tailrace.changelog.records import TableSchema
from tailrace.targets.lake.columns import COLUMNS, Columns
from tailrace.targets.lake.iceberg import schema as iceberg_schema
from tailrace.targets.lake.iceberg import state as iceberg_state
from tailrace.targets.lake.iceberg.clock import clock_named
from tailrace.targets.lake.iceberg.java import CommitConflict, Java, guarded
from tailrace.targets.lake.iceberg.state import Mirror, StoredSummary

_METRICS = "write.metadata.metrics.column."


def mirrored(properties: dict[str, str], name: str) -> AppliedState | None:
    """The newest state that the table's properties tell, without its holes; None: it is not Tailrace's."""
    text = properties.get(iceberg_state.STATE)
    return None if text is None else iceberg_state.decode_mirror(text, name).stored.applied


def replace(java: Java, table: Any, name: str, *, state: AppliedState, schema: TableSchema, nonce: str) -> None:
    """One commit; whatever anybody commits before it is replaced, too."""
    with clock_named(java, table, name), guarded(name, "preparing the replacement of"):
        transaction = table.newTransaction()
        staged = transaction.table()
        columns = _columns(java, transaction, name, schema)
        removal = transaction.newDelete().deleteFromRowFilter(java.iceberg.expressions.Expressions.alwaysTrue())
        stored = StoredSummary(state)
        removal.set(iceberg_state.STATE, iceberg_state.encode_text(stored)).set(iceberg_state.NONCE, nonce).commit()
        doc = iceberg_state.parse_snapshot(java.iceberg.SnapshotParser.toJson(staged.currentSnapshot()))
        update = transaction.updateProperties()
        wanted = iceberg_schema.properties(schema) | {
            iceberg_state.STATE: iceberg_state.encode_mirror(Mirror(stored, doc.id, doc.sequence)),
            COLUMNS: columns.to_json(),
        }
        for key in {str(key) for key in staged.properties() if key.startswith(_METRICS)} - wanted.keys():
            update.remove(key)
        for key, value in wanted.items():
            update.set(key, value)
        update.commit()
    # Dying here leaves the former generation untouched: the next opening replaces it.
    with guarded(name, "replacing", committing=True):
        transaction.commitTransaction()


def _columns(java: Java, transaction: Any, name: str, schema: TableSchema) -> Columns:
    """Drop all columns and add the new ones. Identifier fields go first and come last: Iceberg finds them by name, and
    a name may stand for the old and the new column while both are in one update."""
    iceberg_schema.check_names(schema)
    last_id = int(transaction.table().operations().current().lastColumnId())
    columns = Columns(schema.version, {}, {}).extended(schema, last_id)
    transaction.updateSchema().setIdentifierFields(java.jvm.java.util.ArrayList()).commit()
    update = transaction.updateSchema().allowIncompatibleChanges()
    for field in iceberg_schema.present_fields(java.iceberg.SchemaParser.toJson(transaction.table().schema())):
        update.deleteColumn(field.name)
    for column in schema.columns:
        kind = java.iceberg.types.Types.fromPrimitiveString(iceberg_schema.iceberg_type(column.type))
        add = update.addColumn if column.key is None else update.addRequiredColumn
        add(None, column.name, kind)  # with a parent, or a dot in the name would be taken for one
    update.commit()
    identifier = iceberg_schema.identifier(schema)
    if identifier:
        names = java.jvm.java.util.ArrayList()
        for column in identifier:
            names.add(column.name)
        transaction.updateSchema().setIdentifierFields(names).commit()
    after = iceberg_schema.present_fields(java.iceberg.SchemaParser.toJson(transaction.table().schema()))
    if {f.name: f.id for f in after} != {c.name: columns.ids[c.id] for c in schema.columns}:
        raise CommitConflict(f"{name}: the new columns got other field ids than foreseen", "The table is read again.")
    return columns
