"""The chunk rule on a real server with stalled commits (A1, A20): no wrong row, where the window rule gives some."""

import threading
import time
from random import Random

import psycopg
import pytest

from support.postgres import PostgresServer
from support.proof.recorded import RecordedChunk, Recording, Values, position, read_changes
from support.proof.writers import StalledCommits
from support.transactions import known
from tailrace.batch.rule import ApplyRule, Batch, Change, Chunk, TargetState
from tailrace.changelog.records.terms import Seq
from tailrace.snapshot.replay import replay_point
from tailrace.sources.postgresql.visibility import PgSnapshot, parse_snapshot

KEYS, ROUNDS, CHUNK_ROWS = 60, 6, 7


class KeyedWriters:
    """Six threads that update, delete, move and insert keys of table `t`."""

    def __init__(self, server: PostgresServer, seed: int) -> None:
        self._server = server
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(seed * 100 + i,), daemon=True) for i in range(6)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    def _run(self, seed: int) -> None:
        random = Random(seed)
        with self._server.connect() as connection:
            while not self._end.is_set():
                try:
                    with connection.transaction():
                        self._change(connection, random)
                except (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
                    continue
                time.sleep(random.random() * 0.02)

    def _change(self, connection: psycopg.Connection, random: Random) -> None:
        key, kind = random.randint(1, KEYS), random.random()
        big = f"{random.random()}".ljust(4000, "z")
        if kind < 0.5:
            connection.execute("UPDATE t SET v = v + 1 WHERE id = %s", (key,))
        elif kind < 0.6:
            connection.execute("UPDATE t SET v = v + 1, big = %s WHERE id = %s", (big, key))
        elif kind < 0.8:
            connection.execute("DELETE FROM t WHERE id = %s", (key,))
        elif kind < 0.9:
            connection.execute("UPDATE t SET id = id + %s WHERE id = %s", (KEYS // 2, key))
        else:
            connection.execute("INSERT INTO t VALUES (%s, 0, %s) ON CONFLICT DO NOTHING", (key, big))


def record(server: PostgresServer, seed: int) -> Recording:
    """One pass over the table in chunks of seven rows while writers and the stalling standby are at work."""
    with server.connect() as plain:
        plain.execute("DROP TABLE IF EXISTS t; DROP PUBLICATION IF EXISTS p")
        plain.execute(
            "CREATE TABLE t (id int PRIMARY KEY, v int, big text); ALTER TABLE t ALTER big SET STORAGE EXTERNAL"
        )
        plain.execute(f"INSERT INTO t SELECT g, 0, repeat('x', 4000) || g FROM generate_series(1, {KEYS}) g".encode())
        plain.execute("CREATE PUBLICATION p FOR TABLE t")
        plain.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
        writers, stalls = KeyedWriters(server, seed), StalledCommits(server.connect, seed)
        stalls.start()
        time.sleep(0.2)
        chunks = read_chunks(server, plain)
        writers.stop()
        stalls.stop()
        final = {row[0]: row for row in plain.execute("SELECT id::text, v::text, big FROM t")}
        changes = read_changes(plain, "s", "p")
        plain.execute("SELECT pg_drop_replication_slot('s')")
    return Recording(chunks, changes, final)


def read_chunks(server: PostgresServer, plain: psycopg.Connection) -> list[RecordedChunk]:
    chunks: list[RecordedChunk] = []
    last: int | None = 0
    with server.connect(autocommit=False) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        while last is not None:
            low = position(plain)
            reader.execute("LOCK TABLE t IN ACCESS SHARE MODE")
            taken = reader.execute("SELECT pg_current_snapshot()::text").fetchone()
            query = "SELECT id::text, v::text, big FROM t WHERE id > %s ORDER BY t.id LIMIT %s"
            rows: list[Values] = reader.execute(query, (last, CHUNK_ROWS)).fetchall()
            reader.commit()
            assert taken is not None
            chunks.append(RecordedChunk(low, position(plain), taken[0], {str(row[0]): row for row in rows}))
            last = int(str(rows[-1][0])) if len(rows) == CHUNK_ROWS else None
            time.sleep(0.02)
    return chunks


def by_the_rule(recording: Recording, xip_only: bool = False) -> dict[str, Values]:
    """All chunks and changes as one batch under the rule; holes are read again at the end, as the planner does.
    `xip_only` is the mutant of A20: xids from xmax on are taken as seen."""
    firsts: dict[int, int] = {}
    for row in recording.changes:
        firsts.setdefault(row.xid, row.change.seq)
    logged = known(firsts, firsts.values())
    end = len(recording.changes) + 1
    chunks = []
    for chunk in recording.chunks:
        snapshot = parse_snapshot(chunk.snapshot)
        if xip_only:
            snapshot = PgSnapshot(snapshot.xmin, 1 << 60, snapshot.xip)
        chunks.append(Chunk(1, replay_point(snapshot, logged, Seq(end)), chunk.rows))
    rule = ApplyRule[str](3)
    changes = [row.change for row in recording.changes]
    once = rule.apply(TargetState(), Batch(1, end - 1, changes, chunks))
    again = {key: recording.final[key] for key in once.holes if key in recording.final}
    return dict(rule.apply(once, Batch(2, end - 1, changes, [Chunk(2, end, again, once.holes)])).rows)


def by_the_window(recording: Recording) -> dict[str, Values]:
    """The classical rule: chunk rows whose key changed between low and high are dropped, the rest placed at high."""
    items: list[tuple[tuple[int, int], Change[str]]] = [
        ((r.position, r.change.seq), r.change) for r in recording.changes
    ]
    for chunk in recording.chunks:
        touched = {r.change.key for r in recording.changes if chunk.low <= r.position < chunk.high}
        items += [((chunk.high, -1), Change(0, "I", k, v)) for k, v in chunk.rows.items() if k not in touched]
    rule = ApplyRule[str](3)
    items.sort(key=lambda item: item[0])
    numbered = [Change(n, c.op, c.key, c.values) for n, (_, c) in enumerate(items, start=1)]
    return dict(rule.apply(TargetState(), Batch(1, len(numbered), numbered)).rows)


def wrong(rows: dict[str, Values], final: dict[str, Values]) -> int:
    return sum(rows.get(key) != final.get(key) for key in rows.keys() | final.keys())


@pytest.mark.timeout(240)
def test_stalled_commits_leave_no_wrong_row_and_the_window_rule_some(postgres: PostgresServer) -> None:
    counts = {"rule": 0, "window": 0, "xip only": 0}
    for seed in range(ROUNDS):
        recording = record(postgres, seed)
        assert len(recording.changes) > 20, "the writers were too slow to prove anything"
        counts["rule"] += wrong(by_the_rule(recording), recording.final)
        counts["window"] += wrong(by_the_window(recording), recording.final)
        counts["xip only"] += wrong(by_the_rule(recording, xip_only=True), recording.final)
    print(f"wrong rows in {ROUNDS} recordings: {counts}")
    assert counts["rule"] == 0, counts
    assert counts["window"] and counts["xip only"], f"the runs were too tame to prove anything: {counts}"
