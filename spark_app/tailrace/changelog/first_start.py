"""The note of a first start: the origin of the change log to be, written before anything is made in the source, and
removed once record 0 stands.

What the source has without a journal is ours only where this note says so: the next start makes it again, `tailrace
drop` drops it for good.
"""

import json

from pydantic import ValidationError

from tailrace.changelog.paths import FIRST_START
from tailrace.changelog.records import Origin, check_format
from tailrace.errors import CorruptLog
from tailrace.storage.store import NotFound, Storage


def write(storage: Storage, origin: Origin) -> None:
    storage.put(FIRST_START, origin.model_dump_json().encode())


def read(storage: Storage) -> Origin | None:
    """None: no first start was interrupted."""
    try:
        data = storage.get(FIRST_START)
    except NotFound:
        return None
    _check_format(data)
    try:
        return Origin.model_validate_json(data)
    except ValidationError as error:
        raise CorruptLog(
            f"{storage.uri(FIRST_START)} is not readable",
            "Remove it, and drop what that start made in the source, if it made anything.",
        ) from error


def _check_format(data: bytes) -> None:
    """First: in another format the other fields may not be what this version expects."""
    try:
        version = json.loads(data)["format_version"]
    except (ValueError, KeyError, TypeError):
        return  # its model says what is wrong
    check_format(version)


def forget(storage: Storage) -> None:
    storage.delete(FIRST_START)
