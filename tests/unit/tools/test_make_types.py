"""The page of types, and the tables of database targets, are what the code says, and no type is missing there."""

import make_types
import pytest

from tailrace.sources.mysql import types as mysql
from tailrace.sources.postgresql import types as postgresql


def test_the_page_is_what_the_code_says() -> None:
    assert make_types.PAGE.read_text(encoding="utf-8") == make_types.text(), "run `make crds`"


def test_the_tables_of_database_targets_are_what_the_code_says() -> None:
    page = make_types.DATABASES.read_text(encoding="utf-8")
    assert page == make_types.with_tables(page), "run `make crds`"
    tables = make_types.database_tables()
    assert "| `decimal(20,0)` | `bigint unsigned`; `bit(64)` | `numeric(20,0)` |" in tables["postgresql"].splitlines()
    assert "| `bool` | `bool` | `tinyint(1)` | |" in tables["mysql"].splitlines()


def test_a_page_without_a_place_for_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="has no lines <!-- generated: types in postgresql"):
        make_types.with_tables("")


def test_no_type_that_a_source_knows_is_missing() -> None:
    def named(lines: tuple[make_types.Line, ...]) -> set[str]:
        return {make_types.base(kind) for line in lines for kind in line.types}

    assert set(postgresql.LOGICAL) <= named(make_types.POSTGRESQL)
    assert named(make_types.MYSQL) == mysql.NAMES
