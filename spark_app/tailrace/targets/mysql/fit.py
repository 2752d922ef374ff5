"""Tables of MySQL that somebody has created: compared with what a copy must be, and marked as one. Called by the
session."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tailrace.databases.mysql.extras import COLUMN_LINE, COMMENT, lines_of
from tailrace.targets.mysql.types import COLLATE
from tailrace.targets.sql.session import HAS_ROWS, Place, TargetSession, WantedColumn, list_of, table

WANTED = "_tailrace_wanted"
_TABLE = """
SELECT table_type, engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s
"""
_CHECK = re.compile(r" CHECK \(.*\)$")


@dataclass(frozen=True)
class ShownColumn:
    kind: str
    collation: str
    """Empty where the type has none."""
    required: bool
    key: bool
    extra: str

    @property
    def generated(self) -> bool:
        return "GENERATED" in self.extra and "DEFAULT_GENERATED" not in self.extra


def misfits(
    session: TargetSession, place: Place, columns: Sequence[WantedColumn], options: str, asked: str
) -> Iterator[tuple[str, str]]:
    """See `TargetSession.misfits`. `options`: of a new copy. `asked`: see `_kinds`."""
    name = table(session, place)
    ((form, engine),) = session.rows(_TABLE, *place)
    if form != "BASE TABLE":
        yield "it is no table", f"DROP VIEW {name}"
        return
    if not session.keeps_rows and session.rows(f"SELECT 1 FROM {name} LIMIT 1"):
        yield HAS_ROWS, f"TRUNCATE {name}"
        return
    if engine != "InnoDB":
        yield f"its engine is {engine}", f"ALTER TABLE {name} ENGINE=InnoDB"
    found, kinds = _columns(session, name), _kinds(session, place[0], columns, options, asked)
    key = sorted(column for column, there in found.items() if there.key)
    for column in columns:
        yield from _misfits_of(session, name, column, kinds[column.name], found.pop(column.name, None))
    for other, there in found.items():
        if not there.generated:
            yield f"the source has no column {other!r}", f"ALTER TABLE {name} DROP COLUMN {session.quote(other)}"
    wanted = [column.name for column in columns if column.key]
    if key != sorted(wanted):
        steps = ["DROP PRIMARY KEY"] if key else []
        steps += [f"ADD PRIMARY KEY ({list_of(session, wanted)})"] if wanted else []
        what = (
            f"the source's key is {', '.join(wanted)}"
            if wanted
            else "it has a primary key, which a copy of this table must not have"
        )
        yield what, f"ALTER TABLE {name} {', '.join(steps)}"


def _columns(session: TargetSession, name: str) -> dict[str, ShownColumn]:
    return {
        str(column): ShownColumn(str(kind), str(collation or ""), null == "NO", key == "PRI", str(extra))
        for column, kind, collation, null, key, _, extra, *_ in session.rows(f"SHOW FULL COLUMNS FROM {name}")
    }


def _kinds(
    session: TargetSession, schema: str, columns: Sequence[WantedColumn], options: str, asked: str
) -> dict[str, ShownColumn]:
    """The types and collations in the server's own words, which differ between versions. `asked`: behind columns of a
    temporary table; empty where it needs none."""
    made = table(session, (schema, WANTED))
    defined = ", ".join(f"{session.quote(each.name)} {each.kind}" for each in columns)
    session.run(f"CREATE TEMPORARY TABLE {made} ({defined}{asked}) {options}")
    kinds = _columns(session, made)
    session.drop_temporary(made)
    return kinds


def tells_apart(session: TargetSession, name: str, key: Mapping[str, str]) -> bool:
    """True if these columns of a copy, by their names, have the types and collations that these definitions give a new
    one, and so tell apart what it does. Called in the transaction of a batch, and does not end it."""
    found = _columns(session, name)
    made = session.temporary(WANTED, ", ".join(f"{session.quote(column)} {kind}" for column, kind in key.items()))
    wanted = _columns(session, made)
    session.drop_temporary(made)
    return all((found[n].kind, found[n].collation) == (wanted[n].kind, wanted[n].collation) for n in key)


def _misfits_of(
    session: TargetSession, name: str, column: WantedColumn, wanted: ShownColumn, found: ShownColumn | None
) -> Iterator[tuple[str, str]]:
    quoted, what = session.quote(column.name), f"column {column.name!r}"
    collate = f" COLLATE {wanted.collation}" if wanted.collation and COLLATE not in column.kind else ""
    rest = column.definition.removeprefix(f"{quoted} {column.kind}")
    definition = f"{quoted} {column.kind}{collate}{rest}"
    alter = f"ALTER TABLE {name} MODIFY COLUMN {definition}"
    if found is None:
        yield f"{what} is missing", f"ALTER TABLE {name} ADD COLUMN {definition}"
    elif (found.kind, found.collation) != (wanted.kind, wanted.collation):
        one, other = (f"{each.kind} {each.collation}".strip() for each in (found, wanted))
        yield f"{what} is {one}, not {other}", alter
    elif found.generated:
        yield f"{what} is generated", alter
    elif found.required and column.nullable and not column.key:
        yield f"{what} is NOT NULL", alter


def marking(session: TargetSession, place: Place, marks: Mapping[str, str]) -> Iterator[str]:
    """Clauses of an ALTER TABLE that give columns their marks, and leave all else as it is."""
    defined = _defined(session, place)
    for column, mark in marks.items():
        definition = COMMENT.sub("", defined[session.quote(column)])
        check = _CHECK.search(definition)
        at = len(definition) if check is None else check.start()
        yield f"MODIFY COLUMN {session.quote(column)} {definition[:at]}{mark}{definition[at:]}"


def given(session: TargetSession, place: Place, column: str, clause: str) -> str:
    """The statement that gives a column a default or AUTO_INCREMENT, and leaves all else as it is."""
    name, definition = session.quote(column), _defined(session, place).get(session.quote(column), "bigint NOT NULL")
    mark = COMMENT.search(definition)
    at = len(definition) if mark is None else mark.start()
    before = definition[:at].removesuffix(" DEFAULT NULL")
    return f"ALTER TABLE {table(session, place)} MODIFY COLUMN {name} {before} {clause}{definition[at:]}"


def _defined(session: TargetSession, place: Place) -> dict[str, str]:
    """The definitions of columns by their quoted names."""
    return {found[1]: found[2] for found in filter(None, map(COLUMN_LINE.fullmatch, lines_of(session.rows, *place)))}
