"""The effect of a statement that stands as text in the log on the captured tables.

DDL has no row events; and a session can have its changes logged as statements. Called by the stream with each such
text. Comments and the content of strings are taken out by the quoting of its session (`lexed`); sqlglot parses the
rest. What is not understood beyond doubt (comments that the server executes, whatever the parser does not know)
concerns every captured table whose name occurs in it: reading too often costs time, too seldom costs rows. A row change
as text can reach any table through a view, a trigger or a function: unless all that it names is known, it concerns all
of them, in MySQL those of the databases that the event says it wrote to.
"""

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tailrace.sources.mysql.log.lexed import Lexed, Quoting, Token, lexed

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it would log texts that it cannot parse, with their values


class Effect(Enum):
    EMPTIED = "emptied"
    HARMLESS = "harmless"
    """The definition may be another one; the rows are what they were."""
    KEYED = "keyed"
    """A harmless change with a new unique index: until then the columns of the key may have had equal values in several
    rows, unless it is a primary key."""
    ALTERED = "altered"
    """Columns are dropped, renamed or of other types, others may be added: `column_actions`. Where that cannot be
    followed in place, as REREAD."""
    REREAD = "reread"
    """Rows may have changed without row events."""
    DROPPED = "dropped"
    """The statement certainly drops the table, or its database; another may have the name since."""
    REPLACED = "replaced"
    """Another table has the name now, or none."""
    WRITTEN = "written"
    """Rows may have been changed by a statement."""


Name = tuple[str, str]
"""Schema and table."""


@dataclass(frozen=True)
class KnownTables:
    """The knowledge with which a statement is judged."""

    schema: str
    """The session's, for names without one."""
    captured: Collection[Name]
    temporary: Collection[Name] = ()
    """The session's tables that are certainly temporary, and therefore have no triggers."""
    of_session: bool = False
    """The statement uses a temporary table, which may have been made before anybody looked."""
    quoting: Quoting | None = None
    """The session's. None: unknown."""
    exact: bool = False
    """The text was decoded with the character set that it is in."""
    databases: frozenset[str] | None = None
    """All that the statement wrote to. None: unknown."""
    plain: Collection[Name] = ()
    """Tables, captured or not, that are no views and certainly had no trigger when it ran."""


STRENGTH = (
    Effect.HARMLESS,
    Effect.KEYED,
    Effect.EMPTIED,
    Effect.ALTERED,
    Effect.REREAD,
    Effect.WRITTEN,
    Effect.DROPPED,
    Effect.REPLACED,
)
_PARSER_ERRORS = (SqlglotError, RecursionError, ValueError, TypeError, LookupError, AttributeError, AssertionError)
"""All that a text can make sqlglot raise."""
_MOST_PARSED = 100_000
"""Characters: a longer text would hold up capture."""
_DOUBTFUL = re.compile(r'/\*M?!|["\\\ufffd]|--\S')
"""Executable comments; characters whose meaning depends on the session's sql_mode, or its character set; `--5`."""
_LEAD = re.compile(r"(?:\s|/\*(?!M?!).*?\*/|(?:#|--(?=[\s\x00-\x1f\x7f]|\Z))[^\n]*)+", re.DOTALL)
"""Plain comments of every kind."""
_OPENING = re.compile(r"[\s(]*(?:/\*M?!\d*)?")
"""Parentheses, and the beginning of a comment that the server executes."""
_SET_STATEMENT = re.compile(r"SET\s+STATEMENT\s(?:[^'\"`]|'[^']*'|\"[^\"]*\")*?\bFOR\s+", re.IGNORECASE)
"""MariaDB's settings for one statement, which follows."""
_ROWS_FOLLOW = re.compile(r"\s+START\s+TRANSACTION\s*\Z", re.IGNORECASE)
"""MySQL's end of a CREATE TABLE … SELECT whose rows are row events."""
_QUOTED = r"(?:`[^`]*`|'[^']*'|\"[^\"]*\"|[\w.%$-]+)"
_OTHER_OBJECT = re.compile(
    r"(?:(?:CREATE|ALTER)\s+(?:DATABASE|SCHEMA)\b|"
    r"(?:CREATE|ALTER|DROP)\s+(?:OR\s+REPLACE\s+)?(?:ALGORITHM\s*=\s*\w+\s+)?"
    rf"(?:DEFINER\s*=\s*{_QUOTED}(?:\s*@\s*{_QUOTED}|\s*\(\s*\))?\s+)?(?:SQL\s+SECURITY\s+\w+\s+)?(?:AGGREGATE\s+)?"
    r"(?:FULLTEXT\s+|SPATIAL\s+|UNDO\s+)?"
    r"(?:TRIGGER|VIEW|PROCEDURE|FUNCTION|PACKAGE|EVENT|USER|ROLE|SERVER|TABLESPACE|INDEX|SEQUENCE)\b|"
    r"DROP\s+TEMPORARY\s+TABLES?\b|"
    r"(?:GRANT|REVOKE|FLUSH|OPTIMIZE|INSTALL|UNINSTALL|ROLLBACK|RELEASE)\b|"
    r"ANALYZE\s+(?:(?:NO_WRITE_TO_BINLOG|LOCAL)\s+)?TABLES?\b|"
    r"RENAME\s+USER\b|SET\s+(?!STATEMENT\b))",
    re.IGNORECASE,
)
"""Statements that change no table's rows, whatever follows."""
_UNIQUE_INDEX = re.compile(r"CREATE\s+(?:OR\s+REPLACE\s+)?UNIQUE\s+INDEX\b", re.IGNORECASE)
_WRITES = frozenset(
    [
        "INSERT",
        "UPDATE",
        "DELETE",
        "REPLACE",
        "LOAD",
        "WITH",
        "CALL",
        "SELECT",
        "DO",
        "MERGE",
        "VALUES",
        "TABLE",
        "HANDLER",
        "ANALYZE",
        "EXECUTE",
    ]
)
"""First words of row changes; functions write, too."""
_NULLABLE = (
    exp.CommentColumnConstraint,
    exp.NotNullColumnConstraint,
    exp.DefaultColumnConstraint,
    exp.CollateColumnConstraint,
    exp.CharacterSetColumnConstraint,
)
_NO_VALUES = (exp.CommentColumnConstraint, exp.NotNullColumnConstraint, exp.DefaultColumnConstraint)
_NULL_BY_DEFAULT = frozenset(
    exp.DType[name]
    for name in [
        "TINYINT",
        "UTINYINT",
        "SMALLINT",
        "USMALLINT",
        "MEDIUMINT",
        "UMEDIUMINT",
        "INT",
        "UINT",
        "BIGINT",
        "UBIGINT",
        "BIT",
        "BOOLEAN",
        "DECIMAL",
        "UDECIMAL",
        "FLOAT",
        "DOUBLE",
        "UDOUBLE",
        "CHAR",
        "VARCHAR",
        "TINYTEXT",
        "TEXT",
        "MEDIUMTEXT",
        "LONGTEXT",
        "BINARY",
        "VARBINARY",
        "TINYBLOB",
        "BLOB",
        "MEDIUMBLOB",
        "LONGBLOB",
        "DATE",
        "TIME",
        "DATETIME",
        "YEAR",
        "JSON",
        "ENUM",
        "SET",
        "GEOMETRY",
        "VECTOR",
        "UUID",
    ]
)
"""Types whose new columns are NULL in old rows: not SERIAL, and not TIMESTAMP, which can be the time of the change."""
_OWN_FUNCTIONS = (exp.Connector, exp.Count, exp.Sum, exp.Min, exp.Max, exp.Avg, exp.Coalesce, exp.Case, exp.Cast)
OWN_SCHEMA = "mysql"
"""The server's own tables: it allows no triggers on them, and services write them as statements."""


def effects(text: str, known: KnownTables) -> dict[Name, Effect]:
    """The effect of the statement on captured tables; those that are missing are left alone."""
    found_in = None if known.quoting is None else lexed(text, known.quoting)
    head = _ROWS_FOLLOW.sub("", bare(text if found_in is None else found_in.text))
    if _OTHER_OBJECT.match(head) or (found_in is not None and _is_of_no_table(found_in)):
        return {}
    parsed = None if _is_foreign(head, known) else parsed_surely(head)
    if _changes_rows(head, parsed, found_in):
        if not _is_confined(parsed, known):
            return dict.fromkeys(*_reached(parsed, known))
        if not isinstance(parsed, exp.Create):
            return {}
    found: dict[Name, Effect] = {}
    touched = _by_occurrence(head, known, found_in) if parsed is None else _meant(parsed, head, known)
    for name, effect in touched:
        found[name] = max(found.get(name, effect), effect, key=STRENGTH.index)
    return found


def cleaned(text: str, quoting: Quoting | None) -> str:
    """The statement without comments and the content of strings, if its quoting is known."""
    found = None if quoting is None else lexed(text, quoting)
    return text if found is None else found.text


def changes_rows(text: str) -> bool:
    """True if it begins as row changes do: it neither makes nor changes anything else."""
    return _first_word(bare(text)) in _WRITES - {"CALL", "EXECUTE", "SELECT", "DO"}


def added_columns(text: str) -> set[str]:
    """The columns that a harmless statement adds. One that it adds only IF NOT EXISTS may have been there, with
    values."""
    parsed = parsed_surely(bare(text))
    actions = parsed.args.get("actions", ()) if isinstance(parsed, exp.Alter) else ()
    return {action.name for action in actions if isinstance(action, exp.ColumnDef) and not action.args.get("exists")}


class NewType(NamedTuple):
    """A type as a statement says it."""

    name: str
    """Lower case; `uint` for `int unsigned`."""
    size: int = 0
    """The length of a varchar or varbinary, the number of an enum's members; of others 0."""


class ColumnAction(NamedTuple):
    """A part of an ALTER TABLE, for one column of the table as it was."""

    before: str | None
    """The column's name before; None: it is new."""
    after: str | None
    """Its name after; None: it is dropped."""
    type: NewType | None = None
    """The type that it gets; None: a new column's, or the one that it has."""
    if_there: bool = False
    """Nothing happens if there is no such column (IF EXISTS)."""
    fills: bool = False
    """A new column that may have a value in rows that are there."""


def column_actions(text: str, exact: bool = True) -> tuple[ColumnAction, ...]:
    """All that an ALTER TABLE does. Empty: it is none, or it does more than that. `exact`: as in `KnownTables`."""
    parsed = parsed_surely(bare(text)) if exact or text.isascii() else None
    return _column_actions(parsed) if isinstance(parsed, exp.Alter) else ()


def _column_actions(parsed: exp.Alter) -> tuple[ColumnAction, ...]:
    found = [_column_action(action) for action in parsed.args.get("actions", ())]
    known = tuple(action for action in found if action is not None)
    plain = all(_leaves_rows(option) for option in parsed.args.get("options") or ())
    return known if plain and len(known) == len(found) else ()


def _leaves_rows(option: exp.Expr) -> bool:
    algorithm = option.this.name.upper() if isinstance(option, exp.AlgorithmProperty) else ""
    return isinstance(option, exp.LockProperty) or algorithm in ("INSTANT", "INPLACE", "NOCOPY")


def _column_action(action: exp.Expr) -> ColumnAction | None:
    """None: it is more, or another kind."""
    match action:
        case exp.ColumnDef() if not action.args.get("exists") and _is_plain(action):
            return ColumnAction(None, action.name, fills=not _is_harmless(action))
        case exp.Drop() if str(action.args.get("kind", "")).upper() == "COLUMN":
            (column,) = action.args["tables"]
            return ColumnAction(column.name, None, if_there=bool(action.args.get("exists")))
        case exp.RenameColumn() if not action.args.get("exists"):
            return ColumnAction(action.this.name, action.args["to"].name)
        case exp.ModifyColumn() if _only_type(action):
            type, former = _new_type(action.this.args.get("kind")), action.args.get("rename_from")
            name = action.this.name
            return None if type is None else ColumnAction(former.name if former else name, name, type)
        case _:
            return None


def _is_plain(column: exp.ColumnDef) -> bool:
    """It is neither generated nor part of a key."""
    kinds = [constraint.args.get("kind") for constraint in column.args.get("constraints") or ()]
    return isinstance(column.args.get("kind"), exp.DataType) and all(isinstance(kind, _NULLABLE) for kind in kinds)


def _new_type(kind: object) -> NewType | None:
    if not isinstance(kind, exp.DataType) or not isinstance(kind.this, exp.DType):
        return None
    name, sizes = kind.this.name.lower(), kind.expressions
    if name == "enum":
        return NewType(name, len(sizes))
    if name in ("varchar", "varbinary"):
        return NewType(name, int(sizes[0].name)) if len(sizes) == 1 and sizes[0].name.isdigit() else None
    return NewType(name)


def bare(text: str) -> str:
    """Without plain comments and settings before the statement."""
    head = _without_lead(text)
    settings = _SET_STATEMENT.match(head)
    return _without_lead(head[settings.end() :]) if settings else head


_OF_TABLES = frozenset(("TABLE", "TABLES", "DATABASE", "SCHEMA", "INDEX"))
_BEFORE_TABLES = frozenset(("OR", "REPLACE", "TEMPORARY", "EXTERNAL", "ONLINE", "OFFLINE", "IGNORE", "UNIQUE"))
_BEFORE_INDEX = frozenset(("FULLTEXT", "SPATIAL", "VECTOR"))


def _is_of_no_table(found: Lexed) -> bool:
    """True if it makes, changes or drops an object of another kind, such as a library, whether or not the server
    executes what stands in its comments."""
    words, without = found.words(), found.words(executed=False)
    return _makes_another(words) and (len(without) < 2 or _makes_another(without))


def _makes_another(words: Sequence[str]) -> bool:
    if words[:1] not in (["CREATE"], ["ALTER"], ["DROP"]):
        return False
    at = next((i for i, word in enumerate(words[1:], 1) if word not in _BEFORE_TABLES), len(words))
    kind = words[at : at + 2]
    return bool(kind) and kind[0] not in _OF_TABLES and not (kind[0] in _BEFORE_INDEX and kind[1:] == ["INDEX"])


def _without_lead(text: str) -> str:
    lead = _LEAD.match(text)
    return text[lead.end() :] if lead else text


def parsed_surely(head: str) -> exp.Expr | None:
    """None: it may mean something else than the parser takes it for."""
    if len(head) > _MOST_PARSED or _DOUBTFUL.search(head):
        return None
    try:
        parsed = sqlglot.parse_one(head, read="mysql")
    except _PARSER_ERRORS:
        return None
    return None if isinstance(parsed, exp.Command | exp.Block) else parsed


def _is_foreign(head: str, known: KnownTables) -> bool:
    """Names in it may be written in a character set that the text was not decoded with."""
    if known.exact and "\ufffd" not in head:
        return False
    return not head.isascii() and any(not "".join(name).isascii() for name in known.captured)


def _first_word(head: str) -> str:
    rest = ""
    while rest != head:
        rest, head = head, bare(_OPENING.sub("", head, count=1))
    word = re.match(r"\W*(\w*)", head)
    assert word is not None, "it matches the empty text"
    return word[1].upper()


def _changes_rows(head: str, parsed: exp.Expr | None, found: Lexed | None) -> bool:
    word = _first_word(head)
    if word in _WRITES or isinstance(parsed, exp.DML | exp.Query):
        return True
    # A new table's rows are row events, and its text then lacks the query that a session with text in its log has in
    # it, which may call functions.
    if isinstance(parsed, exp.Create):
        return parsed.expression is not None
    return word == "CREATE" and _has_query(head, found)


def _has_query(head: str, found: Lexed | None) -> bool:
    if found is None:
        return (
            re.search(r"\b(?:SELECT|VALUES\s+ROW)\b|\bTABLE\b.*\bTABLE\b", head, re.IGNORECASE | re.DOTALL) is not None
        )
    words = found.words()
    return "SELECT" in words or words.count("TABLE") > 1 or ("VALUES", "ROW") in pairwise(words)


def _reached(parsed: exp.Expr | None, known: KnownTables) -> tuple[Collection[Name], Effect]:
    """The captured tables that a row change as text may have changed."""
    if (only := _only_table(parsed, known)) is not None:
        return [only] if only in known.captured else [], Effect.REREAD
    if known.databases is None:
        return known.captured, Effect.WRITTEN
    written = {database.casefold() for database in known.databases}
    return [name for name in known.captured if name[0].casefold() in written], Effect.WRITTEN


def _only_table(parsed: exp.Expr | None, known: KnownTables) -> Name | None:
    """The one table that it certainly changed, and nothing else."""
    if not isinstance(parsed, exp.Insert | exp.Update | exp.Delete) or known.databases is None or _calls(parsed):
        return None
    tables = [name_in(table, known.schema) for table in parsed.find_all(exp.Table)]
    target = parsed.this.find(exp.Table) if isinstance(parsed, exp.Insert) else None
    name = tables[0] if len(tables) == 1 else name_in(target, known.schema) if target is not None else None
    sure = name is not None and known.databases == {name[0]} and {name, *tables} <= set(known.plain)
    return name if sure else None


def _is_confined(parsed: exp.Expr | None, known: KnownTables) -> bool:
    """True if it certainly writes nothing but temporary tables and the server's own, and what it makes itself."""
    if not isinstance(parsed, exp.Insert | exp.Update | exp.Delete | exp.Create) or _calls(parsed):
        return False
    target = parsed.this.find(exp.Table) if isinstance(parsed, exp.Insert | exp.Create) else None
    written = [target] if target is not None else list(parsed.find_all(exp.Table))
    names = [name_in(t, known.schema) for t in written]
    safe = isinstance(parsed, exp.Create) or all(s == OWN_SCHEMA or (s, t) in known.temporary for s, t in names)
    read = [name_in(t, known.schema) for t in parsed.find_all(exp.Table) if t not in written]
    return safe and all(s == OWN_SCHEMA or (s, t) in {*known.temporary, *known.captured} for s, t in read)


def _calls(parsed: exp.Expr) -> bool:
    """True if it calls what may be a stored function."""
    return parsed.find(exp.Dot) is not None or any(not isinstance(f, _OWN_FUNCTIONS) for f in parsed.find_all(exp.Func))


def name_in(table: exp.Table, schema: str) -> Name:
    """`schema`: of a name without one."""
    return table.db or schema, table.name


def _is_temporary(parsed: exp.Create) -> bool:
    return parsed.find(exp.TemporaryProperty) is not None


def _meant(parsed: exp.Expr, head: str, known: KnownTables) -> Iterator[tuple[Name, Effect]]:
    match parsed:
        case exp.TruncateTable():
            # A temporary table is emptied, or the captured one whose name it has: rather read too often.
            yield from _named(parsed.expressions, Effect.REREAD if known.of_session else Effect.EMPTIED, known)
        case exp.Drop() if str(parsed.args.get("kind", "")).upper() in ("DATABASE", "SCHEMA"):
            named = {t.name or t.db for t in parsed.find_all(exp.Table)}
            schemas = {name.casefold() for name in named}
            for name in known.captured:
                if name[0].casefold() in schemas:
                    yield name, Effect.DROPPED if name[0] in named else Effect.REPLACED
        case exp.Drop() if str(parsed.args.get("kind", "")).upper() == "TABLE":
            yield from _named(parsed.find_all(exp.Table), Effect.DROPPED, known)
        case exp.Create() if str(parsed.args.get("kind", "")).upper() == "TABLE":
            if not _is_temporary(parsed):
                # Of a table that is there already, IF NOT EXISTS does nothing, and the log has it nevertheless.
                effect = Effect.HARMLESS if parsed.args.get("exists") else Effect.REPLACED
                yield from _named([parsed.this], effect, known)
        case exp.Create() if _UNIQUE_INDEX.match(head):
            yield from ((name, Effect.KEYED) for name, _ in _by_occurrence(head, known))
        case exp.Alter() if parsed.args.get("actions"):
            yield from _altered(parsed, known)
        case _:
            yield from _by_occurrence(head, known)


def _named(found: Iterable[exp.Expr], effect: Effect, known: KnownTables) -> Iterator[tuple[Name, Effect]]:
    """Servers can be told to ignore the case of names: one in another case may be the table, too."""
    for part in found:
        table = part if isinstance(part, exp.Table) else part.find(exp.Table)
        if table is None:
            continue
        name = name_in(table, known.schema)
        if name in known.temporary:
            continue
        for captured in known.captured:
            if captured == name:
                yield captured, effect
            elif folded(captured) == folded(name):
                yield captured, _OF_ANOTHER_CASE.get(effect, effect)


_OF_ANOTHER_CASE = {
    Effect.EMPTIED: Effect.REREAD,
    Effect.ALTERED: Effect.REREAD,
    Effect.DROPPED: Effect.REPLACED,
}


def folded(name: Name) -> Name:
    return name[0].casefold(), name[1].casefold()


def _altered(parsed: exp.Alter, known: KnownTables) -> Iterator[tuple[Name, Effect]]:
    """A rename inside of ALTER TABLE names two tables."""
    actions = parsed.args["actions"]
    effect = Effect.HARMLESS if all(_is_harmless(action) for action in actions) else Effect.REREAD
    columns = _column_actions(parsed)
    if not known.of_session and any(column.before is not None for column in columns):
        effect = Effect.ALTERED
    if effect is Effect.HARMLESS and any(action.find(exp.UniqueColumnConstraint) for action in actions):
        effect = Effect.KEYED
    yield from _named([parsed.this], effect, known)
    for action in actions:
        if isinstance(action, exp.AlterRename):
            yield from _named([parsed.this, action.this], Effect.REPLACED, known)


def _only_type(action: exp.Expr) -> bool:
    """A column gets another type, maybe another name, and no character set."""
    if not isinstance(action, exp.ModifyColumn):
        return False
    kinds = [constraint.args.get("kind") for constraint in action.this.args.get("constraints") or ()]
    return all(isinstance(kind, _NO_VALUES) for kind in kinds)


def _is_harmless(action: exp.Expr) -> bool:
    """A new column that is NULL in every row; indexes and constraints."""
    if isinstance(action, exp.ColumnDef):
        kinds = [constraint.args.get("kind") for constraint in action.args.get("constraints", [])]
        if not all(isinstance(k, _NULLABLE) and not _gives_value(k) for k in kinds):
            return False
        type_ = action.args.get("kind")
        return isinstance(type_, exp.DataType) and type_.this in _NULL_BY_DEFAULT
    if isinstance(action, exp.Drop):
        return str(action.args.get("kind", "")).upper() in ("INDEX", "KEY", "FOREIGN KEY", "CONSTRAINT")
    return isinstance(action, exp.AddConstraint) and not list(action.find_all(exp.PrimaryKey))


def _gives_value(kind: exp.Expr) -> bool:
    """To old rows."""
    if isinstance(kind, exp.DefaultColumnConstraint):
        return not isinstance(kind.this, exp.Null)
    return isinstance(kind, exp.NotNullColumnConstraint) and not kind.args.get("allow_null")


def _by_occurrence(head: str, known: KnownTables, found: Lexed | None = None) -> Iterator[tuple[Name, Effect]]:
    """The effects of a statement that is not understood: on captured tables whose names are anywhere in the text."""
    replaced = _first_word(head) in ("RENAME", "DROP")
    whole = re.search(r"\b(?:DATABASE|SCHEMA)\b", head, re.IGNORECASE) is not None
    if found is not None and not _is_foreign(head, known):
        made = _made(found)
        if made is not None:
            effect = Effect.HARMLESS if "EXISTS" in found.words()[:7] else Effect.REPLACED
            place, table = made
            yield from _named([exp.table_(table, db=place)], effect, known)
            return
        effect = Effect.REPLACED if replaced else Effect.REREAD
        names = {(None if place is None else place.casefold(), name.casefold()) for place, name in found.names()}
        for schema, table in map(folded, known.captured):
            own = schema == known.schema.casefold() and (None, table) in names
            if own or (schema, table) in names or (whole and any(schema == name for _, name in names)):
                yield from ((name, effect) for name in known.captured if folded(name) == (schema, table))
        return
    for name in known.captured:
        if _occurs(name[1], head) or (whole and _occurs(name[0], head)):
            yield name, Effect.REPLACED if replaced else Effect.REREAD


def _made(found: Lexed) -> tuple[str | None, str] | None:
    """The table that a CREATE TABLE makes, however it continues. None: it is another statement, or not certain."""
    tokens = [t for t in found.tokens if t.kind != "blank"]
    words = [t.text.upper() if t.kind == "word" and not t.executed else "" for t in tokens]
    at = 0
    for part in (("CREATE",), ("OR", "REPLACE"), ("TABLE",), ("IF", "NOT", "EXISTS")):
        if tuple(words[at : at + len(part)]) == part:
            at += len(part)
        elif len(part) == 1:
            return None
    one, dot, other = ([*tokens[at : at + 3], *[_NOTHING] * 3])[:3]
    if one.kind not in _NAMES or one.executed or dot.executed:
        return None
    if dot.text != ".":
        return None, one.text
    return (one.text, other.text) if other.kind in _NAMES and not other.executed else None


_NOTHING, _NAMES = Token("blank", "", False), ("word", "name")


def _occurs(name: str, text: str) -> bool:
    """Also quoted, and in a character set that the text was not decoded with."""
    if not name.isascii() and not text.isascii():
        return True
    forms = (name, name.replace("`", "``"), name.replace('"', '""'))
    return any(form.casefold() in text.casefold() for form in forms)
