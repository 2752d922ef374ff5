"""The check that a column on the wire can be the column of the catalog. Asked by `tables` before a form's rows are
decoded."""

from collections.abc import Mapping

import pyarrow as pa

from tailrace.sources.mysql.charsets import decoded
from tailrace.sources.mysql.log import table_map as wire
from tailrace.sources.mysql.log.collations import BINARY
from tailrace.sources.mysql.log.table_map import MapColumn
from tailrace.sources.mysql.types import GEOMETRY, ColumnType
from tailrace.sources.mysql.values import Undecodable

_KINDS: dict[str, int] = {
    "tinyint": wire.TINY,
    "smallint": wire.SHORT,
    "mediumint": wire.INT24,
    "int": wire.LONG,
    "bigint": wire.LONGLONG,
    "float": wire.FLOAT,
    "double": wire.DOUBLE,
    "decimal": wire.NEWDECIMAL,
    "bit": wire.BIT,
    "year": wire.YEAR,
    "date": wire.DATE_OLD,
    "datetime": wire.DATETIME2,
    "timestamp": wire.TIMESTAMP2,
    "time": wire.TIME2,
    "char": wire.STRING,
    "binary": wire.STRING,
    "varchar": wire.VARCHAR,
    "varbinary": wire.VARCHAR,
    "enum": wire.ENUM,
    "set": wire.SET,
    "json": wire.JSON,
    "vector": wire.VECTOR,
    "uuid": wire.STRING,
    "inet4": wire.STRING,
    "inet6": wire.STRING,
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), wire.BLOB),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), wire.BLOB),
    **dict.fromkeys(GEOMETRY, wire.GEOMETRY),
}
_OWN_FORMS = {"uuid": 16, "inet4": 4, "inet6": 16}
"""MariaDB's types that travel as bytes of a fixed number, like `binary(n)`."""
KNOWN = frozenset(_KINDS.values())
_BLOB_LENGTHS = {"tiny": 1, "medium": 3, "long": 4}
_MARIADB_VECTOR = frozenset((wire.VECTOR, wire.VARCHAR))


def same_text(type: ColumnType, collation: int | None, labels: tuple[bytes, ...], charsets: Mapping[int, str]) -> bool:
    """True if the text in the rows means what the catalog says: the same character set, the same labels. `charsets`: by
    collation."""
    if type.name in ("enum", "set"):
        try:
            return bool(labels) and tuple(map(_as_shown, label_texts(type, labels))) == type.labels
        except Undecodable:
            return False
    if collation is None:
        return True
    if type.name in _OWN_FORMS:
        return collation == BINARY
    return type.charset == (None if collation == BINARY else charsets.get(collation))


def label_texts(type: ColumnType, labels: tuple[bytes, ...]) -> tuple[str, ...]:
    return tuple(decoded(pa.array(labels, pa.binary()), type.charset).to_pylist())


def _as_shown(label: str) -> str:
    """The label as the catalog shows it, whose texts have no characters beyond U+FFFF."""
    return "".join("?" if ord(character) > 0xFFFF else character for character in label)


def fits(type: ColumnType, sent: MapColumn, unsigned: bool | None) -> bool:
    """`unsigned` None: the event does not say."""
    if type.name == "vector":
        return sent.kind in _MARIADB_VECTOR
    if _KINDS.get(type.name) != sent.kind:
        return False
    if unsigned is not None and type.unsigned != unsigned and type.name != "year":
        return False
    match sent.kind:
        case wire.STRING if type.name in _OWN_FORMS:
            return sent.meta == _OWN_FORMS[type.name]
        case wire.NEWDECIMAL:
            return divmod(sent.meta, 256) == (type.precision, type.scale)
        case wire.BIT:
            return sent.meta == type.precision
        case wire.DATETIME2 | wire.TIMESTAMP2 | wire.TIME2:
            return sent.meta == type.fraction
        case wire.BLOB:
            prefix = type.name.removesuffix("text").removesuffix("blob")
            return sent.meta == _BLOB_LENGTHS.get(prefix, 2)
        case _:
            return True
