"""The note of a first start that was interrupted."""

import json
from pathlib import Path

import pytest

from tailrace.changelog import first_start
from tailrace.changelog.paths import FIRST_START
from tailrace.contract.resources import StorageLocation
from tailrace.errors import CorruptLog
from tailrace.storage.store import Storage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(StorageLocation(location=tmp_path.as_uri()))


def test_a_note_of_the_first_format_is_refused_by_its_number(storage: Storage) -> None:
    note = {"kind": "origin", "format_version": 1, "log_id": "l", "system_identifier": "7", "timeline": 1, "slot": "s"}
    storage.put(FIRST_START, json.dumps(note).encode())
    with pytest.raises(CorruptLog, match="format version 1, this is 6"):
        first_start.read(storage)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"kind": "origin"}'])
def test_a_note_that_is_none_is_told_with_its_place(storage: Storage, data: bytes) -> None:
    storage.put(FIRST_START, data)
    with pytest.raises(CorruptLog, match="is not readable"):
        first_start.read(storage)


def test_without_a_note_no_first_start_was_interrupted(storage: Storage) -> None:
    assert first_start.read(storage) is None
