"""Rows as a server sent them, with a number more in each."""

import numpy as np
import pyarrow as pa

from tailrace.databases.wire import WireRows
from tailrace.targets.postgresql.binary import encodings, tuples
from tailrace.targets.postgresql.wire import numbered
from tailrace.targets.sql.session import NUMBER

COLUMNS = [("k", "bigint"), ("t", "text"), ("d", "date")]
ROWS = pa.table(
    {"k": [3, 1, 2], "t": ["a", None, "xyz" * 100], "d": pa.array([None, 5, 9], pa.int32()).cast(pa.date32())}
)


def test_rows_get_numbers_before_their_values() -> None:
    written = encodings(COLUMNS, ROWS.schema)
    assert written is not None
    parts = [tuples(ROWS.slice(at, 1), written) for at in range(3)]
    sent = WireRows(b"".join(parts), np.cumsum([len(part) for part in parts]), pa.record_batch({"k": [3, 1, 2]}))
    wanted = ROWS.add_column(0, NUMBER, pa.array([70, 71, 72]))
    assert numbered(sent, 70, 4) == tuples(wanted, encodings([(NUMBER, "bigint"), *COLUMNS], wanted.schema) or [])
