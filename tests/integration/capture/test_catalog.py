"""Changes of the catalog that no row event tells of, on real servers: while capture looks on, and while it is stopped.

One server and one capture for all scenarios of a run; each has its own table. While capture is stopped no look can fall
between two statements, so what is taken away and comes back is seen by nothing but the fingerprint.
"""

from dataclasses import dataclass

import pytest

from support.capture import CaptureRun, started
from support.waiting import until

PARTITIONED = (
    "CREATE TABLE {t} (id int PRIMARY KEY, a int NOT NULL, v text) PARTITION BY RANGE (id);"
    "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM (0) TO (10);"
    "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES FROM (10) TO (20);"
    "CREATE UNIQUE INDEX {t}_a ON {t}_1 (a);"
    "INSERT INTO {t} VALUES (1, 1, 'a'), (11, 11, 'b')"
)
PLAIN = "CREATE TABLE {t} (id int PRIMARY KEY, v text); INSERT INTO {t} VALUES (1, 'a')"
ENUM = (
    "CREATE TYPE {t}_e AS ENUM ('open', 'shut'); CREATE DOMAIN {t}_d AS {t}_e;"
    "CREATE TABLE {t} (id int PRIMARY KEY, v {t}_d[]); INSERT INTO {t} VALUES (1, '{{open}}')"
)
ENUM_KEY = (
    "CREATE TYPE {t}_e AS ENUM ('open', 'shut'); CREATE TABLE {t} (id {t}_e PRIMARY KEY);"
    "INSERT INTO {t} VALUES ('open')"
)
COMPOSITE = (
    "CREATE TYPE {t}_c AS (x int, y int); CREATE TABLE {t} (id int PRIMARY KEY, v {t}_c);"
    "INSERT INTO {t} VALUES (1, (1, 2))"
)
REREAD, NOTHING = "read again", "nothing"


@dataclass(frozen=True)
class Scenario:
    """Statements in transactions of their own, on a table that is captured; {p} is the publication."""

    made: str
    changed: tuple[str, ...]
    outcome: str = REREAD


ONLINE = {
    "detached_written_attached": Scenario(
        PARTITIONED,
        (
            "ALTER TABLE {t} DETACH PARTITION {t}_1; UPDATE {t}_1 SET v = 'silent';"
            " ALTER TABLE {t} ATTACH PARTITION {t}_1 FOR VALUES FROM (0) TO (10)",
        ),
    ),
    "truncated_and_attached": Scenario(
        PARTITIONED + ";CREATE TABLE {t}_x (LIKE {t} INCLUDING ALL); INSERT INTO {t}_x VALUES (21, 21, 'x')",
        ("TRUNCATE {t}; ALTER TABLE {t} ATTACH PARTITION {t}_x FOR VALUES FROM (20) TO (30)",),
    ),
    "truncated_and_a_leaf_truncated": Scenario(
        PARTITIONED, ("TRUNCATE {t}", "INSERT INTO {t} VALUES (1, 1, 'n'), (11, 11, 'n')", "TRUNCATE {t}_1")
    ),
    "truncated": Scenario(PARTITIONED, ("TRUNCATE {t}", "INSERT INTO {t} VALUES (1, 1, 'n')"), NOTHING),
    "truncated_and_rewritten": Scenario(
        PLAIN,
        (
            "TRUNCATE {t}; INSERT INTO {t} VALUES (1, 'a'), (2, 'b');"
            " ALTER TABLE {t} ALTER v TYPE text USING v || ' silent'",
        ),
    ),
    "default_added_and_dropped": Scenario(
        PARTITIONED, ("ALTER TABLE {t} ADD c int DEFAULT 7; ALTER TABLE {t} ALTER c DROP DEFAULT",)
    ),
    "column_added": Scenario(PLAIN, ("ALTER TABLE {t} ADD c int; GRANT SELECT ON {t} TO PUBLIC",), NOTHING),
    "generated_column_becomes_plain": Scenario(
        "CREATE TABLE {t} (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED); INSERT INTO {t} VALUES (1)",
        ("ALTER TABLE {t} ALTER g DROP EXPRESSION",),
    ),
    "enum_label_renamed": Scenario(ENUM, ("ALTER TYPE {t}_e RENAME VALUE 'open' TO 'ajar'",)),
    "enum_label_renamed_and_back": Scenario(
        ENUM,
        (
            "ALTER TYPE {t}_e RENAME VALUE 'open' TO 'ajar'",
            "INSERT INTO {t} VALUES (2, '{{ajar}}')",
            "ALTER TYPE {t}_e RENAME VALUE 'ajar' TO 'open'",
        ),
    ),
    "enum_label_of_a_key_renamed": Scenario(ENUM_KEY, ("ALTER TYPE {t}_e RENAME VALUE 'open' TO 'ajar'",)),
    "enum_label_added": Scenario(ENUM, ("ALTER TYPE {t}_e ADD VALUE 'ajar' BEFORE 'shut'",), NOTHING),
    "enum_column_added_and_a_label_renamed": Scenario(
        PLAIN,
        (
            "CREATE TYPE {t}_e AS ENUM ('open', 'shut'); ALTER TABLE {t} ADD c {t}_e[];"
            " INSERT INTO {t} VALUES (2, 'b', '{{open}}')",
            "ALTER TYPE {t}_e RENAME VALUE 'open' TO 'ajar'",
        ),
    ),
    "composite_column_added_and_altered": Scenario(
        PLAIN,
        (
            "CREATE TYPE {t}_c AS (x int, y int); ALTER TABLE {t} ADD c {t}_c; INSERT INTO {t} VALUES (2, 'b', (1, 2))",
            "ALTER TYPE {t}_c DROP ATTRIBUTE x",
        ),
    ),
    "column_of_a_new_type": Scenario(
        PLAIN,
        (
            "CREATE TYPE {t}_e AS ENUM ('open'); CREATE TYPE {t}_c AS (x {t}_e, y int); ALTER TABLE {t} ADD c {t}_c;"
            " INSERT INTO {t} VALUES (2, 'b', ('open', 2))",
        ),
        NOTHING,
    ),
    "column_of_a_type_altered_before": Scenario(
        PLAIN
        + "; CREATE TYPE {t}_e AS ENUM ('open'); ALTER TYPE {t}_e ADD VALUE 'shut';"
        + "ALTER TYPE {t}_e RENAME VALUE 'open' TO 'ajar'",
        ("ALTER TABLE {t} ADD c {t}_e; INSERT INTO {t} VALUES (2, 'b', 'ajar')",),
        NOTHING,
    ),
    "attribute_added": Scenario(COMPOSITE, ("ALTER TYPE {t}_c ADD ATTRIBUTE z int",)),
    "left_and_back": Scenario(
        PLAIN,
        (
            "ALTER PUBLICATION {p} DROP TABLE {t}",
            "UPDATE {t} SET v = 'silent'",
            "ALTER PUBLICATION {p} ADD TABLE {t}",
        ),
        "ReadRefused or read again",
    ),
    "left_and_not_back": Scenario(PLAIN, ("ALTER PUBLICATION {p} DROP TABLE {t}",), "ReadRefused"),
    "identity_of_a_leaf": Scenario(PARTITIONED, ("ALTER TABLE {t}_1 REPLICA IDENTITY USING INDEX {t}_a",), "NoKey"),
    "identity_of_a_leaf_full": Scenario(PARTITIONED, ("ALTER TABLE {t}_1 REPLICA IDENTITY FULL",), NOTHING),
    "other_things": Scenario(
        PLAIN,
        (
            "GRANT SELECT ON {t} TO PUBLIC; ALTER TABLE {t} SET (fillfactor = 90); CREATE INDEX ON {t} (v)",
            "ALTER TABLE {t} ALTER v SET DEFAULT 'd'; ALTER TABLE {t} ADD CHECK (id > 0); ANALYZE {t}",
            "CREATE TABLE {t}_child () INHERITS ({t}); ALTER TABLE {t} REPLICA IDENTITY FULL",
        ),
        NOTHING,
    ),
}


@pytest.mark.parametrize(
    "stopped",
    [
        pytest.param(False, marks=pytest.mark.postgres(18), id="looking on"),
        pytest.param(True, marks=pytest.mark.postgres(18), id="stopped meanwhile"),
        pytest.param(True, marks=pytest.mark.postgres(14), id="stopped meanwhile, 14"),
    ],
)
def test_what_no_row_event_tells_is_read_again_or_stops_by_name(capture: CaptureRun, stopped: bool) -> None:
    server = capture.server
    names = {f"s_{i}": (name, scenario) for i, (name, scenario) in enumerate(ONLINE.items())}
    capture.include = tuple(f"public.{t}" for t in names)
    for t, (_, scenario) in names.items():
        server.execute(scenario.made.format(t=t))
    capture.start()
    until(lambda: len(capture.events("table-fingerprint")) == len(names), "all tables added")
    (publication,) = server.execute("SELECT pubname::text FROM pg_publication")[0]
    capture.catch_up()
    if stopped:
        assert capture.stop() == 0
    for t, (_, scenario) in names.items():
        for statement in scenario.changed:
            server.execute(statement.format(t=t, p=publication))
    if stopped:
        capture.start()
    ids = {e["table"]["table_id"]: names[e["table"]["table_name"]] for e in capture.events("table-added")}

    def outcomes() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {name: set() for name, _ in names.values()}
        for event in capture.events("schema-changed"):
            if event["reread"]:
                name = ids[event["table"]["table_id"]][0]
                found[name].add(REREAD)
                # An ALTER with a new column keeps writers and chunks apart itself.
                assert event["edge"] is not None or name == "default_added_and_dropped"
        for event in capture.events("table-stopped"):
            found[ids[event["table_id"]][0]].add(event["error"])
        return found

    def as_expected(name: str, scenario: Scenario) -> bool:
        return outcomes()[name] == ({scenario.outcome} - {NOTHING}) or bool(
            len(outcomes()[name]) == 1 and outcomes()[name] & set(scenario.outcome.split(" or "))
        )

    try:
        until(lambda: all(as_expected(*pair) for pair in names.values()), "each scenario's outcome")
    except AssertionError:
        wrong = {n: (outcomes()[n], s.outcome) for n, s in names.values() if not as_expected(n, s)}
        raise AssertionError(f"{wrong}\n{capture.tail()}") from None
    before = len(capture.records())
    capture.stop()
    capture.start()
    capture.catch_up()
    later = [e for r in capture.records()[before:] for e in r["events"] if e["kind"] in ("schema-changed",)]
    assert later == [], "a difference is acted on once"


def test_a_look_waits_for_nobody_who_alters_a_partition_tree(capture: CaptureRun) -> None:
    """Capture goes on beside an open DDL; and two trees of it are not met in a deadlock."""
    tables = "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE r (id int PRIMARY KEY) PARTITION BY RANGE (id);"
    server = started(capture, f"{tables} CREATE TABLE r0 PARTITION OF r FOR VALUES FROM (0) TO (9)")
    with server.connect() as connection:
        connection.autocommit = False
        connection.execute("LOCK TABLE r, r0 IN ACCESS EXCLUSIVE MODE")
        capture.look()
        server.execute("INSERT INTO t VALUES (1)")
        until(lambda: capture.rows("public.t"), "rows come beside the lock")


def test_a_former_partition_that_is_there_again_between_two_looks_is_read_again(capture: CaptureRun) -> None:
    """Known in this connection, seen to be detached; what it is filled with leaves with it."""
    tables = "CREATE TABLE r (id int PRIMARY KEY) PARTITION BY RANGE (id);"
    server = started(capture, f"{tables} CREATE TABLE r0 PARTITION OF r FOR VALUES FROM (0) TO (9)")

    def rereads() -> int:
        return sum(e["reread"] for e in capture.events("schema-changed") if e["table"]["table_name"] == "r")

    server.execute("INSERT INTO r VALUES (1)")
    until(lambda: capture.rows("public.r"), "the partition is named")
    server.execute("ALTER TABLE r DETACH PARTITION r0")
    until(lambda: rereads() == 1, "the detached partition is seen")
    attach = "ALTER TABLE r ATTACH PARTITION r0 FOR VALUES FROM (0) TO (9)"
    server.execute(f"BEGIN; {attach}; INSERT INTO r VALUES (2); ALTER TABLE r DETACH PARTITION r0; COMMIT")
    until(lambda: rereads() == 2, f"what came and went is read again\n{capture.tail()}")
