"""MySQL's binary JSON -> the text that the server makes of it, sign by sign: a chunk has that text.

The order of members is the server's (by length, then bytes), `, ` and `: ` separate, a number keeps whether it was an
integer, a decimal or a double. A document that is not whole raises `UnknownEvent`.
"""

import base64
import math
import struct
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa

from tailrace.sources.mysql.log import table_map as wire
from tailrace.sources.mysql.log.events import piece, whole

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = 0, 1, 2, 3, 4
_INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING, _OPAQUE = 5, 6, 7, 8, 9, 10, 11, 12, 15
_LITERALS = ("null", "true", "false")
_INTEGERS = {_INT16: "<h", _UINT16: "<H", _INT32: "<i", _UINT32: "<I", _INT64: "<q", _UINT64: "<Q"}
_SHORT_ESCAPES = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}
_ESCAPES = {i: _SHORT_ESCAPES.get(i, f"\\u{i:04x}") for i in range(32)} | {34: '\\"', 92: "\\\\"}
_LEAST_POINT, _MOST_POINT = -14, 15
"""Digits before the point of a double that is written without an exponent, unless digits behind it are left."""
Node = dict[str, "Node"] | list["Node"] | str
"""A document taken apart; what is no container is its text."""
MAX_DEPTH = 101
"""The depth of containers in each other: the server takes 100."""


def texts(documents: pa.Array) -> pa.Array:
    distinct = documents.dictionary_encode()
    found = [text(value) for value in distinct.dictionary.to_pylist()]
    return pa.array(found, pa.string()).take(distinct.indices)


def text(document: bytes) -> str:
    if not document:
        return "null"  # what an ignored error leaves
    with whole("JSON"):
        return _value(document, document[0], 1, MAX_DEPTH)


def members(document: bytes) -> Node:
    """The document taken apart."""
    if not document:
        return "null"
    with whole("JSON"):
        return _node(document, document[0], 1, MAX_DEPTH)


def written(node: Node) -> str:
    """The text of a document that was taken apart."""
    if isinstance(node, dict):
        keys = sorted(node, key=lambda key: (len(key.encode()), key.encode()))
        return _joined_object([_quoted(key) for key in keys], [written(node[key]) for key in keys])
    return node if isinstance(node, str) else _joined_array([written(item) for item in node])


def _value(data: bytes, kind: int, at: int, depth: int) -> str:
    if kind <= _LARGE_ARRAY:
        keys, values = _container(data, kind, at, depth)
        texts = [_value(data, *value) for value in values]
        return _joined_array(texts) if keys is None else _joined_object(list(map(_quoted, keys)), texts)
    if kind == _LITERAL:
        return _LITERALS[data[at]]
    if kind in _INTEGERS:
        return str(struct.unpack_from(_INTEGERS[kind], data, at)[0])
    if kind == _DOUBLE:
        return double(struct.unpack_from("<d", data, at)[0])
    if kind == _STRING:
        raw, _ = _sized(data, at)
        return _quoted(raw.decode())
    if kind == _OPAQUE:
        raw, _ = _sized(data, at + 1)
        return _opaque(data[at], raw)
    raise ValueError("unknown type")


def _joined_object(keys: list[str], values: list[str]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in zip(keys, values, strict=True)) + "}"


def _joined_array(values: list[str]) -> str:
    return "[" + ", ".join(values) + "]"


def _node(data: bytes, kind: int, at: int, depth: int) -> Node:
    if kind > _LARGE_ARRAY:
        return _value(data, kind, at, depth)
    keys, values = _container(data, kind, at, depth)
    nodes = [_node(data, *value) for value in values]
    return nodes if keys is None else dict(zip(keys, nodes, strict=True))


def _container(data: bytes, kind: int, at: int, depth: int) -> tuple[list[str] | None, list[tuple[int, int, int]]]:
    """The keys (None: an array), and the kind, place and depth of each value. In the data: count and size; of an object
    the keys' places and lengths; then the values, or their places."""
    if not depth:
        raise ValueError("too deep")
    size = 4 if kind in (_LARGE_OBJECT, _LARGE_ARRAY) else 2
    is_object = kind in (_SMALL_OBJECT, _LARGE_OBJECT)
    count, entry = _offset(data, at, size), at + 2 * size
    if count * (size + 1) > len(data):
        raise ValueError("not whole")
    keys: list[str] = []
    for _ in range(count if is_object else 0):
        key, _behind = piece(data, at + _offset(data, entry, size), _offset(data, entry + size, 2))
        keys.append(key.decode())
        entry += size + 2
    values = [_entry(data, at, entry + i * (size + 1), size, depth) for i in range(count)]
    return keys if is_object else None, values


def _entry(data: bytes, container: int, at: int, size: int, depth: int) -> tuple[int, int, int]:
    kind = data[at]
    inline = kind in (_LITERAL, _INT16, _UINT16) or (size == 4 and kind in (_INT32, _UINT32))
    return kind, at + 1 if inline else container + _offset(data, at + 1, size), depth - 1


def _offset(data: bytes, at: int, size: int) -> int:
    raw, _ = piece(data, at, size)
    return int.from_bytes(raw, "little")


def _sized(data: bytes, at: int) -> tuple[bytes, int]:
    """Seven bits of the length to a byte."""
    length = shift = 0
    while True:
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return piece(data, at, length)


def _quoted(value: str) -> str:
    return '"' + value.translate(_ESCAPES) + '"'


def double(value: float) -> str:
    """The number as the server's dtoa writes it: the shortest digits, with an exponent where zeros would have to fill
    many places (a fraction keeps its point, also behind sixteen digits), and `.0` behind what looks like an integer."""
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    sign = "-" if value < 0 else ""
    digits_of = Decimal(repr(abs(value))).normalize().as_tuple()
    digits, power = "".join(map(str, digits_of.digits)), int(digits_of.exponent)
    point = len(digits) + power  # digits before the point
    if point >= _LEAST_POINT and (point <= _MOST_POINT or point < len(digits)):
        return sign + _plain(digits, point)
    head = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
    return f"{sign}{head}e{point - 1}"


def _plain(digits: str, point: int) -> str:
    if point <= 0:
        return f"0.{'0' * -point}{digits}"
    if point >= len(digits):
        return digits + "0" * (point - len(digits)) + ".0"
    return f"{digits[:point]}.{digits[point:]}"


def _opaque(kind: int, raw: bytes) -> str:
    found = _OPAQUES.get(kind)
    if found is not None:
        return found(raw)
    return f'"base64:type{kind}:{base64.b64encode(raw).decode()}"'


def _decimal(raw: bytes) -> str:
    precision, scale = raw[0], raw[1]
    data = bytearray(raw[2:])
    negative = not data[0] & 0x80
    data[0] ^= 0x80
    digits, at = "", 0
    whole_digits = precision - scale
    for count in [whole_digits % 9, *[9] * (whole_digits // 9), *[9] * (scale // 9), scale % 9]:
        if count:
            size = (count + 1) // 2 if count < 9 else 4
            group = int.from_bytes(data[at : at + size], "big")
            at += size
            digits += str(group ^ ((1 << 8 * size) - 1) if negative else group).zfill(count)
    head = digits[: len(digits) - scale].lstrip("0") or "0"
    sign = "-" if negative else ""
    return f"{sign}{head}.{digits[-scale:]}" if scale else sign + head


def _packed(raw: bytes) -> tuple[int, int]:
    """The number without its microseconds, and these."""
    (packed,) = struct.unpack("<q", raw)
    return abs(packed) >> 24, abs(packed) & 0xFFFFFF


def _date(raw: bytes) -> str:
    number, _ = _packed(raw)
    month = number >> 22
    return f'"{month // 13:04}-{month % 13:02}-{number >> 17 & 31:02}"'


def _datetime(raw: bytes) -> str:
    number, micros = _packed(raw)
    clock = f"{number >> 12 & 31:02}:{number >> 6 & 63:02}:{number & 63:02}.{micros:06}"
    return f'{_date(raw)[:-1]} {clock}"'


def _time(raw: bytes) -> str:
    number, micros = _packed(raw)
    sign = "-" if raw[7] & 0x80 else ""
    return f'"{sign}{number >> 12 & 1023:02}:{number >> 6 & 63:02}:{number & 63:02}.{micros:06}"'


_DATETIME, _TIMESTAMP, _TIME, _DATE = 12, 7, 11, 10
_OPAQUES: dict[int, Callable[[bytes], str]] = {
    wire.NEWDECIMAL: _decimal,
    _DATE: _date,
    _TIME: _time,
    _DATETIME: _datetime,
    _TIMESTAMP: _datetime,
}
