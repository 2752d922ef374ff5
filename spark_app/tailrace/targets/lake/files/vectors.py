"""Deletion vectors as bytes: Delta's own files and inline form, Iceberg's Puffin blob `deletion-vector-v1`.

The committers call this between locate and commit. Both formats frame a vector alike: length (big endian, of what
follows it without the checksum), magic, 64-bit roaring bitmap in the portable form, CRC-32 (big endian) of magic and
bitmap. They differ in the file around it. Nothing here touches storage: bytes in, bytes out.
"""

import json
import string
import struct
import uuid
import zlib
from base64 import b85encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyroaring import BitMap64

from tailrace.errors import RESYNC, TargetRefused

MAGIC = struct.pack("<I", 1681511377)
"""Portable roaring bitmaps; the same four bytes (D1 D3 39 64) open Iceberg's blob."""
INLINE_LIMIT = 1024
"""A Delta vector of at most this many bytes goes into the log itself: one object less to write and read."""
PUFFIN_MAGIC = b"PFA1"
ROW_POSITION_FIELD = 2147483645
"""Iceberg's reserved field id of the row position, which a vector's blob must name."""

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = string.digits + string.ascii_uppercase + string.ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85 = bytes.maketrans(_B85.encode(), _Z85.encode())
"""The letters of Python's own form of the same numbers, exchanged for these."""
_Z85_VALUE = {char: value for value, char in enumerate(_Z85)}
_DELTA_VERSION = b"\x01"
_UUID_CHARS = 20


def z85_encode(data: bytes) -> str:
    """Z85; the data is padded with zero bytes to a multiple of four (the reader knows the true size)."""
    return b85encode(data, pad=True).translate(_TO_Z85).decode()


def z85_decode(text: str) -> bytes:
    if len(text) % 5:
        raise TargetRefused(f"deletion vector text of {len(text)} characters is not Z85", "Check the table's log.")
    out = bytearray()
    for start in range(0, len(text), 5):
        word = 0
        for char in text[start : start + 5]:
            word = word * 85 + _Z85_VALUE[char]
        out += struct.pack(">I", word)
    return bytes(out)


def encode(dead: BitMap64) -> bytes:
    """Magic and portable bitmap: what both formats call the serialized vector."""
    compact = BitMap64(dead)
    compact.run_optimize()
    return MAGIC + bytes(compact.serialize())


def decode(data: bytes, where: str) -> BitMap64:
    if data[:4] != MAGIC:
        raise TargetRefused(
            f"deletion vector in {where} starts with {data[:4].hex()}, expected {MAGIC.hex()}",
            "The table uses a vector encoding that Tailrace does not know.",
        )
    return BitMap64.deserialize(data[4:])


def frame(dead: BitMap64) -> bytes:
    """Length, vector, checksum: a whole Puffin blob, and an entry of a Delta vector file."""
    body = encode(dead)
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def unframe(data: bytes, where: str) -> BitMap64:
    """The reverse of `frame`, length and checksum proven."""
    (length,) = struct.unpack_from(">I", data)
    body = data[4 : 4 + length]
    if len(data) < length + 8 or struct.unpack_from(">I", data, 4 + length)[0] != zlib.crc32(body):
        raise TargetRefused(
            f"deletion vector in {where} is damaged (length or checksum)",
            f"Restore the file, or {RESYNC}.",
        )
    return decode(body, where)


@dataclass(frozen=True)
class DeltaVector:
    """Delta's descriptor of one vector, as it stands in the log."""

    storage: str
    """`i` inline, `u` file named by a UUID below the table, `p` absolute path."""
    path_or_inline: str
    offset: int | None
    size: int
    """Bytes of the serialized vector."""
    cardinality: int

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "DeltaVector":
        return cls(
            value["storageType"],
            value["pathOrInlineDv"],
            value.get("offset"),
            value["sizeInBytes"],
            value["cardinality"],
        )

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "storageType": self.storage,
            "pathOrInlineDv": self.path_or_inline,
            "sizeInBytes": self.size,
            "cardinality": self.cardinality,
        }
        return out if self.offset is None else out | {"offset": self.offset}

    def path(self, location: str) -> str:
        """The file that holds the vector (not for inline ones)."""
        if self.storage == "p":
            return self.path_or_inline
        prefix, name = self.path_or_inline[:-_UUID_CHARS], self.path_or_inline[-_UUID_CHARS:]
        folder = f"{location}/{prefix}" if prefix else location
        return f"{folder}/deletion_vector_{uuid.UUID(bytes=z85_decode(name))}.bin"


def inline_delta(dead: BitMap64) -> DeltaVector | None:
    """The inline form; None when the vector is too large for the log."""
    body = encode(dead)
    if len(body) > INLINE_LIMIT:
        return None
    return DeltaVector("i", z85_encode(body), None, len(body), len(dead))


def delta_file(vectors: Mapping[str, BitMap64], file_id: uuid.UUID) -> tuple[str, bytes, dict[str, DeltaVector]]:
    """One Delta vector file: its name below the table, its bytes, and each data file's descriptor."""
    out = bytearray(_DELTA_VERSION)
    where: dict[str, DeltaVector] = {}
    name = z85_encode(file_id.bytes)
    for path, dead in vectors.items():
        entry = frame(dead)
        where[path] = DeltaVector("u", name, len(out), len(entry) - 8, len(dead))
        out += entry
    return f"deletion_vector_{file_id}.bin", bytes(out), where


def read_delta(vector: DeltaVector, location: str, read: Callable[[str, int, int], bytes]) -> BitMap64:
    """The positions of a descriptor; `read(uri, offset, length)` fetches bytes."""
    if vector.storage == "i":
        return _counted(decode(z85_decode(vector.path_or_inline)[: vector.size], "the log"), vector, "the log")
    if vector.storage not in ("u", "p"):
        raise TargetRefused(f"deletion vector of unknown storage type {vector.storage!r}", "Check the table's log.")
    path = vector.path(location)
    # The descriptor counts neither the length before the vector nor the checksum after it.
    return _counted(unframe(read(path, vector.offset or 0, vector.size + 8), path), vector, path)


def _counted(dead: BitMap64, vector: DeltaVector, where: str) -> BitMap64:
    if len(dead) != vector.cardinality:
        raise TargetRefused(
            f"deletion vector in {where} has {len(dead)} rows, the log says {vector.cardinality}",
            f"Restore the file, or {RESYNC}.",
        )
    return dead


@dataclass(frozen=True)
class PuffinBlob:
    """The place of a data file's vector in a Puffin file."""

    offset: int
    length: int
    cardinality: int


def puffin_file(vectors: Mapping[str, BitMap64], created_by: str = "tailrace") -> tuple[bytes, dict[str, PuffinBlob]]:
    """A Puffin file with one `deletion-vector-v1` blob per data file (by the data file's path)."""
    out = bytearray(PUFFIN_MAGIC)
    where: dict[str, PuffinBlob] = {}
    blobs: list[dict[str, Any]] = []
    for path, dead in vectors.items():
        blob = frame(dead)
        where[path] = PuffinBlob(len(out), len(blob), len(dead))
        # Snapshot and sequence number are not known before the commit: -1 says that they are inherited.
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [ROW_POSITION_FIELD],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(out),
                "length": len(blob),
                "properties": {"referenced-data-file": path, "cardinality": str(len(dead))},
            }
        )
        out += blob
    footer = json.dumps({"blobs": blobs, "properties": {"created-by": created_by}}).encode()
    out += PUFFIN_MAGIC + footer + struct.pack("<I", len(footer)) + b"\0\0\0\0" + PUFFIN_MAGIC
    return bytes(out), where
