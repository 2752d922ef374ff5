"""Text of MySQL's character sets -> UTF-8, exactly or not at all.

Called by the log, whose rows hold a column's own bytes, and by the chunk reader, which asks for the same bytes where
the server's conversion would write `?` for what it does not know.
"""

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tailrace.sources.mysql.types import ColumnType
from tailrace.sources.mysql.values import Undecodable
from tailrace.sources.unrepresentable import without_unrepresentable

_UTF8 = frozenset(("utf8mb4", "utf8mb3", "utf8"))
_ASCII = "ascii"
"""MariaDB stores bytes in it that have no meaning there; its conversion writes `?` for them."""
_BYTE = {
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "tis620": "tis-620",
}
_CODECS = {
    "gbk": "gbk",
    "gb2312": "gb2312",
    "gb18030": "gb18030",
    "big5": "big5",
    "sjis": "shift_jis",
    "cp932": "cp932",
    "ujis": "euc_jp",
    "euckr": "cp949",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}
_OWN = {
    "cp866": {0xFC: "\u207f", 0xFD: "\u00b2"},
    "greek": {0xA1: "\u02bd", 0xA2: "\u02bc"},
    "hebrew": {0xAF: "\u203e"},
    "koi8u": {0x95: "\u2022"},
}
"""The codes for which the server's tables differ from Python's: found by a comparison of all codes."""
_OWN_CHARACTERS = {"sjis": ("\uff3c", "\\"), "gb18030": ("\ue7c7", "\u1e3f")}
"""The differing characters of multi-byte sets: Python's, and the server's."""
_WIDE = frozenset(("ucs2", "utf16", "utf16le", "utf32"))
"""Their ASCII characters are not one byte."""
AMBIGUOUS = frozenset(("big5", "cp932", "sjis", "ujis"))
"""Two codes of theirs are one character, here or on the server: a text does not say which. All other sets come back as
the same bytes, found by a comparison of all codes."""
KNOWN = _UTF8 | {_ASCII, "latin1"} | _BYTE.keys() | _CODECS.keys()


def raw(type: ColumnType) -> bool:
    """True if a chunk asks for the column's own bytes; labels are converted by the server, in the catalog as well."""
    return type.charset is not None and type.charset not in _UTF8 and type.name not in ("enum", "set")


def decoded(values: pa.Array, charset: str | None, sets_null: bool = False) -> pa.Array:
    """Bytes in this character set as text; `Undecodable`, or null, where a byte has no meaning in it. None: UTF-8."""
    try:
        return _decoded(values, charset)
    except Undecodable:
        if not sets_null:
            raise
        return _decoded(without_unrepresentable(values, lambda some: _is_text(some, charset)), charset)


def _is_text(values: pa.Array, charset: str | None) -> bool:
    try:
        _decoded(values, charset)
    except Undecodable:
        return False
    return True


def _decoded(values: pa.Array, charset: str | None) -> pa.Array:
    if charset is None or charset in _UTF8 or (charset not in _WIDE and _is_ascii(values)):
        return _utf8(values)
    if charset == _ASCII:
        raise Undecodable("a byte that ascii does not have")
    if charset in _CODECS:
        found = _by_codec(values, _CODECS[charset])
        return pc.replace_substring(found, *_OWN_CHARACTERS[charset]) if charset in _OWN_CHARACTERS else found
    return _by_table(values, charset)


def _utf8(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        raise Undecodable("text that is not UTF-8") from None


def _content(values: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Offsets from 0 and the bytes."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    data = values.buffers()[2]
    every = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return offsets - offsets[0], every[offsets[0] : offsets[-1]]


def _is_ascii(values: pa.Array) -> bool:
    if not len(values):
        return True
    return bool(_content(values)[1].max(initial=0) < 0x80)


def _by_codec(values: pa.Array, codec: str) -> pa.Array:
    try:
        return pa.array([None if v is None else v.decode(codec) for v in values.to_pylist()], pa.string())
    except UnicodeDecodeError as error:
        raise Undecodable(f"bytes that are not {codec} ({error.reason})") from None


@cache
def _table(charset: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The UTF-8 form of each byte, padded to four bytes, and that form's length; 0: the byte has no meaning."""
    forms, sizes = np.zeros((256, 4), np.uint8), np.zeros(256, np.int64)
    for code in range(256):
        form = _character(code, charset).encode()
        forms[code, : len(form)] = list(form)
        sizes[code] = len(form)
    return forms, sizes


def _character(code: int, charset: str) -> str:
    """MySQL's latin1 is cp1252 with the five bytes that it lacks as control characters."""
    own = _OWN.get(charset, {}).get(code)
    if own is not None:
        return own
    codec = "cp1252" if charset == "latin1" else _BYTE[charset]
    try:
        return bytes([code]).decode(codec)
    except UnicodeDecodeError:
        return chr(code) if charset == "latin1" else ""


def _by_table(values: pa.Array, charset: str) -> pa.Array:
    offsets, data = _content(values)
    forms, sizes = _table(charset)
    size = sizes[data]
    if not size.all():
        raise Undecodable(f"a byte that {charset} does not have")
    kept = np.arange(4) < size[:, None]
    ends = np.concatenate([[0], np.cumsum(size)])
    buffers = [pa.py_buffer(ends[offsets].astype(np.int32)), pa.py_buffer(forms[data][kept].tobytes())]
    bitmap = None
    if values.null_count:
        bitmap = pa.py_buffer(np.packbits(values.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))
    return pa.Array.from_buffers(pa.string(), len(values), [bitmap, *buffers])
