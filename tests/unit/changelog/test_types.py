import pyarrow as pa
import pytest

from tailrace.changelog.types import arrow_type, decimal_parts


def test_each_logical_type_has_its_arrow_type() -> None:
    assert arrow_type("timestamptz") == pa.timestamp("us", "UTC")
    assert arrow_type("decimal(38,10)") == pa.decimal128(38, 10)
    assert arrow_type("string") == pa.string()


@pytest.mark.parametrize("logical", ["decimal(39,0)", "decimal(3,4)", "decimal(0,0)", "text", "decimal(3)"])
def test_an_unknown_type_is_refused_by_name(logical: str) -> None:
    with pytest.raises(ValueError, match="unknown logical type"):
        arrow_type(logical)


def test_decimal_parts_are_read_from_the_text() -> None:
    assert decimal_parts("decimal(10,2)") == (10, 2)
    assert decimal_parts("int64") is None
