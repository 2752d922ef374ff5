"""TABLE_MAP events: which table the row events that follow are of, and what each column looks like on the wire.

The metadata behind the types (names, signs) are there with `binlog_row_metadata=FULL`; MINIMAL leaves names out.
Parsed once per form: `body[8:]` (without the table id, which changes with every opening of the table) names it.
"""

from dataclasses import dataclass

from tailrace.sources.mysql.log.events import number, piece, whole

TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24 = 1, 2, 3, 4, 5, 8, 9
DATE_OLD, YEAR, VARCHAR, BIT = 10, 13, 15, 16
TIMESTAMP2, DATETIME2, TIME2 = 17, 18, 19
TIMESTAMP_OLD, TIME_OLD, DATETIME_OLD = 7, 11, 12
BLOB_COMPRESSED = 140
"""MariaDB's; tables with such a column stop by name."""
TYPED_ARRAY = 20
"""The hidden column of an index over the elements of a JSON array, in the log of MySQL from 8.0.18 on; 9.7 leaves it
out."""
VECTOR, JSON, NEWDECIMAL, ENUM, SET, BLOB, STRING, GEOMETRY = 242, 245, 246, 247, 248, 252, 254, 255
_NO_META = frozenset((TINY, SHORT, LONG, LONGLONG, INT24, DATE_OLD, YEAR, TIMESTAMP_OLD, TIME_OLD, DATETIME_OLD))
_ONE_BYTE = frozenset((FLOAT, DOUBLE, BLOB, BLOB_COMPRESSED, VECTOR, JSON, GEOMETRY, TIMESTAMP2, DATETIME2, TIME2))
_TWO_BYTES = frozenset((VARCHAR, BIT, NEWDECIMAL, STRING))
_MEASURED = _NO_META | _ONE_BYTE | _TWO_BYTES
_SIGNED = frozenset((TINY, SHORT, INT24, LONG, LONGLONG, FLOAT, DOUBLE, NEWDECIMAL, YEAR))
"""Types that have a bit in the list of signs; in early versions of MySQL years have none."""
YEARS_HAVE_A_SIGN = (8, 0, 29)
"""The version of MySQL from which years have a sign at the latest; in 8.0.15 they had none."""
Signs = tuple[bool, ...]
_CHARACTER = frozenset((VARCHAR, STRING, BLOB, VECTOR))
"""Types that have a collation; in MariaDB shapes have one, too."""
_SIGNS, _DEFAULT_COLLATION, _COLLATIONS, _NAMES, _SET_LABELS, _ENUM_LABELS = 1, 2, 3, 4, 5, 6
"""Numbers of the optional metadata."""


@dataclass(frozen=True)
class MapColumn:
    kind: int
    """ENUM and SET are told from STRING by their metadata."""
    meta: int
    """Bytes of a length or of a value, digits of a fraction; a decimal: precision * 256 + scale."""


@dataclass(frozen=True)
class TableMap:
    schema_name: str
    table_name: str
    columns: tuple[MapColumn, ...]
    signs: tuple[Signs | None, ...]
    """The possible signs of the columns: one of them is right. None: the event does not say."""
    names: tuple[str, ...] | None
    """None: `binlog_row_metadata` is MINIMAL."""
    collations: tuple[int | None, ...]
    """The number of each column's collation; None: it has none."""
    labels: tuple[tuple[bytes, ...], ...]
    """The labels of each enum or set column, in the column's character set; others have none."""
    mariadb: bool = False

    @property
    def name(self) -> str:
        return f"{self.schema_name}.{self.table_name}"


def table_map(form: bytes, mariadb: bool = False, early: bool = False) -> TableMap:
    """`form`: the event's body from its ninth byte on. `early`: of a MySQL before YEARS_HAVE_A_SIGN."""
    with whole("TABLE_MAP"):
        schema, at = piece(form, 1, form[0])
        table, at = piece(form, at + 2, form[at + 1])
        count, at = number(form, at + 1)
        kinds, at = piece(form, at, count)
        if not _MEASURED.issuperset(kinds):
            return _unmeasured(schema.decode(), table.decode(), kinds)
        length, at = number(form, at)
        meta, at = piece(form, at, length)
        columns = _columns(kinds, meta)
        at += (count + 7) // 8
        fields = _fields(form, at)
        signed = (_SIGNED, _SIGNED - {YEAR}) if early else (_SIGNED,)
        signs = [_signs(columns, fields.get(_SIGNS), kinds) for kinds in signed]
        return TableMap(
            schema.decode(),
            table.decode(),
            columns,
            tuple(dict.fromkeys(signs)),
            _names(fields.get(_NAMES)),
            _collations(columns, fields, _CHARACTER | {GEOMETRY} if mariadb else _CHARACTER),
            _labels(columns, fields),
            mariadb,
        )


def _unmeasured(schema: str, table: str, kinds: bytes) -> TableMap:
    """A table with a column of an unknown type: what stands behind the types cannot be read. Its rows are refused."""
    columns = tuple(MapColumn(kind, 0) for kind in kinds)
    return TableMap(schema, table, columns, (), None, (None,) * len(kinds), ((),) * len(kinds))


def name_of(form: bytes) -> tuple[bytes, bytes]:
    """Schema and table alone, for what need not be read further."""
    with whole("TABLE_MAP"):
        schema, at = piece(form, 1, form[0])
        table, _ = piece(form, at + 2, form[at + 1])
        return schema, table


def head_of(schema: str, table: str) -> bytes:
    """The beginning of a form, which `name_of` reads."""
    names = (name.encode() for name in (schema, table))
    return b"".join(bytes([len(name)]) + name + b"\0" for name in names)


def _columns(kinds: bytes, meta: bytes) -> tuple[MapColumn, ...]:
    columns, at = [], 0
    for kind in kinds:
        width = 0 if kind in _NO_META else 1 if kind in _ONE_BYTE else 2
        raw, at = piece(meta, at, width)
        columns.append(_column(kind, raw))
    return tuple(columns)


def _column(kind: int, meta: bytes) -> MapColumn:
    match kind:
        case k if k == STRING and meta[0] in (ENUM, SET):
            return MapColumn(meta[0], meta[1])
        case k if k == STRING:  # the length's upper bits are in the type's byte, inverted
            return MapColumn(kind, meta[1] | ((meta[0] & 0x30) ^ 0x30) << 4)
        case k if k == NEWDECIMAL:
            return MapColumn(kind, meta[0] * 256 + meta[1])
        case k if k == BIT:
            return MapColumn(kind, meta[0] + meta[1] * 8)
        case _:
            return MapColumn(kind, int.from_bytes(meta, "little"))


def _fields(form: bytes, at: int) -> dict[int, bytes]:
    fields: dict[int, bytes] = {}
    while at < len(form):
        kind = form[at]
        length, at = number(form, at + 1)
        fields[kind], at = piece(form, at, length)
    return fields


def _signs(columns: tuple[MapColumn, ...], bits: bytes | None, signed: frozenset[int]) -> Signs | None:
    """One bit per column of a type that can have a sign, the first the highest."""
    if bits is None:
        return None
    signs = iter([bool(bits[i // 8] << (i & 7) & 0x80) for i in range(len(bits) * 8)])
    return tuple(next(signs, False) if c.kind in signed else False for c in columns)


def _names(raw: bytes | None) -> tuple[str, ...] | None:
    if raw is None:
        return None
    names, at = [], 0
    while at < len(raw):
        length, at = number(raw, at)
        name, at = piece(raw, at, length)
        names.append(name.decode())
    return tuple(names)


def _collations(
    columns: tuple[MapColumn, ...], fields: dict[int, bytes], character: frozenset[int]
) -> tuple[int | None, ...]:
    """One for all and exceptions by their place among the columns that can have one, or each by itself."""
    places = [i for i, c in enumerate(columns) if c.kind in character]
    found: list[int | None] = [None] * len(columns)
    if _DEFAULT_COLLATION in fields:
        default, *exceptions = _numbers(fields[_DEFAULT_COLLATION])
        for place in places:
            found[place] = default
        for at, collation in zip(exceptions[::2], exceptions[1::2], strict=True):
            found[places[at]] = collation
    elif _COLLATIONS in fields:
        for place, collation in zip(places, _numbers(fields[_COLLATIONS]), strict=True):
            found[place] = collation
    return tuple(found)


def _numbers(raw: bytes) -> list[int]:
    found, at = [], 0
    while at < len(raw):
        value, at = number(raw, at)
        found.append(value)
    return found


def _labels(columns: tuple[MapColumn, ...], fields: dict[int, bytes]) -> tuple[tuple[bytes, ...], ...]:
    sets, enums = (iter(_label_lists(fields.get(field, b""))) for field in (_SET_LABELS, _ENUM_LABELS))
    of = {SET: sets, ENUM: enums}
    return tuple(next(of[c.kind], ()) if c.kind in of else () for c in columns)


def _label_lists(raw: bytes) -> list[tuple[bytes, ...]]:
    found, at = [], 0
    while at < len(raw):
        count, at = number(raw, at)
        labels = []
        for _ in range(count):
            length, at = number(raw, at)
            label, at = piece(raw, at, length)
            labels.append(label)
        found.append(tuple(labels))
    return found
