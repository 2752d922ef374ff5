"""The decoder by column against a naive interpreter row by row; and what stops a table."""

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import pgoutput_messages as pg
from support.catalog import catalog_table
from support.pgoutput_messages import UNCHANGED
from tailrace.changelog.records.signals import SignalReceived
from tailrace.changelog.records.terms import Column, Seq, TableSchema
from tailrace.contract.resources import TableOptions
from tailrace.errors import Retry, TailraceError
from tailrace.sources.api import Changes
from tailrace.sources.postgresql.log import pgoutput
from tailrace.sources.postgresql.log.blocks import MessageBlock
from tailrace.sources.postgresql.log.decode import Decoder
from tailrace.sources.postgresql.log.spill import Spill
from tailrace.sources.postgresql.log.tables import CapturedTables, CatalogNow
from tailrace.sources.postgresql.model import PgTable
from tailrace.sources.signals import SignalTable

CAPTURED, FOREIGN = 10, 11
NAMES = ("id", "a", "b")


def schema(number_type: str = "int32") -> TableSchema:
    return TableSchema(
        table_id=CAPTURED,
        schema_name="public",
        table_name="t",
        version=1,
        columns=tuple(
            Column(name=n, id=i, source_type="text", type=number_type if n == "a" else "string", key=k)
            for i, (n, k) in enumerate([("id", 0), ("a", None), ("b", None)], 1)
        ),
    )


def no_table(_: int) -> PgTable | None:
    return None


def decoder(table: TableSchema, signals: SignalTable | None = None) -> tuple[Decoder, CapturedTables]:
    tables = CapturedTables(CatalogNow(lambda oid, modifier: "text", no_table))
    tables.add(table)
    return Decoder(tables, signals), tables


RELATIONS = [pg.relation(CAPTURED, NAMES, ["id"]), pg.relation(FOREIGN, ["x"], ["x"], "foreign")]


class Script:
    """Random changes as messages, and the rows that a naive reader makes of them."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.block = MessageBlock()
        self.rows: list[dict[str, Any]] = []
        self.truncates: list[int] = []
        self.seq = 100
        for message in RELATIONS:
            self.block.add(message)

    def transaction(self, xid: int) -> None:
        self.block.begin(xid, xid * 1000)
        if len(self.block.marks) == 1:
            self.block.marks[0] = self.block.marks[0]._replace(at=0)
        for _ in range(self.chance.randint(0, 5)):
            self.change(xid)

    def values(self, key: str) -> list[Any]:
        b = self.chance.choice([None, "", "text", "ü" * 3, UNCHANGED])
        return [key, self.chance.choice([None, str(self.chance.randint(-9, 9))]), b]

    def change(self, xid: int) -> None:
        key, other = (str(self.chance.randint(1, 3)) for _ in range(2))
        new = self.values(key)
        match self.chance.randint(0, 7):
            case 0:
                self.block.add(pg.insert(FOREIGN, ["1"]))
            case 1:
                new[2] = None if new[2] is UNCHANGED else new[2]
                self.block.add(pg.insert(CAPTURED, new))
                self.row("I", xid, new)
            case 2 | 3:
                self.block.add(pg.update(CAPTURED, new))
                self.row("U", xid, new)
            case 4:
                self.block.add(pg.delete(CAPTURED, [key, None, None]))
                self.row("D", xid, [key, None, None])
            case 5:
                self.update_with_old(xid, new, [other, None, None], b"K")
            case 6:
                old = [other, "5", "old"]
                self.update_with_old(xid, new, old, b"O")
            case _:
                self.block.add(pg.truncate(FOREIGN, CAPTURED))
                self.truncates.append(self.seq)
                self.seq += 1

    def update_with_old(self, xid: int, new: list[Any], old: list[Any], tag: bytes) -> None:
        self.block.add(pg.update(CAPTURED, new, old, tag))
        carried = [o if n is UNCHANGED and tag == b"O" else n for n, o in zip(new, old, strict=True)]
        if new[0] == old[0]:
            self.row("U", xid, carried)
        else:
            self.row("D", xid, old)
            self.row("M", xid, carried, {"id": old[0]})

    def row(self, op: str, xid: int, values: list[Any], old_key: dict[str, str] | None = None) -> None:
        unchanged = [i for i, v in enumerate(values) if v is UNCHANGED] or None
        plain = [None if v is UNCHANGED else v for v in values]
        row = {"_seq": self.seq, "_op": op, "_commit_ts": xid, "_unchanged": unchanged, "_old_key": old_key}
        self.rows.append(row | {"id": plain[0], "a": None if plain[1] is None else int(plain[1]), "b": plain[2]})
        self.seq += 1


def rows_of(decoded: Changes) -> list[dict[str, Any]]:
    found = [row for table in decoded.tables for row in table.rows.to_pylist()]
    for row in found:
        row["_commit_ts"] = round(row["_commit_ts"].timestamp() * 1000)
    return found


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_columns_and_rows_tell_the_same(seed: int) -> None:
    chance = random.Random(seed)
    script = Script(chance)
    firsts = {}
    for xid in range(1, chance.randint(2, 6)):
        before = script.seq
        script.transaction(xid)
        if script.seq > before:
            firsts[xid] = before
    decoded = decoder(schema())[0].decode(script.block, 100)
    assert rows_of(decoded) == script.rows
    assert decoded.last_seq == script.seq - 1
    assert {start.number: start.first_seq for start in decoded.transactions} == firsts
    assert [e.seq for e in decoded.events if e.kind == "truncated"] == script.truncates


def well_formed(message: bytes) -> bool:
    """Read strictly, byte by byte: every count and length is that of what follows, and nothing is left."""
    at = 5

    def number(size: int) -> int:
        nonlocal at
        at += size
        if at > len(message):
            raise IndexError
        return int.from_bytes(message[at - size : at], "big", signed=size == 4)

    def values() -> None:
        nonlocal at
        if number(2) != len(NAMES):
            raise ValueError
        for _ in NAMES:
            kind = chr(number(1))
            if kind not in "nut":
                raise ValueError
            length = number(4) if kind == "t" else 0
            if length < 0 or at + length > len(message):
                raise IndexError
            at += length

    kind = message[:1]
    try:
        tag = number(1)
        values()
        if kind == b"U" and tag != ord("N"):
            if number(1) != ord("N"):
                return False
            values()
    except (IndexError, ValueError):
        return False
    return at == len(message) and chr(tag) in {b"I": "N", b"U": "NKO", b"D": "KO"}[kind]


def damaged(message: bytes, chance: random.Random) -> bytes:
    match chance.randint(0, 3):
        case 0:
            return message[: chance.randint(1, len(message) - 1)]
        case 1:
            return message + chance.randbytes(chance.randint(1, 9))
        case 2:
            at = chance.randrange(5, len(message))
            return message[:at] + chance.randbytes(1) + message[at + 1 :]
        case _:
            at = chance.randrange(5, len(message))
            return message[:at] + message[at + chance.randint(1, 4) :]


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32))
def test_a_damaged_message_is_an_error_with_a_name_and_never_another_row(seed: int) -> None:
    """A value that reached into the next message was taken over, and so were bytes that nobody asked for."""
    chance = random.Random(seed)
    script = Script(chance)
    while not (ours := [m for m in script.block.items[2:] if m[0] != ord("T") and m[1:5] == b"\0\0\0\x0a"]):
        script.transaction(7)
    victim = chance.choice(ours)
    at = script.block.items.index(victim)
    script.block.items[at] = broken = damaged(victim, chance)
    try:
        decoder(schema())[0].decode(script.block, 100)
    except TailraceError as error:
        assert str(error)
    else:
        assert well_formed(broken), broken


@pytest.mark.parametrize(
    ("parse", "message"),
    [
        (pgoutput.relation, pg.relation(10, NAMES, ["id"])),
        (pgoutput.truncate, pg.truncate(10, 11)),
        (pgoutput.stream_start, pg.stream_start(7)),
        (pgoutput.stream_abort, pg.stream_abort(7, 8)),
        (pgoutput.stream_commit, pg.stream_commit(7, 100)),
        (pgoutput.begin, pg.begin(7)),
        (pgoutput.commit, pg.commit(100)),
        (pgoutput.logical_message, b"M" + struct.pack(">BQ", 1, 7) + b"ours\0" + struct.pack(">I", 3) + b"abc"),
    ],
)
def test_a_message_that_is_cut_off_anywhere_is_an_error_with_a_name(
    parse: Callable[[bytes], object], message: bytes
) -> None:
    """Of some only the last byte was missed: a stream of transaction 7 could begin as one of transaction 0."""
    parse(message)
    for length in range(1, len(message)):
        with pytest.raises(pgoutput.UnknownMessage, match="cut off"):
            parse(message[:length])


def test_a_root_that_is_described_again_before_each_partition_has_one_segment_of_a_block() -> None:
    reader, _ = decoder(schema())
    block = MessageBlock()
    block.begin(7, 7000)
    for number in range(50):
        block.add(RELATIONS[0])
        block.add(pg.relation(1000 + number, NAMES, ["id"], f"t_{number}"))
        block.add(pg.insert(CAPTURED, [str(number), "1", None]))
    decoded = reader.decode(block, 1)
    assert [table.rows.num_rows for table in decoded.tables] == [50]
    assert len(decoded.leaves) == 50


STRICT = (TableOptions(match="*.*", on_unsupported="Fail"),)


def test_a_value_without_exact_form_stops_its_table_at_that_row_and_leaves_no_gap(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tables = CapturedTables(CatalogNow(lambda oid, modifier: "text", no_table), STRICT)
    tables.add(schema())
    reader = Decoder(tables)
    block = MessageBlock()
    block.begin(7, 7000)
    for message in RELATIONS:
        block.add(message)
    for value in ("1", "2", "not a number", "3"):
        block.add(pg.insert(CAPTURED, [value, value, None]))
    decoded = reader.decode(block, 1)
    assert [r["id"] for r in rows_of(decoded)] == ["1", "2"]
    (event,) = decoded.events
    assert event.kind == "table-stopped"
    assert (event.seq, event.error) == (2, "ValueUnsupported")
    assert "public.t is stopped: ValueUnsupported: column 'a'" in caplog.text
    assert decoded.last_seq == 2
    assert not tables.is_captured(CAPTURED)
    again = reader.decode(block, 3)
    assert (again.tables, again.events, again.last_seq, again.transactions) == ([], [], 2, [])


def test_a_value_without_exact_form_becomes_null_unless_the_options_say_otherwise_and_is_counted() -> None:
    tables = CapturedTables(CatalogNow(lambda oid, modifier: "text", no_table))
    tables.add(schema("int32"))
    block = MessageBlock()
    block.begin(7, 7000)
    block.add(RELATIONS[0])
    for key, value in (("1", "1"), ("2", "no number"), ("3", None), ("4", "none")):
        block.add(pg.insert(CAPTURED, [key, value, None]))
    block.add(pg.update(CAPTURED, ["9", "nor this", None], ["1", None, None], b"K"))
    block.add(pg.delete(CAPTURED, ["2", "no number", None], b"O"))
    decoded = Decoder(tables).decode(block, 1)
    assert decoded.events == []
    assert [r["a"] for r in rows_of(decoded)] == [1, None, None, None, None, None, None]
    assert [table.nulled for table in decoded.tables] == [(("a", 3),)]


def test_a_dropped_column_stops_the_table_before_its_next_row() -> None:
    reader, tables = decoder(schema())
    block = MessageBlock()
    block.begin(7, 7000)
    for message in (
        RELATIONS[0],
        pg.insert(CAPTURED, ["1", "1", None]),
        pg.relation(CAPTURED, ["id", "a"], ["id"]),
        pg.insert(CAPTURED, ["2", "2"]),
    ):
        block.add(message)
    decoded = reader.decode(block, 1)
    assert [r["id"] for r in rows_of(decoded)] == ["1"]
    assert [(e.kind, e.seq) for e in decoded.events] == [("table-stopped", 1)]  # type: ignore[union-attr]  # every kind in this test has a sequence
    assert not tables.is_captured(CAPTURED)


def test_a_schema_change_behind_the_row_that_stopped_the_table_is_not_recorded() -> None:
    """Else the record would not fit its own log, and capture would die of one table's value for ever."""
    now = catalog_table(schema(), ["id", "a", "b", "c"])
    tables = CapturedTables(CatalogNow(lambda oid, modifier: "text", lambda _: now), STRICT)
    tables.add(schema())
    block = MessageBlock()
    block.begin(7, 7000)
    for message in (
        RELATIONS[0],
        pg.insert(CAPTURED, ["1", "1", None]),
        pg.insert(CAPTURED, ["2", "not a number", None]),
        pg.relation(CAPTURED, ["id", "a", "b", "c"], ["id"]),
        pg.insert(CAPTURED, ["3", "3", None, "new"]),
    ):
        block.add(message)
    decoded = Decoder(tables).decode(block, 1)
    assert [r["id"] for r in rows_of(decoded)] == ["1"]
    assert [(e.kind, e.seq) for e in decoded.events] == [("table-stopped", 1)]  # type: ignore[union-attr]  # every kind in this test has a sequence


def test_a_form_that_no_surviving_row_has_changes_nothing() -> None:
    reader, tables = decoder(schema())
    block = MessageBlock()
    block.begin(7, 7000)
    for message in (
        pg.relation(CAPTURED, ["id"], ["id"]),
        RELATIONS[0],
        pg.insert(CAPTURED, ["1", "1", "x"]),
    ):
        block.add(message)
    decoded = reader.decode(block, 1)
    assert decoded.events == []
    assert tables.is_captured(CAPTURED)


def test_relations_of_tables_that_are_not_ours_are_forgotten() -> None:
    """A source may describe any number of tables that come and go."""
    reader, tables = decoder(schema())
    block = MessageBlock()
    block.begin(7, 7000)
    for message in (*RELATIONS, *(pg.relation(FOREIGN + i, ["id"], ["id"], f"x{i}") for i in range(1, 1500))):
        block.add(message)
    reader.decode(block, 1)
    assert set(reader._relations) == {CAPTURED}
    rows = MessageBlock()
    rows.begin(8, 8000)
    for message in (pg.insert(CAPTURED, ["1", "1", None]), pg.insert(FOREIGN, ["1"])):
        rows.add(message)
    assert [r["id"] for r in rows_of(reader.decode(rows, 1))] == ["1"]
    tables.add(schema().model_copy(update={"table_id": FOREIGN, "table_name": "foreign"}))
    with pytest.raises(Retry, match="without its description"):
        reader.decode(rows, 2)


def test_a_partition_is_the_table_described_directly_before_a_row_of_its_root() -> None:
    """Also when a block ends between the two; a table's own rows, and TRUNCATE, name no partition."""
    leaf, other, later = 71, 72, 73
    described = {i: pg.relation(i, NAMES, ["id"], f"t_{i}") for i in (leaf, other, later)}
    row = pg.insert(CAPTURED, ["1", "1", "x"])
    reader, tables = decoder(schema())
    blocks = [MessageBlock(), MessageBlock()]
    for block in blocks:
        block.begin(7, 7000)
    for message in (*RELATIONS, described[leaf], row, described[other], pg.truncate(CAPTURED), described[later]):
        blocks[0].add(message)
    blocks[1].add(row)
    assert reader.decode(blocks[0], 1).leaves == [(CAPTURED, leaf)]
    assert reader.decode(blocks[1], 9).leaves == [(CAPTURED, later)]
    tables.stop(CAPTURED)
    blocks[1].items.insert(0, described[leaf])
    assert reader.decode(blocks[1], 9).leaves == []


def test_a_partition_that_a_rolled_back_row_described_is_its_own_roots(tmp_path: Path) -> None:
    """The server does not describe it again in the rest of the streamed transaction, nor after its commit."""
    leaf, other = 71, 12
    reader, _ = decoder(schema())
    spill = Spill(tmp_path / "spill")
    messages = [pg.with_xid(message, 7) for message in (*RELATIONS, pg.relation(other, NAMES, ["id"], "other"))]
    aborted = (pg.relation(leaf, NAMES, ["id"], "leaf"), pg.insert(CAPTURED, ["1", "1", "x"]))
    messages += [pg.with_xid(message, 8) for message in aborted]
    for message in (*messages, pg.with_xid(pg.insert(other, ["1", "1", "x"]), 7)):
        spill.transaction(7).add(message, len(message))
    spill.abort(7, 8)
    block = MessageBlock()
    block.begin(7, 7000)
    for batch in spill.take(7).replay():
        block.items += batch
    decoded = reader.decode(block, 1)
    assert (decoded.leaves, decoded.last_seq) == ([(CAPTURED, leaf)], 0)


def keyless(*rows: bytes) -> tuple[Changes, CapturedTables]:
    """Of a table whose rows are told apart by all their values."""
    columns = tuple(c.model_copy(update={"key": None}) for c in schema().columns)
    reader, tables = decoder(schema().model_copy(update={"columns": columns, "keyless": True}))
    block = MessageBlock()
    block.begin(7, 7000)
    for message in (pg.relation(CAPTURED, NAMES, NAMES), *rows):
        block.add(message)
    return reader.decode(block, 1), tables


def test_without_a_key_an_update_is_a_delete_of_the_whole_old_row_and_the_new_one_also_if_nothing_changed() -> None:
    decoded, _ = keyless(
        pg.insert(CAPTURED, ["1", None, "x"]),
        pg.update(CAPTURED, ["1", "2", UNCHANGED], ["1", None, "x"], b"O"),
        pg.update(CAPTURED, ["1", "2", "x"], ["1", "2", "x"], b"O"),
        pg.delete(CAPTURED, [None, None, None], b"O"),
    )
    assert decoded.events == []
    (table,) = decoded.tables
    assert "_old_key" not in table.rows.column_names
    found = [(r["_seq"], r["_op"], r["_unchanged"], r["id"], r["a"], r["b"]) for r in rows_of(decoded)]
    assert found == [
        (1, "I", None, "1", None, "x"),
        (2, "D", None, "1", None, "x"),
        (3, "M", None, "1", 2, "x"),
        (4, "D", None, "1", 2, "x"),
        (5, "M", None, "1", 2, "x"),
        (6, "D", None, None, None, None),
    ]


@pytest.mark.parametrize(
    "change",
    [
        pg.delete(CAPTURED, ["1", None, None], b"K"),
        pg.update(CAPTURED, ["1", "2", "x"]),
        pg.update(CAPTURED, ["1", "2", "x"], ["1", None, None], b"K"),
        pg.update(CAPTURED, ["1", "2", UNCHANGED], ["1", "1", None], b"O"),
    ],
)
def test_without_a_key_a_change_that_does_not_have_the_whole_old_row_stops_the_table(change: bytes) -> None:
    decoded, tables = keyless(pg.insert(CAPTURED, ["1", None, "x"]), change, pg.insert(CAPTURED, ["2", None, "x"]))
    assert [r["id"] for r in rows_of(decoded)] == ["1"]
    (event,) = decoded.events
    assert event.kind == "table-stopped"
    assert (event.seq, event.error) == (1, "NoKey")
    assert "REPLICA IDENTITY FULL" in event.fix
    assert not tables.is_captured(CAPTURED)


SIGNALS = SignalTable("public", "signals")


def signal_block(*columns: str) -> MessageBlock:
    block = MessageBlock()
    block.add(RELATIONS[0])
    block.add(pg.relation(FOREIGN, columns, columns[:1], "signals"))
    block.begin(7, 7000)
    block.marks[0] = block.marks[0]._replace(at=0)
    return block


def test_rows_of_the_signal_table_become_events_at_their_place() -> None:
    reader, _ = decoder(schema(), SIGNALS)
    block = signal_block("number", "what", "more")
    block.add(pg.insert(CAPTURED, ["1", "2", "x"]))
    block.add(pg.insert(FOREIGN, ["ad-hoc", "log", '{"message": "ü"}']))
    block.add(pg.insert(FOREIGN, ["5-open", "snapshot-window-open", None]))
    block.add(pg.insert(CAPTURED, ["2", "2", "x"]))
    block.add(pg.insert(FOREIGN, ["b", "pause-snapshot", None]))
    changes = reader.decode(block, 100)
    assert changes.events == [
        SignalReceived(seq=Seq(101), id="ad-hoc", type="log", data='{"message": "ü"}'),
        SignalReceived(seq=Seq(103), id="b", type="pause-snapshot"),
    ]
    assert changes.last_seq == 103
    assert [r["_seq"] for r in changes.tables[0].rows.to_pylist()] == [100, 102]
    assert [start.first_seq for start in changes.transactions] == [100]


def test_a_signal_alone_is_a_transaction_and_a_table_of_other_columns_is_named() -> None:
    reader, _ = decoder(schema(), SIGNALS)
    block = signal_block("a", "b", "c", "d")
    block.add(pg.insert(FOREIGN, ["ad-hoc", "log", None, None]))
    changes = reader.decode(block, 100)
    (event,) = changes.events
    assert isinstance(event, SignalReceived) and event.fault is not None and "has 4 columns" in event.fault
    assert (changes.tables, changes.last_seq, len(changes.transactions)) == ([], 100, 1)


def test_a_signal_table_that_is_copied_has_its_rows_as_well() -> None:
    reader, _ = decoder(schema(), SignalTable("public", "t"))
    block = signal_block("x", "y", "z")
    block.add(pg.insert(CAPTURED, ["1", "2", "x"]))
    block.add(pg.update(CAPTURED, ["1", "3", "x"]))
    changes = reader.decode(block, 100)
    assert changes.events == [SignalReceived(seq=Seq(100), id="1", type="2", data="x")]
    assert changes.tables[0].rows.num_rows == 2 and changes.last_seq == 101


def test_signals_behind_a_change_that_stops_their_copied_table_are_read_as_well() -> None:
    reader, tables = decoder(schema("string"), SignalTable("public", "t"))
    block = signal_block("x", "y", "z")
    block.add(pg.insert(CAPTURED, ["1", "log", "x"]))
    for names in (("id", "a", "other"), ("id", "a", "once_more")):
        block.add(pg.relation(CAPTURED, names, ["id"]))
        block.add(pg.insert(CAPTURED, ["2", "log", names[2]]))
    changes = reader.decode(block, 100)
    assert not tables.is_captured(CAPTURED)
    assert [e.data for e in changes.events if isinstance(e, SignalReceived)] == ["x", "other", "once_more"]


@given(st.binary(max_size=30))
def test_a_damaged_row_of_the_signal_table_is_refused_by_name(damage: bytes) -> None:
    whole = pg.insert(FOREIGN, ["a", "log", "x"])
    try:
        pgoutput.inserted(whole[:8] + damage)
    except pgoutput.UnknownMessage as error:
        assert "cut off" in str(error)
