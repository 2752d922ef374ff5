"""Random histories of columns that are dropped, renamed, exchanged, added and of another type, under
`onSchemaChange: Evolve`.

`play` writes and runs one script. A `patient` one lets the catalog be looked at after every ALTER, and no transaction
alters twice what rows could tell apart: then everything is followed in place, and a row that is read again is a fault.
An impatient one has everything at once, in the midst of snapshots, kills and moved rows: it ends as the source is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from support.ddl.in_process import InProcess
from support.ddl.script import Outcome, Writer
from tailrace.changelog.state import LogState

SETUP = (
    "CREATE SCHEMA s",
    "CREATE TABLE s.t (id int PRIMARY KEY, a text, b text, c text, d text)",
    "ALTER TABLE s.t ALTER a SET STORAGE EXTERNAL, ALTER b SET STORAGE EXTERNAL",
    "INSERT INTO s.t SELECT g, repeat('a' || g, 900), repeat('b' || g, 900), 'c' || g, 'd' || g"
    " FROM generate_series(1, 30) g",
)
NAMES = "abcdefg"
BURSTS = (
    ("!gate", "", "!open"),
    ("!gate", "!turn", "!open"),
    ("", "!look", ""),
    ("", "!turn", ""),
    ("", "", "!settle"),
    ("!kill", "", "!start"),
    ("!kill", "!start", "!turn"),
    ("!ask s.*", "!turn", ""),
    ("!ask s.*", "", "!look"),
)
"""Around and between a few operations."""


@dataclass
class Table:
    """The columns as the source has them, but the key."""

    rnd: Random
    columns: list[str] = field(default_factory=lambda: list("abcd"))
    bytes: set[str] = field(default_factory=set)
    """Those of type bytea; the others are text."""
    key: int = 1000

    def rows(self, moves: bool) -> Iterator[str]:
        rnd, names = self.rnd, self.columns
        for _ in range(rnd.choice((1, 1, 2, 3))):
            self.key += 1
            low = rnd.randint(1, 30)
            if names:
                values = ", ".join(self.value(n, f"repeat('{n}{self.key}', {rnd.choice((1, 900))})") for n in names)
                yield f"INSERT INTO s.t (id, {', '.join(names)}) VALUES ({self.key}, {values})"
                name = rnd.choice(names)
                value = self.value(name, f"'{name}' || id || '/{self.key}'")
                yield f"UPDATE s.t SET {name} = {value} WHERE id BETWEEN {low} AND {low + 3}"
            yield f"DELETE FROM s.t WHERE id = {rnd.randint(1, 30)}"
            if moves:
                yield f"UPDATE s.t SET id = id + {self.key * 1000} WHERE id = {rnd.randint(1, 30)}"

    def value(self, name: str, text: str) -> str:
        return f"convert_to({text}, 'UTF8')" if name in self.bytes else text

    def alter(self, types: bool = False) -> str:
        """One ALTER, or an exchange of names."""
        rnd, names = self.rnd, self.columns
        free = [name for name in NAMES if name not in names]
        kinds = ("drop", "drop", "rename", "rename", "swap", "add", "add", *(("type", "type") if types else ()))
        kind = rnd.choice(kinds) if free else "drop"
        if kind == "type" and names:
            name = rnd.choice(names)
            self.bytes ^= {name}
            to, made = ("bytea", "convert_to") if name in self.bytes else ("text", "convert_from")
            return f"ALTER TABLE s.t ALTER {name} TYPE {to} USING {made}({name}, 'UTF8')"
        if kind == "drop" and names:
            names.remove(name := rnd.choice(names))
            self.bytes -= {name}
            return f"ALTER TABLE s.t DROP COLUMN {name}"
        if kind == "rename" and names:
            name, to = rnd.choice(names), rnd.choice(free)
            names[names.index(name)] = to
            self.bytes = {to if n == name else n for n in self.bytes}
            return f"ALTER TABLE s.t RENAME {name} TO {to}"
        if kind == "swap" and len(names) > 1:
            one, other = rnd.sample(names, 2)
            places = names.index(one), names.index(other)
            names[places[0]], names[places[1]] = other, one
            self.bytes = {{one: other, other: one}.get(n, n) for n in self.bytes}
            return (
                f"ALTER TABLE s.t RENAME {one} TO x; ALTER TABLE s.t RENAME {other} TO {one};"
                f" ALTER TABLE s.t RENAME x TO {other}"
            )
        names.append(name := rnd.choice(free))
        return f"ALTER TABLE s.t ADD COLUMN {name} text"


def patient(rnd: Random, operations: int) -> Iterator[str]:
    table = Table(rnd)
    for _ in range(operations):
        yield from table.rows(moves=False)
        closed = rnd.random() < 0.5
        if closed:
            yield "!gate"  # the rows are the first to show the change
        inside = [*table.rows(False)] if rnd.random() < 0.5 else []
        altered = table.alter()
        after = [*table.rows(False)]
        if rnd.random() < 0.5:
            yield "; ".join([*inside, altered, *after])
        else:
            yield from [*inside, altered, *after]
        if closed:
            yield "!turn"
            yield "!open"
        yield "!settle"
        if rnd.random() < 0.2:
            yield "!kill"
            yield from table.rows(False)
            yield "!start"


def impatient(rnd: Random, operations: int) -> Iterator[str]:
    table, left = Table(rnd), operations
    while left > 0:
        before, between, after = rnd.choice(BURSTS)
        yield from filter(None, [before])
        for _ in range(min(left, rnd.choice((1, 2, 3, 5)))):
            left -= 1
            rows = [*table.rows(moves=True)]
            altered = [table.alter(types=True) for _ in range(rnd.choice((1, 1, 2)))]
            later = [*table.rows(moves=True)]
            if rnd.random() < 0.4:
                yield "; ".join([*rows, *altered, *later])
            else:
                yield from [*rows, *altered, *later]
            yield from filter(None, [between])
        yield from filter(None, [after])


def reads(state: LogState) -> tuple[set[int], set[str]]:
    """What stays as it is while nothing starts over and no table is read again."""
    whole = {i for i, s in state.snapshots.items() if s.plan.where is None and s.plan.keys is None}
    return {table.generation for table in state.tables.values() if not table.removed}, whole


def play(one: InProcess, seed: int, operations: int, is_patient: bool) -> tuple[Outcome, list[str]]:
    """The outcome, and the script."""
    rnd, script = Random(seed), list[str]()
    one.spec |= {"onSchemaChange": "Evolve"}
    writer = Writer(one, Outcome())

    def line(text: str) -> None:
        script.append(text)
        writer.line(text)

    for text in [*SETUP, "!start", *(["!settle"] if is_patient or rnd.random() < 0.5 else [])]:
        line(text)
    before = reads(one.turn())
    for text in (patient if is_patient else impatient)(rnd, operations):
        line(text)
    outcome = writer.end()
    assert one.driver is not None
    after = reads(one.driver.journal.state)
    if is_patient and after != before:
        outcome.wrong += (f"rows were read again: {before} became {after}",)
    return outcome, script
