import pytest

from tailrace.targets.mysql.json_documents import literal


@pytest.mark.parametrize(
    ("document", "expression"),
    [
        ('{"a": "it\'s 1"}', "'{\"a\": \"it''s 1\"}'"),
        ("[1.5, 1e300, 0.25, 18446744073709551615]", "'[1.5, 1e300, 0.25, 18446744073709551615]'"),
        ("1.50", "CAST(1.50 AS JSON)"),
        ('"1.50"', "'\"1.50\"'"),
        ('{"a": 1.50, "it\'s": [null, true, 2.5, "x\\n"]}',
         "JSON_OBJECT('a', 1.50, 'it''s', JSON_ARRAY(NULL, true, 2.5e0, 'x\n'))"),
        ("[18446744073709551616, -0.0]", "JSON_ARRAY(18446744073709551616, -0.0e0)"),
    ],
)  # fmt: skip
def test_numbers_of_decimals_keep_their_digits(document: str, expression: str) -> None:
    assert literal(document) == expression
