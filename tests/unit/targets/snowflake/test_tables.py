"""The definition of a copy, and what its comment says of it."""

from tailrace.targets.snowflake.tables import SnowflakeCopy, literal
from tailrace.targets.sql.described import mark

NAME = 'a "" b, "" VARCHAR /* column 9 */ \\ '
DEFINITIONS = (
    f'"id" NUMBER(19,0) NOT NULL{mark(1)}, "{NAME}" TIMESTAMP_NTZ(6){mark(-2)}, "at" VARCHAR NOT NULL{mark(3)},'
    ' PRIMARY KEY ("at", "id")'
)


def test_a_copy_is_known_by_its_comment() -> None:
    copy = SnowflakeCopy.of_definitions(77, DEFINITIONS)
    assert [(c.name, c.kind, c.id) for c in copy.columns] == [
        ("id", "NUMBER(19,0)", 1), (NAME, "TIMESTAMP_NTZ(6)", -2), ("at", "VARCHAR", 3),
    ]  # fmt: skip
    assert list(copy.key) == [3, 1]
    assert SnowflakeCopy.of_comment(copy.comment) == copy
    assert all(SnowflakeCopy.of_comment(text) is None for text in ("", "a table", "{}", "[1]"))


def test_it_is_made_with_its_comment_and_compares_exactly() -> None:
    copy = SnowflakeCopy.of_definitions(77, f'"id" NUMBER(19,0) NOT NULL{mark(1)}, PRIMARY KEY ("id")')
    comment = '\'{"tailrace":77,"columns":[["id","NUMBER(19,0)",1]],"key":[1]}\''
    made = f"CREATE TABLE s.t (\"id\" NUMBER(19,0)) DEFAULT_DDL_COLLATION='' COMMENT={comment}"
    assert copy.created("s.t") == made


def test_a_text_as_a_literal() -> None:
    assert literal("it's \\") == "'it''s \\\\'"
