"""Tables as the catalog shows them, without a server."""

from dataclasses import replace
from typing import Any

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.sources.postgresql.model import CatalogColumn, PgTable


def catalog_table(base: TableSchema, names: list[str], **changes: Any) -> PgTable:
    """The table as the catalog shows it with these columns, all of them text and without defaults."""
    known = {c.name: c for c in base.columns}
    last = max(c.id for c in base.columns)
    schemas = tuple(
        known.get(n) or Column(name=n, id=last + i, source_type="text", type="string") for i, n in enumerate(names, 1)
    )
    columns = tuple(
        CatalogColumn(
            name=c.name,
            attnum=c.id,
            source_type=c.source_type,
            base_type=("pg_catalog", "text"),
            domain=False,
            output=("pg_catalog", "textout"),
            logical=c.type,
            native=c.type,
            nullable=c.nullable,
            key=c.key,
            operators=None,
            collation=None,
            has_default=False,
            has_missing=False,
        )
        for c in schemas
    )
    table = PgTable(
        oid=base.table_id,
        schema_name=base.schema_name,
        table_name=base.table_name,
        partitioned=False,
        owner="postgres",
        storage=((base.table_id, 1),),
        columns=columns,
        schema=base.model_copy(update={"version": 0, "columns": schemas}),
        stop=None,
        names={c.id: c.name for c in schemas},
        attributes=max(c.id for c in schemas),
        numbers=frozenset(c.id for c in schemas),
    )
    return replace(table, **changes)
