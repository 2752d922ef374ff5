"""Data files: which columns are written with a dictionary."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.lake import LocalFiles
from tailrace.targets.lake.files.write import FEWEST, write_physical

ROWS = 20_000


@pytest.mark.parametrize("rows", [FEWEST - 1, ROWS])
def test_only_columns_that_repeat_themselves_have_a_dictionary(rows: int, tmp_path: Path) -> None:
    number = np.arange(rows)
    table = pa.table(
        {
            "unique": number,
            "seldom": number % (rows // 5),
            "often": pa.array(np.array(["new", "paid", "sent"])[number % 3]),
            "null": pa.nulls(rows, pa.string()),
            "list": [[1, 2]] * rows,
        }
    )
    (written,) = write_physical(LocalFiles(), tmp_path.as_uri(), table.schema, [table])
    group = written.footer.row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    repeated = {column.path_in_schema for column in columns if column.has_dictionary_page}
    assert repeated - {"null"} == ({"often"} if rows == ROWS else set())
    assert pq.read_table(written.file.path.removeprefix("file://")).equals(table)
