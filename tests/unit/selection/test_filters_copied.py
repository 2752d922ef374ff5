"""A row filter through capture, change log, chunks and apply: at the end the target is the filtered source."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from support.clear_values import found_in
from support.scripted_database import Change, Database, move, toasted
from support.scripted_runs import KEYS, Copy
from support.segment_files import read_segment

Matches = Callable[[int, str | None, int], bool]
FILTERS: dict[str, Matches] = {
    "n < 50": lambda id, v, n: n < 50,
    "v = 'in'": lambda id, v, n: v == "in",
    "n < 30 OR v IN ('in', 'inside')": lambda id, v, n: n < 30 or v in ("in", "inside"),
    "NOT v = 'out' AND (n BETWEEN 20 AND 80 OR id < 10)": lambda id, v, n: (
        v is not None and v != "out" and (20 <= n <= 80 or id < 10)
    ),
}
VALUES = ("in", "out", "inside", None)


def written(rnd: random.Random, database: Database, table: int) -> list[Change]:
    """One change that fits the table as it is, or two."""
    rows, v, n = database.rows(table), rnd.choice(VALUES), rnd.randrange(100)
    new = rnd.choice([i for i in range(KEYS) if i not in rows] or [KEYS + len(database.log)])
    if not rows or rnd.random() < 0.25:
        return [Change("I", table, new, v, n=n)]
    known = rnd.choice(list(rows))
    match rnd.randrange(16):
        case 0 if rnd.random() < 0.3:
            return [Change("T", table), Change("I", table, new, v, n=n)]
        case 0 | 1:
            return [Change("D", table, known)]
        case 2 | 3:
            return [Change("D", table, known), Change("M", table, new, v, old=known, n=n)]
        case 4 | 5:
            return toasted(table, known, new, n=n)
        case 6 | 7 | 8 | 9 | 10:
            return toasted(table, known, n=n)
        case _:
            return [Change("U", table, known, v, n=n)]


def filtered_copy(folder: Path, where: str, database: Database) -> Copy:
    copy = Copy(database, folder)
    copy.document["spec"]["options"] = [{"match": "main.*", "where": where}]
    return copy


def work(copy: Copy, rnd: random.Random, turns: int) -> None:
    """Writers, hidden commits, snapshots, driver and capture that end in the middle."""
    database, hidden = copy.database, list[int]()
    for turn in range(turns):
        for _ in range(rnd.randint(1, 4)):
            hide = not hidden and rnd.random() < 0.3
            number = database.commit(*written(rnd, database, 1), hidden=hide)
            hidden += [number] if hide else []
        if hidden and rnd.random() < 0.5:
            database.hidden.discard(hidden.pop())
        if turn % 12 == 8:
            copy.stop()
            copy.start()
        if turn % 20 == 15:
            keys = [[str(i)] for i in rnd.sample(range(KEYS), 5)] if rnd.random() < 0.5 else None
            copy.ask("main.orders", **({} if keys is None else {"keys": keys}))
        copy.turn()
    database.hidden.clear()


@pytest.mark.parametrize("where", FILTERS)
def test_the_target_is_the_filtered_source(tmp_path: Path, where: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rnd, matches = random.Random(seed), FILTERS[where]
    database = Database(["orders"], numbered=True)
    for _ in range(40):
        database.commit(*written(rnd, database, 1))
    copy = filtered_copy(tmp_path, where, database)
    with copy.running():
        for turns in (60, 14):  # without a snapshot in the end, which would repair what was wrong
            work(copy, rnd, turns)
            copy.level()
            wanted = {i: (v, n) for i, (v, n) in database.whole(1).items() if matches(i, v, n or 0)}
            found = copy.lake.table("main", "orders").rows().to_pylist()
            assert {row["id"]: (row["v"], row["n"]) for row in found} == wanted and len(found) == len(wanted)
            assert copy.driver.faults() == {}


def test_no_file_holds_a_value_of_a_row_that_never_matched(tmp_path: Path) -> None:
    database = Database(["orders"])
    database.commit(*(Change("I", 1, i, "in" if i % 2 else "elsewhere-7f3a") for i in range(1, 31)))
    copy = filtered_copy(tmp_path, "v = 'in'", database)
    with copy.running():
        copy.level()
        database.commit(Change("U", 1, 1, "elsewhere-7f3a"), Change("I", 1, 50, "elsewhere-7f3a"))
        database.commit(*move(1, 2, 51, "elsewhere-7f3a"), Change("U", 1, 4, "in"))
        copy.level()
        assert sorted(copy.rows(1)) == sorted([4, *range(3, 31, 2)])
    assert found_in(tmp_path, "elsewhere-7f3a") == []


def test_changes_that_do_not_match_have_no_segment_and_the_position_moves_on(tmp_path: Path) -> None:
    database = Database(["orders"])
    database.commit(Change("I", 1, 1, "in"))
    copy = filtered_copy(tmp_path, "v = 'in'", database)
    with copy.running():
        copy.level()
        before = copy.state
        database.commit(Change("I", 1, 2, "out"), Change("I", 1, 3, None))
        copy.level()
        after = copy.state
        assert len(after.tables[1].segments) == len(before.tables[1].segments)
        assert (after.position, after.last_seq) == (before.position + 1, before.last_seq + 2)
        database.commit(Change("U", 1, 3, "in"), Change("U", 1, 1, "out"))
        copy.level()
        (logged,) = copy.state.tables[1].segments
        segment = logged.segment
        assert (segment.inserts, segment.updates, segment.deletes) == (0, 1, 1)
        rows = read_segment(tmp_path / "log", segment.path, 1, segment.first_seq)
        assert rows["_op"].to_pylist() == ["I", "D"]
        assert copy.rows(1) == {3: "in"}
