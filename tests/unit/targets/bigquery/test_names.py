"""Names of BigQuery that stand for any name, and for no other."""

import re
from random import Random

import pytest

from tailrace.targets.bigquery import names


def test_each_name_is_read_back_and_has_only_what_bigquery_allows() -> None:
    random, seen = Random(1), dict[str, str]()
    for _ in range(20_000):
        name = "".join(random.choice("__x0aéA1 .𝄞`") for _ in range(random.randint(1, 8)))
        written = names.written(name)
        assert re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", written) and names.read(written) == name
        assert seen.setdefault(written, name) == name


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("order_id", "order_id"),
        ("pos_x", "pos_x"),
        ("größe", "gr__xf6___xdf_e"),
        ("2nd", "__x32_nd"),
        ("_PARTITIONTIME", "__x0__PARTITIONTIME"),
        ("a__x41_", "a__x5f__x41_"),
    ],
)
def test_what_is_allowed_stays_and_the_rest_is_written_by_its_number(name: str, written: str) -> None:
    assert names.written(name) == written and names.read(written) == name
