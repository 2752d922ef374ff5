"""Statistics of data files: true or absent."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.targets.lake.delta.stats import file_stats


def test_a_list_has_none_and_a_column_that_the_file_lacks_is_null() -> None:
    rows = pa.table({"id": [1, 2], "tags": pa.array([["a"], None])})
    out = io.BytesIO()
    pq.write_table(rows, out)
    added = pa.field("later", pa.int32())
    found = json.loads(file_stats(pq.read_metadata(out), [*rows.schema, added], tight=True))
    assert (found["nullCount"], found["minValues"]) == ({"id": 0, "later": 2}, {"id": 1})
