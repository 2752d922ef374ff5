"""Masks: what a column's values are replaced by before a row is written anywhere.

A mask is a short text, which the change log keeps with the column (`changelog.records.terms.Column.mask`): `Redact`,
`Truncate 4`, or `Hash 9f1c2a3b` with the fingerprint of the key that hashes. A source reads a masked column as its
exact text. The rows of the log and those of chunks are masked by the same function: equal values come out equal.

The key never leaves the process: other processes and executors get the path of its file (`VARIABLE`).
"""

import hmac
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.changelog.records.terms import Column
from tailrace.errors import InvalidManifest, Retry

VARIABLE = "TAILRACE_MASK_KEY_FILE"
HASH, REDACT, TRUNCATE = "Hash", "Redact", "Truncate"
REDACTED = "***"
LEAST_BYTES = 16
"""Smallest length of a key: it cannot be guessed by trying."""
DIGEST = "sha256"
_FINGERPRINTED = b"tailrace: fingerprint of a mask key"

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


@dataclass
class _Process:
    key: bytes | None = None
    """The key as it was when this process was configured; None: there is none, or this is an executor, which reads the
    file for each batch."""


_process = _Process()


def configure(key_file: str | None, what: str = "the mask key file") -> None:
    """Configures this process and those that it starts. `what`: the file, in a message. `InvalidManifest`: it holds no
    key."""
    _process.key = None if key_file is None else _read(key_file, what)
    if key_file is None:
        os.environ.pop(VARIABLE, None)
    else:
        os.environ[VARIABLE] = key_file


def _read(path: str, what: str) -> bytes:
    try:
        key = Path(path).read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise InvalidManifest(
            f"spec.maskKey: {what} cannot be read: {error.strerror}", "Write the key into it, or correct spec.maskKey."
        ) from None
    if len(key) < LEAST_BYTES:
        raise InvalidManifest(
            f"spec.maskKey: {what} has {len(key)} bytes, fewer than {LEAST_BYTES}",
            "Write a random key into it, such as the output of `openssl rand -hex 32`.",
        )
    return key


def hashed_by(key: bytes) -> str:
    """The mask of columns that this key hashes."""
    return f"{HASH} {hmac.digest(key, _FINGERPRINTED, DIGEST).hex()[:8]}"


def own_hash() -> str | None:
    """The mask of columns that are hashed by this process; None: it has no key."""
    key = _own_key()
    return None if key is None else hashed_by(key)


def _own_key() -> bytes | None:
    path = os.environ.get(VARIABLE)
    return _process.key if _process.key is not None or path is None else _read(path, "the mask key file")


def unmaskable(columns: Iterable[Column]) -> str | None:
    """The first column whose mask this process cannot make, because it was made with another key."""
    hashed = [c for c in columns if c.mask is not None and c.mask.startswith(HASH)]
    own = own_hash() if hashed else None
    return next((c.name for c in hashed if c.mask != own), None)


def masked(rows: Rows, columns: Iterable[Column]) -> Rows:
    """The rows with the values of masked columns replaced. NULL stays NULL. Raises ValueError where one is missing."""
    for column in columns:
        if column.mask is not None:
            place = rows.schema.names.index(column.name)  # Arrow's own look-up would say -1, the last column
            values = _masked(rows.column(place), column.mask)
            rows = rows.set_column(place, rows.schema.field(place), values)
    return rows


def _masked(values: pa.Array | pa.ChunkedArray, mask: str) -> pa.Array | pa.ChunkedArray:
    kind, _, parameter = mask.partition(" ")
    match kind:
        case "Hash":
            return _hashed(values, mask)
        case "Redact":
            return pc.if_else(pc.is_valid(values), pa.scalar(REDACTED), pa.scalar(None, pa.string()))
        case "Truncate":
            return pc.utf8_slice_codeunits(values, 0, int(parameter))
        case _:
            raise ValueError(f"unknown mask {mask!r}")


def _hashed(values: pa.Array | pa.ChunkedArray, mask: str) -> pa.Array | pa.ChunkedArray:
    key = _own_key()
    if key is None or hashed_by(key) != mask:
        raise Retry("the mask key is not the one that this table was hashed with", "Restart the driver.")
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([_digests(chunk, key) for chunk in values.chunks], pa.string())
    return _digests(values, key)


def _digests(values: pa.Array, key: bytes) -> pa.Array:
    """Each distinct value once."""
    encoded = values.dictionary_encode()
    texts = [hmac.digest(key, text.encode(), DIGEST).hex() for text in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)
