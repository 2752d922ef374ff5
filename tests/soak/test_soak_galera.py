"""Members of a Galera cluster as the target: one after the other, and both at once.

They have no locks by name, a statement that defines a table ends what others do with it, and of two transactions that
changed a row at two members one fails at its COMMIT. TAILRACE_SOAK_GALERA (200): batches of each test.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random

import pytest

from support.conforming import LogOf, MysqlDatabase, Table, mysql_rows
from support.database_copies import DEFERRED, SHOP, STEPS, TABLES, begin, of_mysql, of_postgres, settle
from support.galera import cluster
from support.mysql import MysqlServer
from support.pipeline import Pipeline
from support.postgres import PostgresServer
from support.random_log import KeyOf, first_schema
from support.relay import Relay
from support.waiting import until
from tailrace.batch.rule import ApplyRule, TargetState
from tailrace.batch.slice import cut
from tailrace.changelog.records.terms import RecordNumber, TableSchema
from tailrace.errors import Retry
from tailrace.targets.api import TableFailed
from tailrace.targets.sql.state import SCHEMA as STATE

ROUNDS = int(os.environ.get("TAILRACE_SOAK_GALERA", "200"))
"""Batches."""
Members = tuple[MysqlServer, MysqlServer]


@pytest.fixture(scope="module")
def members() -> Iterator[Members]:
    with cluster() as both:
        yield both


@pytest.fixture(autouse=True)
def empty(members: Members) -> None:
    for name in ("public", "shop", STATE):
        members[0].execute(f"DROP DATABASE IF EXISTS {name}")


def sorted_rows(server: MysqlServer, schema: TableSchema) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in mysql_rows(server, schema))


def hold(members: Members, schema: TableSchema, wanted: list[str]) -> None:
    """Each member has these rows, soon."""
    for server in members:
        until(partial(has, server, schema, wanted), "the rows are there")


def has(server: MysqlServer, schema: TableSchema, wanted: list[str]) -> bool:
    return sorted_rows(server, schema) == wanted


def outcome(table: Table, log: LogOf) -> Exception | None:
    """What came of a batch."""
    part = cut(log.state, table.schema.table_id, table.applied, log.record)
    assert part is not None
    try:
        table.apply(part)
    except (Retry, TableFailed) as error:
        return error
    return None


@pytest.mark.timeout(900)
def test_drivers_at_one_member_after_the_other_bring_what_the_rule_says(members: Members, tmp_path: Path) -> None:
    """Each begins right after the commit of the one before, at another member."""
    for seed in range(ROUNDS // 20):
        folder = tmp_path / str(seed)
        (folder / "log").mkdir(parents=True)
        subjects = [MysqlDatabase(folder, server) for server in members]
        table = Table(subjects[0], first_schema(composite=seed % 2 == 1))
        keys: list[KeyOf] = [("r" * (n % 3), n) if seed % 2 else (n,) for n in range(6)]
        log = LogOf(Random(seed), folder, table.schema, keys, table)
        target: TargetState[KeyOf] = TargetState()
        for step in range(20):
            log.grow()
            part = table.follow(log)
            columns = len(log.schema.columns)
            rows = {key: (*row, *[None] * (columns - len(row))) for key, row in target.rows.items()}
            before = TargetState(rows, target.applied_seq, target.applied_record, target.holes)
            target = ApplyRule[KeyOf](columns).apply(before, log.batch(bool(part and part.repair)))
            names = [column.name for column in log.schema.columns]
            wanted = sorted(
                repr(sorted(zip(names, row, strict=True), key=lambda pair: pair[0])) for row in target.rows.values()
            )
            schema = log.table.schemas[0].table
            hold(members, schema, wanted)
            applied = table.applied
            table.subject = subjects[(step + 1) % 2]
            table.restart()
            assert table.applied == applied
        members[0].script("DROP DATABASE public", f"DROP DATABASE {STATE}")


@pytest.mark.timeout(900)
def test_of_two_drivers_at_two_members_one_brings_a_batch(members: Members, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    tables = [Table(MysqlDatabase(tmp_path, server), first_schema(composite=False)) for server in members]
    log = LogOf(Random(3), tmp_path, tables[0].schema, [(n,) for n in range(8)], tables[0])
    lost = 0
    for _ in range(ROUNDS):
        log.grow_by_changes(5)
        with ThreadPoolExecutor(2) as pool:
            ends = list(pool.map(outcome, tables, [log, log]))
        lost += sum(end is not None for end in ends)
        assert ends.count(None) == 1, ends
        for table in tables:
            table.open()
            assert table.applied.applied_record == RecordNumber(log.record)
    target = ApplyRule[KeyOf](len(log.schema.columns)).apply(TargetState(), log.batch(False))
    names = [column.name for column in log.schema.columns]
    wanted = sorted(repr(sorted(zip(names, row, strict=True))) for row in target.rows.values())
    assert [sorted_rows(server, log.schema) for server in members] == [wanted, wanted]
    assert lost == ROUNDS


def same(postgres: PostgresServer, server: MysqlServer) -> None:
    names = [f"shop.{table}" for table in TABLES]
    until(lambda: all(of_mysql(server, name) == of_postgres(postgres, name) for name in names), "the rows are there")


def told(copy: Pipeline) -> list[str]:
    """Why tables fail."""
    return [str(table.fault.message) for table in copy.driver.control.status().tables if table.fault is not None]


@pytest.mark.timeout(900)
def test_copies_follow_from_member_to_member(postgres: PostgresServer, members: Members, tmp_path: Path) -> None:
    """Through schema changes; at last one of the two is gone."""
    postgres.execute(SHOP)
    postgres.execute(DEFERRED)
    with Relay(members[0].port) as relay:
        copy = begin(postgres.source(), members[0], tmp_path, host=relay.host, port=relay.port)
        for number, step in enumerate(STEPS):
            copy.start()
            settle(copy)
            postgres.execute(step)
            if number % 2:
                settle(copy)
            copy.stop()
            relay.server_port = members[(number + 1) % 2].port
        with copy.running():
            settle(copy)
            for server in members:
                same(postgres, server)
            relay.server_port = members[1].port
            members[0].kill()
            postgres.execute("UPDATE shop.item SET price = price + 1 WHERE id < 9")
            status = [("wsrep_cluster_status", "non-Primary")]
            until(lambda: members[1].execute("SHOW STATUS LIKE 'wsrep_cluster_status'") == status, "it is alone")
            copy.until(lambda _: any("takes no statements" in said for said in told(copy)), work=True)
            members[1].execute("SET GLOBAL wsrep_provider_options = 'pc.bootstrap=true'")
            with copy.source.session() as session:
                end = session.log_end()
            copy.settle(end)
            copy.until(lambda _: not copy.driver.faults(), work=True)
            same(postgres, members[1])
