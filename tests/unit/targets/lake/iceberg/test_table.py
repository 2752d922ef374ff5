"""The form of an Iceberg table's files: made once for many small commits, and again when something else is asked for or
the table has changed."""

from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pytest

from support.journals import table_schema
from tailrace.batch.applied import AppliedState
from tailrace.errors import TargetChanged
from tailrace.storage.store import Storage
from tailrace.targets.lake.files.layout import FIELD_ID
from tailrace.targets.lake.iceberg import schema as iceberg_schema
from tailrace.targets.lake.iceberg.catalog import IcebergCatalog
from tailrace.targets.lake.iceberg.read import Reader, Version
from tailrace.targets.lake.iceberg.state import StoredSummary
from tailrace.targets.lake.iceberg.table import IcebergTable

SCHEMA, WIDER = table_schema(1), table_schema(1, version=2)


class Folder:
    """The catalog's part that a table asks for at once."""

    location, folder = "file:///lake", True


def opened(version: Version) -> IcebergTable:
    table = IcebergTable(cast(IcebergCatalog, Folder()), cast(Storage, None), "s", "t")
    table._opened, table._version = (cast(Reader, None), "uuid"), version
    return table


def version() -> Version:
    columns = iceberg_schema.first_columns(SCHEMA)
    stored = StoredSummary(AppliedState("log", schema_version=SCHEMA.version))
    return Version(1, stored, columns, columns.highest, 0, frozenset(columns.ids.values()))


def numbers(arrow: pa.Schema) -> list[int]:
    return [int((field.metadata or {})[FIELD_ID]) for field in arrow]


def test_small_commits_have_one_form_of_the_files_until_the_columns_change() -> None:
    """It was made for each commit, and with it all that is derived from it."""
    first = version()
    table = opened(first)
    arrow = table.arrow_schema(SCHEMA)
    assert numbers(arrow) == [1, 2]
    table._version = replace(first, snapshot=2, files={"x": cast(Any, None)})
    assert table.arrow_schema(SCHEMA) is arrow
    assert numbers(table.arrow_schema(WIDER)) == [1, 2, 3]
    table._version = replace(first, last_id=7)
    assert numbers(table.arrow_schema(WIDER)) == [1, 2, 8], "others have used numbers since"
    assert numbers(table.arrow_schema(SCHEMA)) == [1, 2]


def test_a_column_that_others_drop_is_missed_though_the_form_is_known() -> None:
    first = version()
    table = opened(first)
    table.arrow_schema(SCHEMA)
    table._version = replace(first, fields=frozenset({1}))
    with pytest.raises(TargetChanged, match="no column 'c1'"):
        table.arrow_schema(SCHEMA)
    table._version = first
    table.arrow_schema(SCHEMA)
    ahead = replace(first.stored.applied, schema_version=SCHEMA.version + 1)
    table._version = replace(first, stored=StoredSummary(ahead), fields=frozenset({1}))
    assert numbers(table.arrow_schema(SCHEMA)) == [1, 2], "of a version that may have columns that have gone since"
