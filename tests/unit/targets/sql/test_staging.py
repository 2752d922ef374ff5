"""Rows that are brought to a server."""

import pyarrow as pa
import pytest

from tailrace.targets.sql.staging import in_key_order


@pytest.mark.parametrize("name", ["id", ".id", "[0]", "a.b", ".", "größe"])
def test_rows_are_sorted_by_a_key_of_any_name(name: str) -> None:
    rows = pa.table([pa.array(["c", "b", "a"]), pa.array([2, 1, 2]), pa.array([3, 2, 1])], names=["v", name, "n"])
    assert in_key_order(rows, [name, "n"]).column("v").to_pylist() == ["b", "a", "c"]


def test_rows_whose_key_has_no_order_stay_as_they_are() -> None:
    rows = pa.table({"id": pa.array([[2], [1]]), "n": [1, 2]})
    assert in_key_order(rows, ["id"]).equals(rows)
