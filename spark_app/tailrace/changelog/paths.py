"""Names of the change log's objects, relative to its root."""

import re

from tailrace.changelog.records.terms import RecordNumber, Seq, TableSchema
from tailrace.storage.path_names import encode

JOURNAL = "journal/"
ROLLUPS = "journal/rollup/"
PARTS = "journal/parts/"
SEGMENTS = "segments/"
BUNDLES = "segments/bundles/"
FIRST_START = "first-start.json"
"""Written before anything is made in the source: what is there without a journal is ours only where this stands."""
RENEWAL = "renewal.json"
"""Written by `tailrace resync --all`: the next start begins the stream again and starts every table over."""
DROPPED = "dropped.json"
"""Written before tables and change log are deleted: which of them were proven to be this log's. Goes last."""
FRESHNESS = "freshness.json"
"""How old changes were when they became visible in the target, over the last days."""
_NUMBERED = re.compile(r"(\d{20})\.json")
_SEGMENT = re.compile(r"segments/[^/]+-(\d+)/(\d+)-(\d+)-[0-9a-f]+\.parquet")
_BUNDLE = re.compile(rf"{BUNDLES}(\d+)-(\d+)-[0-9a-f]+\.arrow")
MAX_NAME = 180
"""File systems end at 255 bytes a name; a table's id makes a shortened name unique."""


def record_path(number: int) -> str:
    return f"{JOURNAL}{number:020d}.json"


def rollup_path(number: int) -> str:
    return f"{ROLLUPS}{number:020d}.json"


def part_path(number: int) -> str:
    """The path of the roll-up part after record `number`: the blocks that it stores."""
    return f"{PARTS}{number:020d}.json"


def number_of(path: str) -> RecordNumber | None:
    """The number in a record's or a roll-up's path."""
    match = _NUMBERED.fullmatch(path.rpartition("/")[2])
    return None if match is None else RecordNumber(int(match[1]))


def segment_path(table: TableSchema, first_seq: Seq, last_seq: Seq, token: str) -> str:
    """`token` is random: a writer that starts again never meets the file it left behind."""
    name = f"{encode(table.schema_name)}.{encode(table.table_name)}"[:MAX_NAME]
    return f"{SEGMENTS}{name}-{table.table_id}/{first_seq}-{last_seq}-{token}.parquet"


def bundle_path(first_seq: Seq, last_seq: Seq, token: str) -> str:
    """The path of small segments of several tables, with the range of all their sequences."""
    return f"{BUNDLES}{first_seq}-{last_seq}-{token}.arrow"


def is_bundle(path: str) -> bool:
    return path.startswith(BUNDLES)


def segment_range(path: str) -> tuple[Seq, Seq] | None:
    """The sequence range in the path of a segment or a bundle."""
    match = _BUNDLE.fullmatch(path) or _SEGMENT.fullmatch(path)
    return None if match is None else (Seq(int(match[match.re.groups - 1])), Seq(int(match[match.re.groups])))


def segment_table(path: str) -> int | None:
    """The table's id in a segment's path; None: it is a bundle's, or a foreign file's."""
    match = _SEGMENT.fullmatch(path)
    return None if match is None else int(match[1])
