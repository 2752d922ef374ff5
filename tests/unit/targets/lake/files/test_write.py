"""Data files: which columns are written with a dictionary."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.lake import LocalFiles
from tailrace.targets.lake.files import write
from tailrace.targets.lake.files.access import footer_size
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


def test_a_file_of_few_bytes_is_not_compressed_and_its_footer_counts_with_what_it_has(tmp_path: Path) -> None:
    table = pa.table({"k": pa.array(range(4), pa.int64()), "note": ["a", "b", None, "d"]})
    (written,) = write_physical(LocalFiles(), tmp_path.as_uri(), table.schema, [table])
    path = written.file.path.removeprefix("file://")
    footer = pq.read_metadata(path)
    assert footer.row_group(0).column(1).compression == "UNCOMPRESSED" and pq.read_table(path).equals(table)
    assert written.footer.equals(footer) and footer_size(Path(path).read_bytes()[-8:]) == footer.serialized_size
    assert written.footer.row_group(0).column(0).statistics.max == 3


def test_rows_that_come_after_few_small_ones_are_compressed_however_huge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "GROUP_BYTES", 100_000)
    few, huge = pa.table({"text": ["x"]}), pa.table({"text": ["y" * 99_999]})
    made = list(write_physical(LocalFiles(), tmp_path.as_uri(), few.schema, [few, huge, huge]))
    assert [item.file.rows for item in made] == [1, 2]
    assert [item.footer.row_group(0).column(0).compression for item in made] == ["UNCOMPRESSED", "ZSTD"]
