"""Deletion vector codecs: both directions, every storage form, damage found."""

import json
import struct
import uuid
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from tailrace.errors import TargetRefused
from tailrace.targets.lake.files import vectors

POSITIONS = st.sets(st.integers(0, 2**40), max_size=200)
GUID = uuid.UUID("b4a9b1f4-6a2e-4d5c-8f0d-3f6a1c2b9e77")


@given(data=st.binary(max_size=64))
def test_z85_brings_every_byte_back_but_for_padding(data: bytes) -> None:
    text = vectors.z85_encode(data)
    assert len(text) == (len(data) + 3) // 4 * 5
    assert vectors.z85_decode(text)[: len(data)] == data


def test_z85_agrees_with_the_published_sample() -> None:
    assert vectors.z85_encode(bytes.fromhex("864FD26FB559F75B")) == "HelloWorld"


@given(positions=POSITIONS)
def test_a_framed_vector_has_length_magic_and_checksum(positions: set[int]) -> None:
    data = vectors.frame(BitMap64(positions))
    (length,) = struct.unpack_from(">I", data)
    assert len(data) == length + 8
    assert data[4:8] == bytes.fromhex("D1D33964")
    assert struct.unpack(">I", data[-4:])[0] == zlib.crc32(data[4:-4])
    assert set(vectors.unframe(data, "test")) == positions


@given(first=POSITIONS, second=POSITIONS)
def test_a_delta_file_gives_each_data_file_its_own_vector(first: set[int], second: set[int]) -> None:
    name, data, where = vectors.delta_file({"a": BitMap64(first), "b": BitMap64(second)}, GUID)
    files = {f"file:///t/{name}": data}

    def read(path: str, offset: int, length: int) -> bytes:
        return files[path][offset : offset + length]

    for key, positions in (("a", first), ("b", second)):
        again = vectors.DeltaVector.from_json(where[key].to_json())
        assert set(vectors.read_delta(again, "file:///t", read)) == positions


def test_a_prefix_and_an_absolute_path_name_the_vector_file() -> None:
    name = vectors.z85_encode(GUID.bytes)
    assert vectors.DeltaVector("u", f"ab{name}", 1, 40, 2).path("s3://b/t") == f"s3://b/t/ab/deletion_vector_{GUID}.bin"
    assert vectors.DeltaVector("p", "s3://b/x.bin", 1, 40, 2).path("s3://b/t") == "s3://b/x.bin"


def test_small_vectors_go_inline_and_large_ones_do_not() -> None:
    small = vectors.inline_delta(BitMap64([3, 7, 2**33]))
    assert small is not None and small.offset is None and "offset" not in small.to_json()
    assert list(vectors.read_delta(small, "file:///t", lambda *_: b"")) == [3, 7, 2**33]
    assert vectors.inline_delta(BitMap64(range(0, 100_000, 3))) is None


def test_damage_is_found() -> None:
    data = bytearray(vectors.frame(BitMap64([1, 2, 3])))
    data[12] ^= 1
    with pytest.raises(TargetRefused, match="damaged"):
        vectors.unframe(bytes(data), "f.bin")
    with pytest.raises(TargetRefused, match="damaged"):
        vectors.unframe(vectors.frame(BitMap64([1]))[:-2], "f.bin")
    with pytest.raises(TargetRefused, match="expected d1d33964"):
        vectors.decode(b"\0\0\0\0", "f.bin")


def test_a_vector_with_another_cardinality_than_the_log_says_is_refused() -> None:
    vector = vectors.inline_delta(BitMap64([1, 2]))
    assert vector is not None
    lie = vectors.DeltaVector("i", vector.path_or_inline, None, vector.size, 3)
    with pytest.raises(TargetRefused, match="has 2 rows, the log says 3"):
        vectors.read_delta(lie, "file:///t", lambda *_: b"")


@given(first=POSITIONS, second=POSITIONS)
def test_a_puffin_file_gives_each_data_file_its_own_blob(first: set[int], second: set[int]) -> None:
    data, where = vectors.puffin_file({"a": BitMap64(first), "b": BitMap64(second)})
    assert data[:4] == data[-4:] == b"PFA1"
    (size,) = struct.unpack_from("<I", data, len(data) - 12)
    listed = {blob["properties"]["referenced-data-file"]: blob for blob in json.loads(data[-12 - size : -12])["blobs"]}
    assert {key: (b["offset"], b["length"], int(b["properties"]["cardinality"])) for key, b in listed.items()} == {
        key: (b.offset, b.length, b.cardinality) for key, b in where.items()
    }
    assert {b["type"] for b in listed.values()} == {"deletion-vector-v1"}
    assert {b["snapshot-id"] for b in listed.values()} == {b["sequence-number"] for b in listed.values()} == {-1}
    blob = where["b"]
    assert set(vectors.unframe(data[blob.offset : blob.offset + blob.length], "b")) == second
    assert (blob.cardinality, where["a"].offset) == (len(second), 4)


def test_encoding_leaves_the_callers_vector_alone() -> None:
    dead = BitMap64(range(10_000))
    before = dead.serialize()
    vectors.encode(dead)
    assert dead.serialize() == before
