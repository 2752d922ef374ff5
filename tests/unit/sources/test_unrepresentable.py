"""What becomes of values that a type cannot hold: each by itself, whatever stands beside it."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tailrace.contract.resources import TableOptions
from tailrace.sources.unrepresentable import sets_null, way_out, without_unrepresentable


@given(st.lists(st.none() | st.binary(max_size=2)), st.sets(st.binary(max_size=2)), st.integers(0, 3))
def test_exactly_the_values_that_do_not_fit_become_null(values: list[bytes | None], bad: set[bytes], skip: int) -> None:
    def fits(some: pa.Array) -> bool:
        return bad.isdisjoint(v for v in some.to_pylist() if v is not None)

    for kind in (pa.binary(), pa.large_binary()):
        found = without_unrepresentable(pa.array(values, kind).slice(skip), fits)
        found.validate(full=True)
        assert found.type == kind
        assert found.to_pylist() == [None if v in bad else v for v in values[skip:]]
        assert found.null_count == len(found) or b"".join(found.drop_null().to_pylist()) == _content(found)


def _content(values: pa.Array) -> bytes:
    """All bytes of the array, be they of nulls."""
    offsets = np.frombuffer(values.buffers()[1], np.int64 if values.type == pa.large_binary() else np.int32)
    first, last = offsets[values.offset], offsets[values.offset + len(values)]
    return bytes(values.buffers()[2] or b"")[first:last]


def test_a_million_equal_values_are_judged_once() -> None:
    judged = 0

    def fits(some: pa.Array) -> bool:
        nonlocal judged
        judged += len(some)
        return b"infinity" not in some.to_pylist()

    values = pa.array([b"infinity", b"2020-01-01"], pa.large_binary()).take(pa.array([0] * 500_000 + [1] * 500_000))
    assert without_unrepresentable(values, fits).null_count == 500_000
    assert judged == 4


def test_values_become_null_unless_the_tables_options_say_otherwise() -> None:
    assert sets_null(None) and sets_null(TableOptions(match="a.b"))
    assert not sets_null(TableOptions(match="a.b", on_unsupported="Fail"))


def test_the_way_out_of_a_key_does_not_offer_null() -> None:
    assert "onUnsupported: SetNull" in way_out("s.t", "c", key=False)
    assert "SetNull" not in way_out("s.t", "c", key=True) and "cannot become NULL" in way_out("s.t", "c", key=True)
