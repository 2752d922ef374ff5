"""A masked column through capture, change log, chunks and apply: no file holds a clear value."""

import hmac
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.clear_values import decoded_rows, found_in
from support.scripted_database import Change, Database
from support.scripted_runs import Copy
from tailrace.selection import masking

MARKER = "clear-Ada-7f3a"
KEY = "k" * 32


@pytest.fixture
def key(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "mask-key"
    path.write_text(KEY)
    masking.configure(str(path))
    yield path
    masking.configure(None)


def masked_copy(folder: Path, **mask: Any) -> Copy:
    database = Database(["orders"])
    database.commit(*(Change("I", 1, i, f"{MARKER}-{i % 5}") for i in range(1, 31)))
    copy = Copy(database, folder)
    copy.document["spec"]["options"] = [{"match": "main.*", "mask": [{"column": "v", **mask}]}]
    copy.document["spec"]["maskKey"] = {"file": str(folder / "mask-key")}
    return copy


def changed(copy: Copy, first: int) -> None:
    """By the log."""
    moved = (Change("D", 1, first), Change("M", 1, first + 1000, f"{MARKER}-{first % 5}", first))
    copy.database.commit(Change("U", 1, first + 1, f"{MARKER}-9"), Change("D", 1, first + 2), *moved)
    copy.database.commit(Change("I", 1, first + 2000, f"{MARKER}-{first % 5}"))
    copy.level()


def by_hand(text: str | None, method: str) -> str | None:
    if text is None:
        return None
    return {"Hash": hmac.new(KEY.encode(), text.encode(), "sha256").hexdigest(), "Redact": "***"}.get(method, text[:5])


@pytest.mark.parametrize(
    "mask", [{"method": "Hash"}, {"method": "Redact"}, {"method": "Truncate", "length": 5}], ids=lambda m: m["method"]
)
def test_no_file_holds_a_clear_value_and_log_and_chunks_have_equal_masks(
    tmp_path: Path, key: Path, mask: dict[str, Any]
) -> None:
    copy = masked_copy(tmp_path, **mask)
    with copy.running():
        copy.level()
        changed(copy, 1)
    with copy.running():
        changed(copy, 11)
        copy.ask("main.orders")
        copy.level()
        assert copy.driver.faults() == {}
    rows = copy.database.rows(1)
    assert copy.rows(1) == {i: by_hand(v, mask["method"]) for i, v in rows.items()}
    assert MARKER in str(rows[2]) and decoded_rows(tmp_path / "log") >= 10 and decoded_rows(tmp_path / "lake") >= 30
    assert found_in(tmp_path, MARKER) == [] and found_in(tmp_path, KEY) == [str(key)]


def test_without_a_mask_the_search_finds_the_values_in_segments_and_chunks(tmp_path: Path, key: Path) -> None:
    copy = masked_copy(tmp_path, method="Redact")
    del copy.document["spec"]["options"]
    with copy.running():
        copy.level()
        changed(copy, 1)
    found = found_in(tmp_path, MARKER)
    assert {Path(path).relative_to(tmp_path).parts[0] for path in found} == {"lake", "log"}
    assert any(path.endswith(".arrow") for path in found)


def test_chunks_are_not_hashed_with_another_key_than_the_log(tmp_path: Path, key: Path) -> None:
    """The driver was started with a key that capture does not have: its chunks wait."""
    copy = masked_copy(tmp_path, method="Hash")
    with copy.running():
        copy.level()
        before = copy.rows(1)
        key.write_text("o" * 32)
        masking.configure(str(key))
        copy.ask("main.orders")
        for _ in range(50):
            copy.turn()
        assert copy.rows(1) == before
        assert not any(s.chunks for t in copy.state.snapshots["request-1"].tables.values() for s in [t])
