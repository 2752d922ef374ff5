"""Which warnings of a server refuse the rows that it sent."""

import pytest

from tailrace.errors import ReadRefused
from tailrace.sources.mysql.answer_warnings import require_harmless


def test_an_answer_without_warnings_is_taken() -> None:
    require_harmless("d.t", 0, [])


@pytest.mark.parametrize("codes", [[1292], [1292, 1365, 1287], [3719]])
def test_warnings_about_expressions_and_old_words_are_harmless(codes: list[int]) -> None:
    require_harmless("d.t", 2000, codes)


@pytest.mark.parametrize(
    ("codes", "named"), [([1292, 1301], "1301 (WARN_ALLOWED_PACKET_OVERFLOWED)"), ([9999], "9999")]
)
def test_any_other_warning_is_refused_by_its_number(codes: list[int], named: str) -> None:
    with pytest.raises(ReadRefused) as refused:
        require_harmless("d.t", len(codes), codes)
    assert named in refused.value.message and "1292" not in refused.value.message


def test_warnings_that_the_server_does_not_tell_are_refused() -> None:
    with pytest.raises(ReadRefused):
        require_harmless("d.t", 3, [])
