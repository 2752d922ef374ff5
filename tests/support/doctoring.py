"""Tables as `tailrace doctor` describes them."""

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.sources.findings import ColumnSupport, TableSize, TableSupport

LIMITED = ("holds no NaN", "Copy it as text.")


def table(name: str, *columns: ColumnSupport, size: TableSize | None = None, stopped: bool = False) -> TableSupport:
    key = Column(name="id", id=1, source_type="int", type="int32", nullable=False, key=0)
    schema = TableSchema(table_id=1, schema_name="s", table_name=name, version=0, columns=(key,))
    return TableSupport(schema, (ColumnSupport("id", "int", "int32", "YES"), *columns), size or TableSize(), stopped)


def partial(name: str) -> ColumnSupport:
    return ColumnSupport(name, "numeric(9,2)", "decimal(9,2)", "PARTIAL", *LIMITED)
