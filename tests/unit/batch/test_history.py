"""A table with a row for each change, through all of Tailrace in one process, against the source's own transactions."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest

from support.ddl.lake import QuickTable
from support.scripted_database import Change, Database, Seen, toasted
from support.scripted_runs import Copy, change, filled
from support.states import log_state, table_log
from tailrace.apply import units
from tailrace.batch.applied import AppliedState
from tailrace.batch.history import require_history, stored_slice
from tailrace.batch.slice import cut
from tailrace.changelog.append_list import AppendList
from tailrace.changelog.history import ADDED, logged, stored
from tailrace.changelog.logged import LoggedCascade, LoggedTruncate
from tailrace.changelog.records.terms import Column, RecordNumber, Seq, TableSchema
from tailrace.errors import InvalidManifest, LogTrimmed, ReadRefused, Retry, backoff
from tailrace.targets.lake.model import TableCommit

COLUMNS = (
    Column(name="id", id=1, source_type="bigint", type="int64", nullable=False, key=0),
    Column(name="v", id=2, source_type="text", type="string"),
)
SCHEMA = TableSchema(table_id=1, schema_name="main", table_name="t", version=1, columns=COLUMNS, history="Changes")
LETTERS = {"I": "c", "U": "u", "D": "d", "M": "c", "T": "t"}


def history_of(folder: Path, database: Database, history: str = "Changes") -> Copy:
    copy = Copy(database, folder)
    copy.document["spec"]["options"] = [{"match": "main.*", "history": history}]
    return copy


def failing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Commits that fail before or after they took effect, as one does whose answer is lost; returns those tried."""
    monkeypatch.setattr(units, "LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(backoff, "FIRST_PAUSE", 0.05)
    commit, broken = QuickTable.commit, list[int]()

    def sometimes(table: QuickTable, change: TableCommit) -> None:
        broken.append(len(broken) % 4)
        if broken[-1] != 1:
            commit(table, change)
        if broken[-1] in (1, 2):
            raise Retry("killed")

    monkeypatch.setattr(QuickTable, "commit", sometimes)
    return broken


def rows(copy: Copy, table: int = 1) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = copy.lake.table("main", copy.database.names[table - 1]).rows().to_pylist()
    return sorted(found, key=lambda row: (row["_seq"], row["_op"] == "r"))


Shown = tuple[str, int | None, str | None, str | None]


def logged_changes(database: Database, begin: int, table: int = 1) -> list[Shown]:
    """Letter, `id`, `v` and what was not carried, of everything committed since capture began."""
    changes = (c for transaction in database.log[begin:] for c in transaction if c.table == table)
    return [
        (
            LETTERS[c.op],
            None if c.op == "T" else c.id,
            None if c.kept else c.v,
            json.dumps(["v"]) if c.kept else None,
        )
        for c in changes
    ]


def shown(found: list[dict[str, Any]]) -> list[Shown]:
    return [(row["_op"], row["id"], row["v"], row["_unchanged"]) for row in found]


def present(found: list[dict[str, Any]]) -> dict[int, str | None]:
    """The rows as they are, told from the history as docs/history.md says."""
    state: dict[int, str | None] = {}
    for row in found:
        if row["_op"] == "t":
            state.clear()
        elif row["_op"] == "d":
            state.pop(row["id"], None)
        else:
            state[row["id"]] = state.get(row["id"]) if row["_unchanged"] else row["v"]
    return state


def at_moment(copy: Copy, moment: datetime) -> dict[int, str | None]:
    """The rows at a point in time, by the query of docs/history.md."""
    text = (Path(__file__).parents[3] / "docs" / "history.md").read_text()
    query = text.partition("```sql")[2].partition("```")[0].replace("status", "v")
    query = query.replace("2026-11-29 12:00:00+00", moment.isoformat(sep=" ")).replace("TIMESTAMP '", "TIMESTAMPTZ '")
    with duckdb.connect() as connection:
        connection.register("orders", copy.lake.table("main", "t").rows())
        return dict(connection.execute(query).fetchall())


def check_moments(copy: Copy, found: list[dict[str, Any]], begin: int, whole: int) -> None:
    """What the query finds at moments after transaction `whole`, at which the first snapshot had ended, against the
    transactions until then. Those that capture reads at once have the same time."""
    database = copy.database
    of_change = [n for n, t in enumerate(database.log[begin:], begin + 1) for change in t if change.table == 1]
    changes = [row for row in found if row["_op"] != "r"]
    last = {row["_commit_time"]: at for at, row in enumerate(changes) if of_change[at] > whole and row["_commit_time"]}
    assert len(last) > 5
    for moment, at in list(last.items())[::3]:
        expected = database.rows(1, Seen(of_change[at], frozenset()))
        newest = {row["id"]: row for row in found if row["_seq"] <= changes[at]["_seq"]}
        unknown = {id: None for id in expected if newest[id]["_unchanged"]}
        assert at_moment(copy, moment) == expected | unknown


def test_it_has_every_change_once_through_kills_late_chunks_and_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, database = Random(11), filled("t")
    copy, broken = history_of(tmp_path, database), failing(monkeypatch)
    copy.start()
    begin, whole, waiting = database.end, 0, list[int]()
    for turn in range(50):
        for _ in range(4):
            changes = change(random, database, 1)
            if random.random() < 0.2 and database.rows(1):
                changes = toasted(1, random.choice(list(database.rows(1))))
            hidden = not waiting and random.random() < 0.3
            number = database.commit(*changes, hidden=hidden)
            waiting += [number] if hidden else []
        if waiting and random.random() < 0.5:
            database.hidden.discard(waiting.pop())
        if turn == 25:
            copy.stop()
            copy.start()
        copy.turn()
        snapshots = copy.state.snapshots.values()
        if not whole and snapshots and all(snapshot.ended for snapshot in snapshots):
            whole = database.end
    database.hidden.clear()
    copy.level()
    whole = whole or database.end
    for _ in range(8):  # moments after the snapshot, however long that took
        database.commit(*change(random, database, 1))
        copy.level()
    found = rows(copy)
    assert shown([row for row in found if row["_op"] != "r"]) == logged_changes(database, begin)
    assert present(found) == database.rows(1)
    assert {row["_op"] for row in found} == {"r", "c", "u", "d", "t"} and len(broken) > 4
    check_moments(copy, found, begin, whole)
    assert all((row["_commit_time"] is None) == (row["_op"] == "r") for row in found)
    copy.stop()


def test_a_moment_without_a_later_change_has_the_rows_of_the_snapshot_and_no_emptied_ones(tmp_path: Path) -> None:
    """Rows that were read have no time, and a TRUNCATE may be the last change for long."""
    database = filled("t", "other", rows=3)
    copy = history_of(tmp_path, database)
    with copy.running():
        copy.level()
        read = datetime.now(UTC)
        assert at_moment(copy, read) == database.rows(1) != {}
        database.commit(Change("T", 1))
        copy.level()
        emptied = datetime.now(UTC)
        assert at_moment(copy, emptied) == {} and at_moment(copy, read) == {1: "a1", 2: "a2", 3: "a3"}
        database.commit(Change("I", 1, 7, "new"))
        copy.level()
        assert at_moment(copy, emptied) == {} and at_moment(copy, datetime.now(UTC)) == {7: "new"}


def test_a_verification_of_it_is_refused_and_a_new_read_adds_rows(tmp_path: Path) -> None:
    database = filled("t", "other", rows=3)
    copy = history_of(tmp_path, database)
    with copy.running():
        copy.level()
        before = rows(copy)
        assert at_moment(copy, datetime(2100, 1, 1, tzinfo=UTC)) == database.rows(1)  # no change yet
        with pytest.raises(InvalidManifest, match=r"main\.t has a row for each change"):
            copy.driver.ask("verify", ["main.t"], mode="Verify")
        assert copy.driver.ask("read", ["main.t"])
        copy.level()
        again = rows(copy)
        assert [row["_op"] for row in again] == ["r"] * 6 and len(before) == 3
        assert at_moment(copy, datetime(2100, 1, 1, tzinfo=UTC)) == database.rows(1)
        assert present(again) == database.rows(1)


def test_a_change_of_the_history_begins_the_copy_anew(tmp_path: Path) -> None:
    database = filled("t", rows=3)
    copy = Copy(database, tmp_path)
    with copy.running():
        copy.level()
        assert copy.rows(1) == database.rows(1)
    copy.document["spec"]["options"] = [{"match": "main.*", "history": "Changes"}]
    with copy.running():
        assert copy.driver.ask("resync", ["main.t"], resync=True)
        copy.until(lambda state: state.tables[1].schema.history == "Changes", work=True)
        copy.level()
        database.commit(Change("D", 1, 2))
        copy.level()
        assert present(rows(copy)) == database.rows(1) and rows(copy)[-1]["_op"] == "d"


def test_the_stored_form_has_no_key_and_the_logged_one_no_added_columns() -> None:
    form = stored(SCHEMA)
    assert form.keyless and not form.key_columns and form.columns[2:] == ADDED
    assert all(column.nullable for column in form.columns)
    assert stored(form) == form and logged(form).columns == form.columns[:2]
    current = SCHEMA.model_copy(update={"history": None})
    assert stored(current) is current


def test_a_history_is_not_continued_over_changes_that_the_log_lacks() -> None:
    emptied = LoggedTruncate(record=RecordNumber(8), seq=Seq(9), transaction="1", written_at=0)
    table = table_log(SCHEMA, 0, truncates=AppendList([emptied]))
    state = log_state(table, number=RecordNumber(9), last_seq=Seq(9))
    part = cut(state, 1, AppliedState("log", Seq(7), RecordNumber(3), table_id=1, schema_version=1), RecordNumber(9))
    assert part is not None and not part.clear and part.start_seq == 7
    require_history(table, part)
    with pytest.raises(LogTrimmed, match=r"lacks changes of main\.t after record 4"):
        require_history(table, replace(part, gap=RecordNumber(4)))
    cascade = LoggedCascade(record=RecordNumber(8), since=0)
    with pytest.raises(ReadRefused, match=r"foreign keys have changed rows of main\.t"):
        require_history(table.model_copy(update={"cascades": AppendList([cascade])}), part)
    assert stored_slice(part).schema == stored(SCHEMA)


def test_deleted_rows_stay_through_kills_late_chunks_and_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`SoftDelete`, against the source's own transactions."""
    random, database = Random(12), filled("t")
    copy, broken = history_of(tmp_path, database, "SoftDelete"), failing(monkeypatch)
    copy.start()
    begin, waiting = database.end, list[int]()
    for turn in range(35):
        for _ in range(4):
            changes = change(random, database, 1)
            if random.random() < 0.2 and database.rows(1):
                changes = toasted(1, random.choice(list(database.rows(1))))
            hidden = not waiting and random.random() < 0.3
            number = database.commit(*changes, hidden=hidden)
            waiting += [number] if hidden else []
        if waiting and random.random() < 0.5:
            database.hidden.discard(waiting.pop())
        if turn == 15:
            copy.stop()
            copy.start()
        if turn == 25:
            assert copy.driver.ask("read", ["main.t"])
        copy.turn()
    database.hidden.clear()
    copy.level()
    found = copy.lake.table("main", "t").rows().to_pylist()
    assert len({row["id"] for row in found}) == len(found) and len(broken) > 4
    assert {row["id"]: row["v"] for row in found if not row["_is_deleted"]} == database.rows(1)
    assert all(row["_deleted_at"] is None for row in found if not row["_is_deleted"])
    deleted = {row["id"]: row for row in found if row["_is_deleted"]}
    order, known = last_values(database, begin)
    assert len(known) > 5 and known.keys() <= deleted.keys() <= order.keys()
    assert {id: deleted[id]["v"] for id in known} == known
    times = [deleted[id]["_deleted_at"] for id in sorted(deleted, key=lambda id: order[id])]
    assert None not in times and times == sorted(times) and len(set(times)) > 5
    copy.stop()


def last_values(database: Database, begin: int) -> tuple[dict[int, int], dict[int, str | None]]:
    """Of rows that are gone: the place in the log where they went; and the last value of those that were inserted after
    capture began, so that no snapshot need have read them."""
    rows, order, known, inserted = dict[int, str | None](), dict[int, int](), dict[int, str | None](), set[int]()
    former: str | None = None
    for number, transaction in enumerate(database.log):
        for c in (c for c in transaction if c.table == 1):
            going = list(rows) if c.op == "T" else [c.id] if c.op == "D" else []
            for id in going:
                former = rows.pop(id)
                order[id] = number
                known |= {id: former} if id in inserted else {}
            if c.op in ("I", "M", "U"):
                rows[c.id] = (rows[c.id] if c.op == "U" else former) if c.kept else c.v
                order.pop(c.id, None)
                known.pop(c.id, None)
            inserted |= {c.id} if c.op in ("I", "M") and number >= begin else set()
    assert rows == database.rows(1)
    return order, known
