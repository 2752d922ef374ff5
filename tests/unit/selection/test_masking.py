"""What becomes of values under each mask, and of a key that is another one."""

import hashlib
import hmac
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tailrace.changelog.records.terms import Column
from tailrace.errors import InvalidManifest, Retry
from tailrace.selection import masking

KEY = b"0123456789abcdef0123456789abcdef"
TEXTS = ["", "Ada", None, "é\U0001f600x", "Ada", "9" * 70_000]


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv(masking.VARIABLE, raising=False)
    path = tmp_path / "key"
    path.write_bytes(KEY + b"\n")
    masking.configure(str(path))
    yield path
    masking.configure(None)


def column(name: str, mask: str | None) -> Column:
    return Column(name=name, id=1, source_type="text", type="string", mask=mask)


def test_a_masked_column_that_the_rows_do_not_have_is_an_error() -> None:
    """The last column was masked in its stead."""
    rows = pa.table({"a": ["x"], "b": ["y"]})
    with pytest.raises(ValueError, match="v"):
        masking.masked(rows, [column("v", "Redact")])


def masked(texts: list[str | None], mask: str) -> list[str | None]:
    """By the rows of a chunk and, in several pieces, by those of the log: both are the same."""
    array, schema = pa.array(texts, pa.string()), pa.schema([("a", pa.int64()), ("v", pa.string())])
    numbers = pa.array(range(len(texts)), pa.int64())
    batch = pa.record_batch([numbers, array], schema)
    table = pa.Table.from_batches([batch.slice(0, 2), batch.slice(2)])
    columns = [column("a", None), column("v", mask)]
    by_chunk, by_log = masking.masked(batch, columns), masking.masked(table, columns)
    assert by_chunk.schema == by_log.schema == schema and by_chunk["a"].equals(numbers)
    found: list[str | None] = by_log["v"].to_pylist()
    assert by_chunk["v"].to_pylist() == found
    return found


def test_hashes_are_hmac_sha_256_of_the_text_in_hexadecimal(key: Path) -> None:
    mask = masking.own_hash()
    assert mask is not None and mask.startswith("Hash ")
    wanted = [None if t is None else hmac.new(KEY, t.encode(), hashlib.sha256).hexdigest() for t in TEXTS]
    assert masked(TEXTS, mask) == wanted


def test_redacted_values_are_all_the_same_and_null_stays_null() -> None:
    assert masked(TEXTS, "Redact") == [None if t is None else "***" for t in TEXTS]


def test_truncated_values_keep_so_many_characters() -> None:
    assert masked(TEXTS, "Truncate 2") == ["", "Ad", None, "é\U0001f600", "Ad", "99"]


def test_no_rows_and_nothing_but_nulls_are_masked(key: Path) -> None:
    for mask in (masking.own_hash() or "", "Redact", "Truncate 1"):
        assert masked([], mask) == [] and masked([None, None], mask) == [None, None]


def test_a_mask_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown mask 'Shuffle'"):
        masked(["a"], "Shuffle")


def test_values_are_not_hashed_with_another_key_than_their_column_is(key: Path, tmp_path: Path) -> None:
    before = masking.own_hash()
    assert masking.unmaskable([column("v", before), column("w", "Redact"), column("x", None)]) is None
    other = tmp_path / "other"
    other.write_bytes(KEY[::-1])
    masking.configure(str(other))
    assert masking.own_hash() != before
    assert masking.unmaskable([column("w", "Redact"), column("v", before)]) == "v"
    with pytest.raises(Retry, match="not the one that this table was hashed with"):
        masked(["a"], before or "")
    masking.configure(None)
    assert masking.unmaskable([column("v", before)]) == "v"


def test_a_process_keeps_the_key_that_it_was_configured_with(key: Path) -> None:
    before = masking.own_hash()
    key.write_bytes(KEY[::-1])
    assert masking.own_hash() == before


def test_an_executor_reads_the_key_by_its_path(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_driver, mask = masked(["Ada"], masking.own_hash() or ""), masking.own_hash()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(masking, "_process", masking._Process())
        assert masked(["Ada"], mask or "") == by_driver
        key.write_bytes(KEY[::-1])
        with pytest.raises(Retry):
            masked(["Ada"], mask or "")


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read: No such file"), (b"", "has 0 bytes, fewer than 16"), (b"short\r\n", "has 5 bytes")],
)
def test_a_file_without_a_key_is_named_and_nothing_of_it_is_shown(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidManifest, match=rf"spec\.maskKey: the mask key file {said}") as caught:
        masking.configure(str(path))
    assert "short" not in str(caught.value) and "spec.maskKey" in f"{caught.value.fix}{caught.value.message}"
