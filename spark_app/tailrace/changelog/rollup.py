"""Roll-ups: the state after a record, as a head and parts. The writer makes one now and then; every start loads one.

    journal/rollup/<n>.json   head: the state after record n, without the blocks of its packed rows; names its parts
    journal/parts/<m>.json    part: blocks that were filled between the roll-up before m and m

A block never changes, so it is stored once, in the part of the roll-up after it was filled. What a roll-up writes is
the new blocks and the head, whose size is that of the tables and of what is under way, not that of the log. A part goes
when no roll-up that is kept names it, and a roll-up names the parts of which it still needs a block.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from tailrace.changelog.packed import BLOCK, WITHOUT_BLOCKS, PackedRows, block_of, block_text
from tailrace.changelog.paths import PARTS, ROLLUPS, number_of, part_path, rollup_path
from tailrace.changelog.records import check_format
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.state import LogState
from tailrace.errors import CorruptLog, Retry, privacy
from tailrace.storage.store import NotFound, Storage

ATTEMPTS = 3
"""To load a roll-up that goes meanwhile because two newer ones were made."""
TRANSACTIONS, COMMIT_TIMES, NEWEST_COMMITS = "transactions", "commit-times", "newest-commits"


class Rollups:
    """The contents of the newest roll-up, as its loader or its writer knows them. `number` -1: there is none."""

    def __init__(
        self, number: RecordNumber = RecordNumber(-1), parts: Mapping[RecordNumber, Mapping[str, int]] | None = None
    ) -> None:
        self.number = number
        self._parts = dict(parts or {})
        """The number of the block after its last, by part, of each packed rows in it."""

    @classmethod
    def load(cls, storage: Storage) -> tuple["Rollups", LogState]:
        """The newest roll-up, or none and the empty state. Lists one small folder: at a start only."""
        for _ in range(ATTEMPTS):
            newest = max(numbers(storage, ROLLUPS), default=None)
            if newest is None:
                return cls(), LogState()
            try:
                return cls._read(storage, newest)
            except NotFound as error:
                if storage.exists(rollup_path(newest)):  # `trim_rollups` removes the head first
                    raise CorruptLog(
                        f"roll-up {newest} names a part that is missing: {error.message}",
                        "Put it back; or remove the roll-up if the records before it still exist; or start a new change"
                        " log and take a snapshot.",
                    ) from error
                gone = error
        raise Retry(f"roll-ups of the journal go faster than they are read: {gone.message}") from gone

    @classmethod
    def _read(cls, storage: Storage, number: RecordNumber) -> tuple["Rollups", LogState]:
        parts: dict[RecordNumber, dict[str, int]] = {}
        try:
            head = json.loads(storage.get(rollup_path(number)))
            document = head.get("state", head)
            check_format(document["origin"]["format_version"])
            wanted = dict(_row_documents(document))
            found: dict[str, dict[int, str]] = {key: {} for key in wanted}
            for part in head["parts"]:
                parts[part] = _collect(json.loads(storage.get(part_path(part))), wanted, found)
            for key, rows in wanted.items():
                needed = range(rows["offset"] // BLOCK, rows["end"] // BLOCK)
                rows["blocks"] = [block_of(found[key][n], rows["width"]) for n in needed]
            state = LogState.model_validate(document)
        except (ValidationError, ValueError, KeyError, TypeError) as error:
            raise CorruptLog(
                f"roll-up {number} is not readable: {privacy.error_text(error)}",
                "Remove it if the records before it still exist.",
            ) from error
        if state.number != number:
            raise CorruptLog(f"roll-up {number} holds the state of record {state.number}")
        return cls(number, parts), state

    def write(self, storage: Storage, state: LogState) -> int:
        """Store the state; returns the bytes. Afterwards `number` is the state's."""
        kept = dict(_packed(state))
        parts = {n: ends for n, ends in self._parts.items() if _needed(ends, kept)}
        stored: dict[str, int] = {}
        for ends in self._parts.values():
            stored |= {key: max(end, stored.get(key, 0)) for key, end in ends.items()}
        new = {key: (max(stored.get(key, 0), rows.first_block), rows) for key, rows in kept.items()}
        blocks = {key: (start, rows.blocks[start - rows.first_block :]) for key, (start, rows) in new.items()}
        blocks = {key: one for key, one in blocks.items() if one[1]}
        size = 0
        if blocks:
            part = {key: {"first": start, "blocks": [*map(block_text, some)]} for key, (start, some) in blocks.items()}
            data = json.dumps({"number": state.number, "rows": part}).encode()
            storage.put(part_path(state.number), data)
            # Dying here leaves a part that no roll-up names: `trim_rollups` removes it, its blocks are stored again.
            parts[state.number] = {key: start + len(some) for key, (start, some) in blocks.items()}
            size = len(data)
        text = state.model_dump_json(context=WITHOUT_BLOCKS)
        head = f'{{"number":{state.number},"parts":{json.dumps(sorted(parts))},"state":{text}}}'.encode()
        storage.put(rollup_path(state.number), head)
        self.number, self._parts = state.number, parts
        return size + len(head)


def trim_rollups(storage: Storage, keep: int) -> None:
    """Remove all roll-ups but the newest `keep`, then the parts that none of these names."""
    known = numbers(storage, ROLLUPS)
    named: set[RecordNumber] = set()
    for number in known[-keep:]:
        named |= set(json.loads(storage.get(rollup_path(number))).get("parts", ()))
    for number in known[:-keep]:
        storage.delete(rollup_path(number))
    # A part above the newest roll-up is of one that is being written.
    for number in numbers(storage, PARTS):
        if known and number <= known[-1] and number not in named:
            storage.delete(part_path(number))


def numbers(storage: Storage, folder: str) -> list[RecordNumber]:
    return sorted(n for path, _ in storage.list(folder) if (n := number_of(path)) is not None)


def _packed(state: LogState) -> Iterator[tuple[str, PackedRows]]:
    """All packed rows of the state by a name that never comes again: a table that comes back has another record."""
    yield TRANSACTIONS, state.transactions.rows
    yield COMMIT_TIMES, state.commit_times
    yield NEWEST_COMMITS, state.newest_commits
    for table in state.tables.values():
        yield f"{table.table_id}.{table.added_record}", table.segments.rows


def _row_documents(state: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The packed rows in a head's document."""
    yield TRANSACTIONS, state["transactions"]["rows"]
    yield COMMIT_TIMES, state["commit_times"]
    if "newest_commits" in state:  # not in those of older versions
        yield NEWEST_COMMITS, state["newest_commits"]
    for table in state["tables"].values():
        yield f"{table['table_id']}.{table['added_record']}", table["segments"]["rows"]


def _collect(
    part: dict[str, Any], wanted: Mapping[str, dict[str, Any]], found: dict[str, dict[int, str]]
) -> dict[str, int]:
    """Take the part's blocks that the head needs; returns what the part holds."""
    ends: dict[str, int] = {}
    for key, one in part["rows"].items():
        ends[key] = one["first"] + len(one["blocks"])
        if key in wanted:
            first = wanted[key]["offset"] // BLOCK
            found[key] |= {n: text for n, text in enumerate(one["blocks"], one["first"]) if n >= first}
    return ends


def _needed(ends: Mapping[str, int], kept: Mapping[str, PackedRows]) -> bool:
    return any(key in kept and end > kept[key].first_block for key, end in ends.items())
