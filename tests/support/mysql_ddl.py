"""Random statements on two tables of MySQL or MariaDB, and a model of their copies.

The stream lags behind the statements at random, looks at the catalog in between and is started again. A copy holds what
the change log makes of it: rows that are to be read again are read by a chunk at the next moment at which the stream
has no lag, all others come from the log. So a change that is in neither shows as a difference from the source.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pymysql
from typing_extensions import override

from support.mysql import MysqlServer
from support.mysql_log import LogRun, by_chunk, exactly, table_of
from tailrace.changelog.segments import DELETE, OP, SEQ
from tailrace.changelog.state import TableLog

TABLES = ("t", "u")
POLICIES = ("Evolve", "EvolveAdditive")
STOPS = ("was dropped or renamed", "changed its type from", "and changed again since")
"""Words of the stops that these statements may lead to with EvolveAdditive (docs/mysql.md)."""
_VALUES = {
    "int": ("1", "-5", "30000"),
    "int unsigned": ("1", "30000"),
    "int DEFAULT 5": ("2", "NULL"),
    "int NOT NULL DEFAULT 7": ("0", "8"),
    "bigint": ("1", "-9223372036854775808", "NULL"),
    "tinyint(1)": ("0", "1", "NULL"),
    "decimal(10,2)": ("0.25", "-7.50", "NULL"),
    "double": ("1.5", "-0e0", "NULL"),
    "datetime": ("'2024-01-02 10:00:00'", "NULL"),
    "timestamp NULL": ("'2024-01-02 10:00:00'", "NULL"),
    "varchar(20)": ("'a'", "''", "NULL"),
    "varchar(9) NOT NULL": ("'b'", "''"),
    "varchar(9) CHARACTER SET latin1": ("'c'", "NULL"),
    "enum('a','b')": ("'a'", "'b'", "NULL"),
    "text": ("'long'", "NULL"),
    "varchar(99)": ("'as long as twenty characters and more'", "NULL"),
    "enum('a','b','c')": ("'c'", "'b'", "NULL"),
    "smallint": ("-32768", "300", "NULL"),
}
_WIDER = {
    "varchar(20)": "varchar(99)",
    "varchar(9) NOT NULL": "varchar(20)",
    "varchar(9) CHARACTER SET latin1": "varchar(20)",
    "enum('a','b')": "enum('a','b','c')",
    "tinyint(1)": "smallint",
    "smallint": "int",
    "int": "bigint",
}
"""Changes of a type that keep every value; of a character set, too."""


class Statements:
    """Draws statements, and knows what columns the tables have then."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._columns: dict[str, dict[str, str]] = {}
        self._unique: dict[str, str | None] = {}
        """The unique index that is a table's key; None: it has a primary key."""
        self._numbers = iter(range(1, 1 << 30))

    def creation(self, table: str) -> str:
        random = self._random
        self._columns[table] = {"v": "int"} | {self._name(): self._kind() for _ in range(random.randrange(3))}
        made = ", ".join(f"{name} {kind}" for name, kind in self._columns[table].items())
        key = random.choice(["PRIMARY KEY", "NOT NULL"])
        self._unique[table] = self._name() if key == "NOT NULL" else None
        index = f", UNIQUE KEY {self._unique[table]} (id)" if self._unique[table] else ""
        return f"CREATE TABLE d.{table} (id int {key}, {made}{index})"

    def draw(self) -> list[str]:
        table = self._random.choice(TABLES)
        return self._definition(table) if self._random.random() < 0.35 else [self._rows(table)]

    def _name(self) -> str:
        return f"c{next(self._numbers)}"

    def _kind(self) -> str:
        return self._random.choice(list(_VALUES))

    def _value(self, kind: str) -> str:
        return self._random.choice(_VALUES[kind])

    def _rows(self, table: str) -> str:
        random, columns = self._random, self._columns[table]
        match random.randrange(10):
            case 0:
                return f"DELETE FROM d.{table} WHERE id % {random.randrange(3, 9)} = 1"
            case 1:
                return f"UPDATE d.{table} SET id = {next(self._numbers)} ORDER BY id DESC LIMIT 1"
            case 2 | 3 | 4:
                name = random.choice(list(columns))
                value = self._value(columns[name])
                return f"UPDATE d.{table} SET {name} = {value} WHERE id % {random.randrange(2, 5)} = 0"
            case _:
                kinds = columns.values()
                rows = [[str(next(self._numbers)), *map(self._value, kinds)] for _ in range(random.randrange(1, 4))]
                listed = ", ".join(f"({', '.join(row)})" for row in rows)
                return f"INSERT INTO d.{table} (id, {', '.join(columns)}) VALUES {listed}"

    def _definition(self, table: str) -> list[str]:
        random, columns = self._random, self._columns[table]
        match random.randrange(24):
            case 16:
                return list(self._key_away(table))
            case 17 | 18 | 19 | 20 | 21:
                return [self._mixed(table) for _ in range(random.choice((1, 1, 1, 2, 3)))]
            case 22 if len(columns) > 1:
                return [self._exchanged(table, *random.sample(list(columns), 2))]
            case 0:
                return [f"TRUNCATE TABLE d.{table}"]
            case 1:
                return [f"ALTER TABLE d.{table} ADD INDEX i{next(self._numbers)} (id)"]
            case 2:
                return [f"ALTER TABLE d.{table} COMMENT 'x{random.randrange(99)}'"]
            case 3:
                return [f"DROP TABLE d.{table}", self.creation(table)]
            case 4:
                return list(self._exchange(table))
            case 5 if len(columns) > 1:
                name = random.choice([name for name in columns if name != "v"])
                del columns[name]
                return [f"ALTER TABLE d.{table} DROP COLUMN {name}"]
            case 6 | 7:
                return self._in_haste(table)
            case 8:
                return [self._modification(table, random.choice(list(columns)))]
            case 9 | 10 if wider := [name for name in columns if columns[name] in _WIDER]:
                name = random.choice(wider)
                columns[name] = _WIDER[columns[name]]
                return [f"ALTER TABLE d.{table} MODIFY {name} {columns[name]}"]
            case _:
                return [self._addition(table)]

    def _addition(self, table: str) -> str:
        columns = self._columns[table]
        where = self._random.choice(["", " FIRST", f" AFTER {self._random.choice(list(columns))}"])
        added = {self._name(): self._kind() for _ in range(self._random.randrange(1, 3))}
        columns |= added
        actions = ", ".join(f"ADD COLUMN {name} {kind}{where}" for name, kind in added.items())
        return f"ALTER TABLE d.{table} {actions}"

    def _modification(self, table: str, column: str) -> str:
        """To a type that takes every value."""
        self._columns[table][column] = "text"
        return f"ALTER TABLE d.{table} MODIFY {column} text"

    def _mixed(self, table: str) -> str:
        """Several changes of columns in one statement, in any order; names can be given again at once."""
        random, before = self._random, self._columns[table]
        after, actions, free = dict(before), list[str](), [self._name(), self._name()]
        for name in random.sample(list(before), random.randrange(min(3, len(before)) + 1)):
            kind = before[name]
            wider = _WIDER.get(kind, kind)
            new = "v" if name == "v" else random.choice(free)
            if name != "v" and random.random() < 0.4:
                del after[name]
                free.append(name)
                actions.append(random.choice([f"DROP COLUMN {name}", f"DROP {name.upper()}"]))
                continue
            if new != name:
                free.remove(new)
                free.append(name)
                del after[name]
            after[new] = wider
            where = random.choice(["", " FIRST"])
            plain = new != name and random.random() < 0.5
            if plain:
                after[new] = kind
            change = f"CHANGE {name} {new} {wider}{where}" if new != name else f"MODIFY {name} {wider}{where}"
            actions.append(f"RENAME COLUMN {name} TO {new}" if plain else change)
        if not actions or random.random() < 0.4:
            new = random.choice(free)
            after[new] = self._kind()
            actions.append(f"ADD COLUMN {new} {after[new]}")
        random.shuffle(actions)
        self._columns[table] = after
        return f"ALTER TABLE d.{table} {', '.join(actions)}{random.choice(['', '', ', LOCK = SHARED'])}"

    def _exchanged(self, table: str, one: str, other: str) -> str:
        columns = self._columns[table]
        columns[one], columns[other] = columns[other], columns[one]
        return f"ALTER TABLE d.{table} RENAME COLUMN {one} TO {other}, RENAME COLUMN {other} TO {one}"

    def _in_haste(self, table: str) -> list[str]:
        """Changes of one table with rows between them, as a migration makes them."""
        random = self._random
        begun = [f"DROP TABLE d.{table}", self.creation(table)] if random.random() < 0.3 else []
        found = [*begun, self._rows(table)]
        for _ in range(random.randrange(2, 4)):
            found += [self._addition(table), self._rows(table)]
        if random.random() < 0.3:
            found += [self._modification(table, list(self._columns[table])[-1]), self._rows(table)]
        return found

    def _key_away(self, table: str) -> Iterator[str]:
        """Two rows have the same key for a moment."""
        former, self._unique[table] = self._unique[table], self._name()
        yield f"ALTER TABLE d.{table} {f'DROP INDEX {former}' if former else 'DROP PRIMARY KEY'}"
        yield f"INSERT INTO d.{table} SELECT * FROM d.{table} ORDER BY id LIMIT 1"
        yield f"UPDATE d.{table} SET v = 9 ORDER BY id LIMIT 1"
        apart = [f"DELETE FROM d.{table}", f"UPDATE d.{table} SET id = {next(self._numbers)}"]
        yield f"{self._random.choice(apart)} ORDER BY id LIMIT 1"
        yield f"ALTER TABLE d.{table} ADD UNIQUE KEY {self._unique[table]} (id)"

    def _exchange(self, table: str) -> Iterator[str]:
        """As an online schema change ends."""
        other, former = self._name(), self._name()
        yield f"CREATE TABLE d.{other} LIKE d.{table}"
        yield f"INSERT INTO d.{other} SELECT * FROM d.{table} WHERE id % 2 = 0"
        yield f"RENAME TABLE d.{table} TO d.{former}, d.{other} TO d.{table}"


class Copy:
    """Of one table."""

    def __init__(self) -> None:
        self._begun = (-1, -1)
        self._seq = 0
        self._rows: dict[Any, dict[int, Any]] = {}
        """By key, and by the column's number: names are given to others."""

    def follow(self, run: LogRun, server: MysqlServer, name: str) -> str | None:
        """What it has otherwise than the source; None: it is equal."""
        table = run.table(name)
        begun = table.added_record, table.reread_record
        source = by_chunk(server, name)
        names = {c.name: c.id for c in table.schema.columns}
        if source and set(source[0]) != set(names):
            return f"{name} has the columns {list(names)}, and not {list(source[0])}"  # capture refuses such a chunk
        if begun == self._begun:
            self._apply(run, table)
        else:
            self._begun, self._rows = begun, {row["id"]: {names[n]: v for n, v in row.items()} for row in source}
        self._seq = run.journal.state.last_seq
        copied = [{n: self._rows[key].get(names[n]) for n in names} for key in sorted(self._rows)]
        asked = [{n: row[n] for n in names} for row in source]
        return None if exactly(copied) == exactly(asked) else f"{name} has {copied}, and not {asked}"

    def _apply(self, run: LogRun, table: TableLog) -> None:
        emptied = [one.seq for one in table.truncates if one.seq > self._seq]
        numbers = {c.name: c.id for c in table.schema.columns}
        for row in run.by_column(table.schema.name):
            if row[SEQ] <= self._seq:
                continue
            while emptied and row[SEQ] > emptied[0]:
                self._rows.clear()
                emptied.pop(0)
            if row[OP] == DELETE:
                self._rows.pop(row["id"], None)
            else:
                self._rows[row["id"]] = {number: row[name] for name, number in numbers.items()}
        if emptied:
            self._rows.clear()


def _begun(run: LogRun) -> list[tuple[object, ...]]:
    return [(t.added_record, t.reread_record, t.stopped) for t in run.journal.state.tables.values()]


UNFIT = (1265, 1292)
"""The server's numbers for a value that a type cannot have."""


class Round:
    """One seed on a server: `fault` is the first thing that is wrong, behind the statements that led to it."""

    def __init__(self, server: MysqlServer, folder: Path, seed: int) -> None:
        self._server, self._folder, self._random = server, folder, Random(seed)
        self._statements = Statements(self._random)
        self._copies = {table: Copy() for table in TABLES}
        self._policy = POLICIES[seed % len(POLICIES)]
        self.trace: list[str] = []
        self.compared = 0
        self.altered = self.in_place = 0
        """Changes of a table that were read by themselves, and those of them after which nothing was read again."""

    def fault(self, turns: int = 8) -> str | None:
        self._server.script("DROP DATABASE IF EXISTS d", "CREATE DATABASE d")
        self._execute([self._statements.creation(table) for table in TABLES])
        run = self._begun()
        try:
            for _ in range(turns):
                for _ in range(self._random.randrange(1, 20)):
                    for statement in self._statements.draw():
                        by_itself = statement.startswith("ALTER ") and self._random.random() < 0.5
                        if by_itself:
                            self._read(run)
                            before = _begun(run)
                        try:
                            self._execute([statement])
                        except pymysql.err.MySQLError as error:
                            if error.args[0] not in UNFIT:
                                raise
                            # A value has no form in the column's new type: what follows knows another table.
                            self.trace.append("-- refused by the server")
                            return self._wrong(run)
                        run = self._disturbed(run)
                        if by_itself:
                            self._read(run)
                            self.altered, self.in_place = self.altered + 1, self.in_place + (_begun(run) == before)
                wrong = self._wrong(run)
                if wrong is not None:
                    return wrong
        finally:
            run.__exit__()
        return None

    def _wrong(self, run: LogRun) -> str | None:
        self.trace.append("-- catch up")
        run.catch_up()
        found = [told for table in TABLES if (told := self._compared(run, table)) is not None]
        return "; ".join(found) or None

    def _begun(self) -> LogRun:
        options = [{"match": "d.?", "onSchemaChange": self._policy}]
        return LogRun(self._server, self._folder, include="d.?", options=options).__enter__()

    def _execute(self, statements: list[str]) -> None:
        self.trace += statements
        self._server.script(*statements)

    def _disturbed(self, run: LogRun) -> LogRun:
        match self._random.randrange(30):
            case 0 | 1:
                self.trace.append("-- look")
                run.stream.poll_catalog()
            case 2 | 3:
                self._read(run)
            case 4:
                self.trace.append("-- restart")
                run.__exit__()
                return self._begun()
            case _:
                pass
        return run

    def _read(self, run: LogRun) -> None:
        self.trace.append("-- read")
        run.read()
        self._follow(run)

    def _follow(self, run: LogRun) -> None:
        """Chunks are read. The catalog may be ahead of what was looked at: a table may have no key now."""
        captured = {t.schema.table_name for t in run.journal.state.tables.values() if not (t.stopped or t.removed)}
        for table in captured & self._copies.keys():
            if table_of(self._server, f"d.{table}"):
                self._copies[table].follow(run, self._server, f"d.{table}")

    def _compared(self, run: LogRun, table: str) -> str | None:
        stopped = run.table(f"d.{table}").stopped
        if stopped is None:
            self.compared += 1
            return self._copies[table].follow(run, self._server, f"d.{table}")
        if self._policy == "Evolve" or not any(words in stopped.message for words in STOPS):
            return stopped.message
        self._execute([f"DROP TABLE d.{table}", self._statements.creation(table)])
        return None


class DefinitionWriter(threading.Thread):
    """One session that runs random statements and waits for nothing: `ended`, unless one of them failed."""

    def __init__(self, server: MysqlServer, seed: int, draws: int = 100) -> None:
        super().__init__(daemon=True)
        self._server, self._random, self._draws = server, Random(seed), draws
        self._statements = Statements(self._random)
        self.trace: list[str] = []
        self.ended = False
        self._server.script("DROP DATABASE IF EXISTS d", "CREATE DATABASE d")
        self._execute([self._statements.creation(table) for table in TABLES])

    def _execute(self, statements: list[str]) -> None:
        for statement in statements:
            self.trace.append(statement)
            self._server.script(statement)
            if self._random.random() < 0.3:
                time.sleep(self._random.random() * 0.3)

    @override
    def run(self) -> None:
        try:
            for _ in range(self._draws):
                self._execute(self._statements.draw())
        except pymysql.err.MySQLError as error:
            if error.args[0] not in UNFIT:
                raise
            self.trace.append("-- refused by the server")
        self.ended = True
