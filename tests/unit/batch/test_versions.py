"""A table all of whose versions stay, through all of Tailrace in one process, against the source's own transactions."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import duckdb
import pytest
from unit.batch.test_history import failing, history_of

from support.scripted_database import Change, Database, Seen, toasted
from support.scripted_runs import Copy, change, filled

Version = tuple[int, str | None, datetime, datetime | None]


def replayed(database: Database) -> Iterator[tuple[int, str | None, int, int | None]]:
    """Yields id, `v`, and the transactions that began and ended the version, of all that the source ever committed."""
    rows, former = dict[int, tuple[str | None, int]](), None
    for number, transaction in enumerate(database.log, 1):
        for c in (c for c in transaction if c.table == 1):
            for id in list(rows) if c.op == "T" else [c.id] if c.id in rows else []:
                v, begun = rows.pop(id)
                former = v
                yield id, v, begun, number
            if c.op in ("I", "U", "M"):
                rows[c.id] = former if c.kept else c.v, number
    assert {id: v for id, (v, _) in rows.items()} == database.rows(1)
    for id, (v, begun) in rows.items():
        yield id, v, begun, None


def at(database: Database, number: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=database.times[number])


def kept(copy: Copy) -> list[Version]:
    found = copy.lake.table("main", "t").rows().to_pylist()
    assert all(row["_is_current"] == (row["_valid_to"] is None) for row in found)
    times = ((in_utc(row["_valid_from"]), row["_valid_to"] and in_utc(row["_valid_to"])) for row in found)
    return [(row["id"], row["v"], *both) for row, both in zip(found, times, strict=True)]


def in_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def check(copy: Copy, whole: int) -> int:
    """Everything from transaction `whole` on, at which the first snapshot had ended. Returns how many have ended."""
    database, found = copy.database, kept(copy)
    moment, wanted, before = at(database, whole), list[Version](), list[tuple[int, str | None, datetime | None]]()
    for id, v, begun, ended in replayed(database):
        to = None if ended is None else at(database, ended)
        if begun > whole and at(database, begun) != to:
            wanted.append((id, v, at(database, begun), to))
        elif begun <= whole and (ended is None or ended > whole):
            before.append((id, v, to))
    begun_later = [row for row in found if row[2] > moment]
    assert sorted(map(repr, begun_later)) == sorted(map(repr, wanted))
    there = [(id, v, to) for id, v, begun, to in found if begun <= moment and (to is None or to > moment)]
    assert sorted(map(repr, there)) == sorted(map(repr, before))
    assert {id: v for id, v, _, to in found if to is None} == database.rows(1)
    check_moments(copy, whole)
    return sum(to is not None for _, _, _, to in wanted)


def check_moments(copy: Copy, whole: int) -> None:
    """The query of docs/history.md, at moments after the first snapshot, between transactions that were read apart."""
    database = copy.database
    text = (Path(__file__).parents[3] / "docs" / "history.md").read_text().partition("## Every version")[2]
    query = (
        text.partition("```sql")[2].partition("```")[0].replace("status", "v").replace("TIMESTAMP '", "TIMESTAMPTZ '")
    )
    last = {database.times[number]: number for number in range(whole, database.end + 1)}
    assert len(last) > 5
    with duckdb.connect() as connection:
        connection.register("orders", copy.lake.table("main", "t").rows())
        for number in last.values():
            moment = query.replace("2026-11-29 12:00:00+00", at(database, number).isoformat(sep=" "))
            found = connection.execute(moment).fetchall()
            assert dict(found) == database.rows(1, Seen(number, frozenset())) and len(found) == len(dict(found))


def test_it_has_every_version_with_its_times_through_kills_late_chunks_and_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, database = Random(13), filled("t")
    copy, broken = history_of(tmp_path, database, "Versions"), failing(monkeypatch)
    copy.start()
    whole, waiting = 0, list[int]()
    for turn in range(45):
        for _ in range(4):
            changes = change(random, database, 1)
            if random.random() < 0.2 and database.rows(1):
                changes = toasted(1, random.choice(list(database.rows(1))))
            hidden = turn < 10 and not waiting and random.random() < 0.3
            number = database.commit(*changes, hidden=hidden)
            waiting += [number] if hidden else []
        if waiting and (turn > 10 or random.random() < 0.5):
            database.hidden.discard(waiting.pop())
        if turn == 20:
            copy.stop()
            copy.start()
        if turn == 30:
            assert copy.driver.ask("read", ["main.t"])
        copy.turn()
        snapshots = copy.state.snapshots.values()
        if not whole and snapshots and all(snapshot.ended for snapshot in snapshots):
            whole = database.end
    while len(broken) < 4:  # one that failed before it took effect, and one after
        database.commit(*change(random, database, 1))
        copy.level()
    monkeypatch.undo()
    copy.level()
    whole = whole or database.end
    for _ in range(12):
        database.commit(*change(random, database, 1))
        copy.level()
    assert check(copy, whole) > 5
    copy.stop()


def test_reading_rows_again_that_are_as_they_were_adds_nothing(tmp_path: Path) -> None:
    database = filled("t", "other", rows=9)
    copy = history_of(tmp_path, database, "Versions")
    with copy.running():
        copy.level()
        database.commit(Change("U", 1, 2, "new"), Change("D", 1, 3))
        copy.level()
        before = kept(copy)
        assert len(before) == 10 and copy.driver.ask("read", ["main.t"])
        copy.level()
        assert sorted(map(repr, kept(copy))) == sorted(map(repr, before))
