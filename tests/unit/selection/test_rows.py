"""The rows that are copied: those of the log as the model's plain code has them, and their counts."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from model.capture import Capture
from model.filters import FILTERS, FilteredCapture
from model.schedules import schedule
from model.world import World

from tailrace.batch.rule import UNCHANGED, ApplyRule, Change, Op, Values
from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.changelog.segments import segment_schema, write_segment
from tailrace.contract.resources import StorageLocation
from tailrace.selection.rows import of_chunk, of_log, passing
from tailrace.storage.store import Storage

NUMBERS = range(400)
"""More values than one schedule makes of a column."""


def schema(where: str | None) -> TableSchema:
    columns = [Column(name="id", id=1, source_type="int", type="int32", key=0)]
    columns += [Column(name=n, id=i, source_type="text", type="string") for i, n in enumerate("xtu", 2)]
    return TableSchema(table_id=1, schema_name="s", table_name="t", version=1, columns=tuple(columns), where=where)


def column(name: str, type: str, mask: str | None = None) -> Column:
    return Column(name=name, id=1, source_type="?", type=type, mask=mask)


def divisible(column: str, by: int) -> str:
    values = [f"'{letters}{n}'" for n in NUMBERS if n % by == 0 for letters in (column, f"j{column}")]
    return f"\"{column}\" IN ({', '.join(values)}, 'j{column}')"


WHERE = {
    "FilteredCapture": f"NOT ({divisible('x', 3)})",
    "ByLarge": f"NOT ({divisible('t', 3)})",
    "ByEither": f"{divisible('x', 3)} OR {divisible('t', 2)}",
}


def log_rows(changes: Sequence[Change[int]], where: str | None) -> pa.Table:
    rows = []
    for change in changes:
        values = change.values or (None,) * 3
        lacking = [place for place, value in enumerate(values, 1) if value is UNCHANGED]
        cells = {name: None if v is UNCHANGED else v for name, v in zip("xtu", values, strict=True)}
        old = {"id": 99} if change.op == "M" else None
        row = {"_seq": change.seq, "_op": change.op, "_commit_ts": 0, "_unchanged": lacking or None, "_old_key": old}
        rows.append({**row, "id": change.key, **cells})
    return pa.Table.from_pylist(rows, segment_schema(schema(where)))


def random_log(rnd: random.Random) -> list[Change[int]]:
    """All that a schedule of the model writes."""
    start, actions = schedule(rnd)
    world = World(start, ApplyRule[int](3), Capture)
    for action in actions:
        world.step(*action)
    rows = [row for transaction in world.source.log for row in transaction.rows if row[0] != "T"]
    return [Change(seq, op, key, values) for seq, (op, key, values) in enumerate(rows, 1)]


@pytest.mark.parametrize("filtering", FILTERS, ids=lambda filtering: filtering.__name__)
def test_rows_come_out_as_the_model_has_them(filtering: type[FilteredCapture]) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rnd, where = random.Random(seed), WHERE[filtering.__name__]
    model = World(schedule(rnd)[0], ApplyRule[int](3), filtering).capture
    longest = 0
    for _ in range(60):
        changes = random_log(rnd)
        found = of_log(log_rows(changes, where), schema(where))
        assert found.rows.equals(log_rows(model.logged(changes), where))
        longest = max(longest, len(changes))
    assert longest > 8


def test_what_is_counted_is_what_happened_to_rows_that_are_copied() -> None:
    where = "\"x\" = 'eu'"
    eu, us = ("eu", "t", "u"), ("us", "t", "u")
    changes = [
        Change(1, "I", 1, eu), Change(2, "I", 2, us), Change(3, "U", 2, eu), Change(4, "U", 1, us),
        Change(5, "D", 2), Change(6, "M", 3, eu), Change(7, "D", 3), Change(8, "M", 4, us), Change(9, "D", 5),
    ]  # fmt: skip
    found = of_log(log_rows(changes, where), schema(where))
    assert found.rows["_seq"].to_pylist() == [1, 3, 4, 5, 6, 7, 9]
    assert found.counts == {"inserts": 1, "updates": 2, "deletes": 3}


@pytest.mark.parametrize(("op", "values"), [("U", ("us", "secret", UNCHANGED)), ("D", ("us", "secret", "u"))])
def test_a_row_that_is_deleted_or_leaves_the_filter_keeps_nothing_but_its_key(op: Op, values: Values) -> None:
    """A delete has all values where the replica identity is FULL."""
    where = "\"x\" = 'eu'"
    found = of_log(log_rows([Change(1, op, 7, values)], where), schema(where))
    (row,) = found.rows.select(["_op", "_unchanged", "_old_key", "id", "x", "t", "u"]).to_pylist()
    assert row == {"_op": "D", "_unchanged": None, "_old_key": None, "id": 7, "x": None, "t": None, "u": None}


def test_a_table_without_a_filter_is_left_as_it_is() -> None:
    rows = log_rows([Change(1, "D", 1)], None)
    assert of_log(rows, schema(None)).rows.equals(rows)


def test_without_a_key_the_filter_decides_over_each_row(tmp_path: Path) -> None:
    """An update is a `D` and an `M`; there is no key to which the one that does not match could be reduced."""
    columns = tuple(Column(name=n, id=i, source_type="text", type="string") for i, n in enumerate("xt", 1))
    keyless = schema("\"x\" = 'eu'").model_copy(update={"columns": columns, "keyless": True})
    written = [("I", "eu"), ("I", "us"), ("D", "eu"), ("M", "us"), ("D", "us"), ("M", "eu"), ("D", None), ("D", "eu")]
    rows = [{"_seq": seq, "_op": op, "_commit_ts": 0, "x": x, "t": "t"} for seq, (op, x) in enumerate(written, 1)]
    found = of_log(pa.Table.from_pylist(rows, segment_schema(keyless)), keyless)
    assert found.rows.select(["_seq", "_op", "x", "t"]).to_pylist() == [
        {"_seq": seq, "_op": op, "x": "eu", "t": "t"} for seq, op in ((1, "I"), (3, "D"), (6, "M"), (8, "D"))
    ]
    segment = found.counted(
        write_segment(Storage.open(StorageLocation(location=tmp_path.as_uri())), keyless, found.rows)
    )
    assert (segment.inserts, segment.updates, segment.deletes) == (1, 1, 1)


def test_a_chunk_is_masked_after_it_was_filtered() -> None:
    columns = (column("id", "int32"), column("mail", "string", mask="Redact"))
    table = TableSchema(table_id=1, schema_name="s", table_name="t", version=1, columns=columns, where="mail = 'a'")
    batch = pa.RecordBatch.from_pydict({"id": pa.array([1, 2], pa.int32()), "mail": ["a", "b"]})
    assert of_chunk(batch, table).to_pylist() == [{"id": 1, "mail": "***"}]


def test_only_rows_pass_for_which_it_is_true() -> None:
    rows = pa.table({"a": pa.array([1, 2, None], pa.int32()), "s": ["x", None, None]})
    columns = [column("a", "int32"), column("s", "string")]

    def chosen(where: str) -> list[int]:
        return [i for i, passes in enumerate(passing(rows, where, columns).to_pylist()) if passes]

    assert chosen("a = 1") == [0] and chosen("NOT a = 1") == [1] and chosen("a NOT IN (1)") == [1]
    assert chosen("s = 'x' OR a = 2") == [0, 1] and chosen("NOT (s = 'x' AND a = 2)") == [0]
    assert chosen("s IS NULL") == [1, 2] and chosen("a IS NULL AND s IS NULL") == [2]


def test_times_are_compared_as_moments() -> None:
    rows = pa.table({"tz": pa.array([datetime(2026, 1, 31, 17, tzinfo=UTC)], pa.timestamp("us", "UTC"))})
    columns = [column("tz", "timestamptz")]
    assert passing(rows, "tz = '2026-01-31 18:00:00+01:00'", columns).to_pylist() == [True]
    assert passing(rows, "tz < '2026-01-31 18:00:00+01:00'", columns).to_pylist() == [False]


def test_a_column_that_the_rows_lack_is_not_taken_for_another() -> None:
    with pytest.raises(ValueError, match="'a' is not in list"):
        passing(pa.table({"big": pa.array([1])}), "a = 1", [column("a", "int32"), column("big", "int64")])
