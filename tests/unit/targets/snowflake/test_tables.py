"""The definition of a copy, and what its comment says of it."""

from tailrace.targets.snowflake.tables import SnowflakeCopy, literal
from tailrace.targets.sql.described import mark
from tailrace.targets.sql.session import Alteration, AlteredColumn

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


def test_columns_are_changed_without_their_rows_where_no_name_and_no_type_is_in_the_way() -> None:
    copy = SnowflakeCopy.of_definitions(
        77, f'"id" NUMBER(10,0) NOT NULL{mark(1)}, "a" VARCHAR{mark(2)}, "b" VARCHAR{mark(3)}, PRIMARY KEY ("id")'
    )
    wider = AlteredColumn('"id"', '"id"', "NUMBER(19,0)", f'"id" NUMBER(19,0) NOT NULL{mark(1)}')
    other = AlteredColumn('"a"', '"c"', None, f'"c" VARCHAR{mark(2)}')
    change = Alteration(['"b"'], [wider, other], [f'"b" DATE{mark(4)}'])
    assert copy.altering(change) == [
        'DROP COLUMN "b"',
        'RENAME COLUMN "a" TO "c"',
        'ADD COLUMN "b" DATE',
        'ALTER COLUMN "id" SET DATA TYPE NUMBER(19,0)',
        f"SET COMMENT = {literal(copy.altered(change)[0].comment)}",
    ]
    taken = AlteredColumn('"a"', '"B"', None, f'"B" VARCHAR{mark(2)}')
    text = AlteredColumn('"id"', '"id"', "VARCHAR", f'"id" VARCHAR{mark(1)}')
    assert copy.altering(Alteration([], [taken], [])) is None and copy.altering(Alteration([], [text], [])) is None
