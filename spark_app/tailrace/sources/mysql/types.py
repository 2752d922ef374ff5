"""The types of MySQL's columns: what information_schema says, and the logical type that log and target have for it.

Called by the catalog. The log and the chunks both write a column's values as its `Form` says, with `values`, so that a
value comes out equal, bit for bit, either way.
"""

from dataclasses import dataclass

from tailrace.changelog.types import MAX_PRECISION

_SIMPLE = {
    "tinyint": "int32",
    "smallint": "int32",
    "mediumint": "int32",
    "int": "int32",
    "bigint": "int64",
    "year": "int32",
    "float": "float32",
    "double": "float64",
    "date": "date",
    "datetime": "timestamp",
    "timestamp": "timestamptz",
}
_UNSIGNED = {"int": "int64", "bigint": "decimal(20,0)"}
_MARIADB_TEXT = ("uuid", "inet4", "inet6")
_TEXT = frozenset(
    ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "json", "time", *_MARIADB_TEXT)
)
_SHAPES = ("point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon")
GEOMETRY = frozenset(("geometry", *_SHAPES, "geomcollection", "geometrycollection"))
"""Values: the SRID in four bytes, little endian, then WKB, as the server stores them."""
_BYTES = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector")) | GEOMETRY
_LABELLED = ("enum", "set")
UNREADABLE = {
    "/* mariadb-5.3 */": "Run SET GLOBAL mysql56_temporal_format = ON, then ALTER TABLE {} FORCE",
    "COMPRESSED*/": "Run ALTER TABLE {} MODIFY … with the column's type without COMPRESSED",
}
"""How a column's type ends of which MariaDB's log has a form of its own; and what helps."""
NUMBERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal")
"""Types that `options[].as` can make a decimal or a double."""
OTHERS = dict.fromkeys(NUMBERS, ("decimal", "double")) | {"uuid": ("binary",), "time": ("time",)}
"""The other types that `options[].as` can choose besides text, except in keys."""
NAMES = frozenset(("decimal", "bit", *_SIMPLE, *_TEXT, *_BYTES))
"""DATA_TYPEs that have a logical type."""
_DATES = "holds no dates that do not exist (0000-00-00)"
LIMITS = {
    "date": _DATES,
    "timestamp": _DATES,
    "timestamptz": _DATES,
    "time": "holds no time below 0 or of 24 hours and more",
}
"""The limits of each logical type."""
_EXACT = "the server's exact text"
_DIGITS = f"{_EXACT}, without the zeros of `ZEROFILL`"
_SHAPE = "as stored: SRID (4 bytes, little endian), then WKB"
OTHER_FORM = {
    "decimal": _DIGITS,
    "time": "a length of time, beyond a day: `-838:59:59.000000`",
    "json": "the server's own text: MySQL sorts keys by length; in MariaDB the text as the application wrote it",
    "vector": "4 bytes per number, little endian",
    **dict.fromkeys(GEOMETRY, _SHAPE),
}
"""Types that become text or bytes though the source has a separate type for them, and the form; a `decimal`, where it
has more digits than the target's."""
_ESCAPES = {"0": "\0", "n": "\n", "r": "\r"}


@dataclass(frozen=True)
class ColumnType:
    """A column's type, from information_schema.columns."""

    name: str
    """DATA_TYPE: `int`."""
    text: str
    """COLUMN_TYPE: `int unsigned`."""
    precision: int | None = None
    """Digits of a decimal, bits of a bit."""
    scale: int | None = None
    fraction: int = 0
    """Digits of a second's fraction."""
    length: int | None = None
    """Bytes at most."""
    charset: str | None = None
    """The character set of text; None: bytes, or no text."""
    logged: tuple[str, ...] = ()
    """Labels as rows in the log name them; the catalog has `?` for what is beyond U+FFFF."""

    @property
    def unsigned(self) -> bool:
        return self.name not in _LABELLED and " unsigned" in self.text

    @property
    def zerofill(self) -> bool:
        """Always unsigned."""
        return self.unsigned and self.text.endswith(" zerofill")

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of an enum or a set, in order; the first has the number 1, or bit 0."""
        if self.name not in _LABELLED:
            return ()
        return self.logged or labels(self.text)


@dataclass(frozen=True)
class Form:
    """How a column's values are written."""

    logical: str
    """Logical type in the log and the target; `string` also where the user asked for text (`as`)."""
    fraction: int = 0
    """Digits of a second's fraction in text."""
    sets_null: bool = False
    """True if a value that the type cannot hold becomes NULL; never in a key."""


def logical(type: ColumnType) -> str | None:
    """The logical type that holds every value exactly, but dates that do not exist; None: the type is unknown, or the
    server treats several of its values as equal."""
    if type.text == "year(2)":  # MariaDB's: 0 and 2000 are 00
        return None
    if type.name == "decimal":
        fits = type.precision is not None and type.precision <= MAX_PRECISION
        return f"decimal({type.precision},{type.scale or 0})" if fits else "string"
    if type.name == "bit":
        return _bits(type.precision or 1)
    if type.name in _TEXT:
        return "string"
    if type.name in _BYTES:
        return "binary"
    unsigned = _UNSIGNED.get(type.name) if type.unsigned else None
    return unsigned or _SIMPLE.get(type.name)


def own(type: ColumnType, collation: str | None) -> str | None:
    """The type as a table of another server is given it; None: the catalog does not have its labels."""
    text = type.text
    if type.labels:
        if any("?" in label for label in type.labels):
            return None
        text = f"{type.name}({','.join(_literal(label) for label in type.labels)})"
    if type.name == "geomcollection":
        text = "geometrycollection"  # MariaDB's word, which MySQL has, too
    if type.charset is None or collation is None:
        return text
    return f"{text} CHARACTER SET {type.charset} COLLATE {collation}"


def as_other(type: ColumnType, logical: str) -> str | None:
    """The form of its values where they become text or bytes and are neither in the source; None: they do not."""
    if logical == "string":
        return OTHER_FORM.get(type.name, None if type.name in _TEXT else _EXACT)
    return OTHER_FORM.get(type.name) if logical == "binary" else None


def is_text(type: ColumnType) -> bool:
    """Text in the source, too, or a uuid. An address of MariaDB has several texts, of which the source finds each."""
    return as_other(type, "string") is None and not type.name.startswith("inet")


def _literal(label: str) -> str:
    """The text in a session with NO_BACKSLASH_ESCAPES."""
    return "'" + label.replace("'", "''") + "'"


def _bits(width: int) -> str:
    if width == 1:
        return "bool"
    return "int64" if width < 64 else "decimal(20,0)"


def labels(column_type: str) -> tuple[str, ...]:
    """Read `enum('a','b''c')`, as information_schema escapes it."""
    found: list[str] = []
    rest = column_type[column_type.index("(") + 1 : -1]
    while rest:
        label, rest = _quoted(rest)
        found.append(label)
        rest = rest.removeprefix(",")
    return tuple(found)


def _quoted(text: str) -> tuple[str, str]:
    """The first quoted string, and what follows it."""
    out: list[str] = []
    at = 1
    while text[at] != "'" or text[at + 1 : at + 2] == "'":
        if text[at] == "\\":
            at += 1
            out.append(_ESCAPES.get(text[at], text[at]))
        else:
            at += text[at] == "'"
            out.append(text[at])
        at += 1
    return "".join(out), text[at + 1 :]
