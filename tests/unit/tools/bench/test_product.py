"""What `bench.product` compares: only figures that were measured in the same way."""

import json

import pytest

from bench import product


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ([], "delta 200 5s"),
        (["--changing", "200", "--rate", "200", "--rows", "10"], "delta 200 5s"),
        (["--freshness", "500ms"], "delta 200 500ms"),
        (["--rate", "1000"], "delta 200 5s rate=1000"),
        (["--rows", "100000"], "delta 200 5s rows=100000"),
        (["--changing", "20", "--rate", "40"], "delta 200 5s changing=20 rate=40"),
    ],
)
def test_figures_of_other_rows_or_rates_have_another_name(arguments: list[str], name: str) -> None:
    """The ratio to 200 tables of ten rows was printed for any."""
    assert product.measured("delta", product.parse(arguments)) == name
    assert (name in json.loads(product.KEPT.read_text())) == ("=" not in name)
