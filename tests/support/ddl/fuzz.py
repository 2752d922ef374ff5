"""The DDL fuzzer: a random script, written while it runs, judged at the end, and made small where it fails.

`fuzz(one, seed)` writes and runs one script; `shrink` drops lines of a failed one as long as it still fails. Both
tell a script that `support.ddl.replay` runs again.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

import psycopg

from support.ddl import more_kinds
from support.ddl.copies import Make
from support.ddl.fork_server import ForkServer
from support.ddl.in_process import Broken, InProcess, in_process
from support.ddl.kinds import KINDS, change, pick
from support.ddl.script import REPAIRS, Outcome, Writer, run
from support.ddl.seen_catalog import Catalog
from support.postgres import PostgresServer

assert more_kinds  # registers its kinds

SETUP = (
    "DO $$ BEGIN CREATE ROLE other; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    "CREATE SCHEMA s; CREATE SCHEMA o",
    "CREATE TYPE s.mood AS ENUM ('m1', 'm2', 'm3'); CREATE DOMAIN s.dom AS text; CREATE TYPE s.pair AS (n int, m text)",
    "CREATE TABLE s.notes (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at text)",
    "CREATE FUNCTION s.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO s.notes (at) VALUES ('x');"
    " RETURN NULL; END $$",
    "CREATE TABLE s.plain (id int PRIMARY KEY, a text, big text, n int, m s.mood)",
    "ALTER TABLE s.plain ALTER big SET STORAGE EXTERNAL",
    "CREATE TABLE s.typed (id int, m s.mood, a s.dom, g int GENERATED ALWAYS AS (id + 1) STORED, p s.pair,"
    " PRIMARY KEY (id, m))",
    "CREATE TABLE s.ranged (id int PRIMARY KEY, a text, big text) PARTITION BY RANGE (id)",
    "CREATE TABLE s.r0 PARTITION OF s.ranged FOR VALUES FROM (0) TO (100);"
    " CREATE TABLE s.r1 PARTITION OF s.ranged FOR VALUES FROM (100) TO (200);"
    " ALTER TABLE s.r0 ALTER big SET STORAGE EXTERNAL; ALTER TABLE s.r1 ALTER big SET STORAGE EXTERNAL",
    "CREATE TABLE s.multi (id int, l text, a text NOT NULL, PRIMARY KEY (id, l)) PARTITION BY LIST (l)",
    "CREATE TABLE s.m1 PARTITION OF s.multi FOR VALUES IN ('k1', 'k2', 'k3') PARTITION BY HASH (id);"
    " CREATE TABLE s.m2 PARTITION OF s.multi DEFAULT;"
    " CREATE TABLE s.h0 PARTITION OF s.m1 FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
    " CREATE TABLE s.h1 PARTITION OF s.m1 FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
    "CREATE TABLE s.parent (id int PRIMARY KEY, a text); CREATE TABLE s.child (id int PRIMARY KEY, b int)"
    " INHERITS (s.parent)",
    "INSERT INTO s.plain SELECT g, 'a' || g, repeat('b', 3000), g, 'm1' FROM generate_series(1, 15) g",
    "INSERT INTO s.typed (id, m, a, p) SELECT g, 'm2', 'a' || g, ROW(g, 'x')::s.pair FROM generate_series(1, 9) g",
    "INSERT INTO s.ranged SELECT g * 11, 'a' || g, repeat('b', 3000) FROM generate_series(1, 17) g",
    "INSERT INTO s.multi SELECT g, 'k' || g, 'a' FROM generate_series(1, 9) g",
    "INSERT INTO s.parent VALUES (1, 'a'), (2, 'b'); INSERT INTO s.child VALUES (3, 'c', 3)",
)  # fmt: skip
FIX = (
    "DO $$ DECLARE t text; BEGIN FOR t IN SELECT c.oid::regclass FROM pg_class c WHERE relkind IN ('r', 'p')"
    " AND relnamespace IN ('s'::regnamespace, 'o'::regnamespace) LOOP"
    " EXECUTE 'ALTER TABLE ' || t || ' REPLICA IDENTITY DEFAULT'; END LOOP; END $$",
    "DO $$ DECLARE p record; t text; BEGIN FOR p IN SELECT * FROM pg_publication LOOP"
    " EXECUTE format('ALTER PUBLICATION %I SET (publish = ''insert, update, delete, truncate'',"
    " publish_via_partition_root = true)', p.pubname);"
    " IF NOT p.puballtables THEN SELECT string_agg('ONLY ' || c.oid::regclass, ', ') INTO t FROM pg_class c"
    " WHERE relkind IN ('r', 'p') AND NOT relispartition AND relnamespace = 's'::regnamespace AND relname !~ '^x'"
    " AND EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary);"
    " EXECUTE format('ALTER PUBLICATION %I SET TABLE %s', p.pubname, t); END IF; END LOOP; END $$",
)  # fmt: skip
"""What the errors tell a person to do at the source: identities and publication as they must be."""


BURSTS = (
    ("!gate", "", "!open"),
    ("!gate", "!turn", "!open"),
    ("", "!look", ""),
    ("", "!turn", ""),
    ("", "", "!settle"),
    ("!stop", "", "!start"),
    ("!kill", "", "!start"),
    ("!ask s.*", "!turn", ""),
    ("!ask s.*", "", "!look"),
    ("!resync s.*", "!turn", ""),
    ("!resync s.p*", "", "!look"),
    ("!resync s.r*", "!kill", "!start"),
)
"""Before a run of operations, between any two of them, and after."""


@dataclass(frozen=True)
class CopiedTables:
    """What a round copies: tables that are renamed to `s.x…` are none of them."""

    include: Sequence[str] = ("s.*",)
    """Patterns."""
    made: Sequence[str] = ()
    """Statements that make more tables than `SETUP`."""
    options: Sequence[Mapping[str, object]] = ()

    @property
    def spec(self) -> dict[str, object]:
        return {"tables": {"include": list(self.include), "exclude": ["s.x*"]}, "options": list(self.options)}


ALL = CopiedTables()


@dataclass
class Round:
    seed: int
    script: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    outcome: Outcome = field(default_factory=Outcome)


def publication(rnd: Random) -> tuple[dict[str, object], list[str]]:
    """Ours, a given one with the tables, or one for all tables."""
    how = rnd.random()
    if how < 0.6:
        return {}, []
    if how < 0.9:
        return {"source": {"postgresql": {"publication": "given"}}}, [
            "CREATE PUBLICATION given FOR TABLE s.plain, s.typed, s.ranged, s.multi, s.notes, ONLY s.parent, s.child"
            " WITH (publish_via_partition_root = true)"
        ]
    return {"source": {"postgresql": {"publication": "given"}}}, [
        "CREATE PUBLICATION given FOR ALL TABLES WITH (publish_via_partition_root = true)"
    ]


def policy(seed: int) -> dict[str, object]:
    """What happens to a table whose form changes: each in turn."""
    return {"onSchemaChange": ("EvolveAdditive", "Evolve", "Stop")[seed % 3]}


def fuzz(one: InProcess, seed: int, operations: int, tables: CopiedTables = ALL) -> Round:
    """Write and run one script of this seed."""
    rnd = Random(seed)
    spec, more = publication(rnd)
    one.spec |= tables.spec | policy(seed) | spec
    done = Round(seed)
    writer = Writer(one, done.outcome, strict=False)
    try:
        for line in [*SETUP, *tables.made, *more, f"!repair {rnd.choice(sorted(REPAIRS))}", "!start", "!settle"]:
            writer.line(line)
            done.script.append(line)
        one.session().execute("SET lock_timeout = '1s'")
        for line in lines(one, rnd, operations, done):
            done.script.append(line)
            writer.line(line)
        done.outcome = writer.end(FIX)
    except Broken as broken:
        done.outcome.wrong = (f"broken: {broken}",)
    return done


class Clients(Protocol):
    """Of one database: each name is a session of its own."""

    def session(self, name: str = "") -> psycopg.Connection: ...


def lines(source: Clients, rnd: Random, operations: int, done: Round) -> Iterator[str]:
    """The random part. DDL comes in bursts: between two looks, over several, or while everything is stopped."""
    names = sorted(KINDS)
    left = operations
    while left > 0:
        burst = min(left, rnd.choice((1, 2, 3, 5)))
        left -= burst
        before, between, after = rnd.choice(BURSTS)
        if left < operations / 2 and before.startswith(("!ask", "!resync")):
            before = ""  # it would read whatever was missed until then
        yield from filter(None, [before])
        for _ in range(burst):
            yield from operation(Catalog.of(source.session("catalog")), rnd, names, done.kinds)
            yield from filter(None, [between])
        yield from filter(None, [after])


def operation(catalog: Catalog, rnd: Random, names: list[str], kinds: list[str]) -> Iterator[str]:
    """DML, and DDL of one kind, which is added to `kinds`."""
    for _ in range(rnd.choice((0, 1, 2))):
        table = pick(rnd, [*catalog.roots, *catalog.leaves])
        if table is not None and table.columns:
            yield change(table, rnd)
    for _ in range(20):
        name = rnd.choice(names)
        if name.startswith("publication") and rnd.random() < 0.6:
            continue  # each of them stops or repairs much at once
        made = KINDS[name](catalog, rnd)
        if made is not None:
            kinds.append(name)
            yield from made
            return


def shrink(script: list[str], fails: Callable[[list[str]], bool], seconds: float) -> list[str]:
    """Delta debugging: drop ever smaller runs of lines while the rest fails."""
    end, size = time.monotonic() + seconds, max(1, len(script) // 2)
    while time.monotonic() < end:
        at, smaller = 0, False
        while at < len(script) and time.monotonic() < end:
            rest = script[:at] + script[at + size :]
            if fails(rest):
                script, smaller = rest, True
            else:
                at += size
        if size == 1 and not smaller:
            break
        size = size if smaller and size == 1 else max(1, size // 2)
    return script


def _kind(outcome: Outcome) -> str:
    """What is to stay the same while a script shrinks: a broken process is not a wrong row."""
    return (
        outcome.wrong[0].split("\n")[0][:40]
        if outcome.wrong and outcome.wrong[0].startswith("broken")
        else str(bool(outcome.wrong))
    )


class Rounds:
    """Plays rounds on one server, and tells a failed one as a script to replay."""

    def __init__(
        self,
        server: PostgresServer,
        fork_server: ForkServer,
        folder: Path,
        shrink_seconds: float = 60.0,
        *,
        into: Make | None = None,
        tables: CopiedTables = ALL,
    ) -> None:
        """`into`: makes the database of the targets; None: they are in memory."""
        self._server = server
        self._fork_server = fork_server
        self._folder = folder
        self._shrink_seconds = shrink_seconds
        self._into = into
        self._tables = tables
        self._databases = 0
        self.kinds: set[str] = set()
        self.played = 0
        self.stopped = 0
        self.refused = 0

    def play(self, seed: int, operations: int) -> str | None:
        """What is wrong, with the shortest script that shows it."""
        with self._quick() as one:
            done = fuzz(one, seed, operations, self._tables)
        self.kinds |= set(done.kinds)
        self.played += 1
        self.stopped += bool(done.outcome.stopped)
        self.refused += len(done.outcome.refused)
        if not done.outcome.wrong:
            return None
        spec = self._tables.spec | policy(seed) | publication(Random(seed))[0]
        kind = _kind(done.outcome)
        small = shrink(done.script, lambda script: _kind(self._again(script, spec)) == kind, self._shrink_seconds)
        told = self._again(small, spec)
        what = [f"-- seed {seed}: {line}" for line in (told.wrong or done.outcome.wrong)]
        return "\n".join([*what, f"!spec {json.dumps(spec)}", *small])

    def _again(self, script: list[str], spec: dict[str, object]) -> Outcome:
        with self._quick() as one:
            one.spec |= spec
            return run(one, script, strict=False, fix=FIX)

    def _quick(self) -> AbstractContextManager[InProcess]:
        self._databases += 1
        name = f"ddl{self._databases}"
        return in_process(self._server, self._fork_server, self._folder, name, into=self._into)
