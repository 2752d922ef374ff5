"""Types whose values look the same in the binary format of COPY on every version of PostgreSQL from 14 on, and mean the
same: what one server sends, another takes exactly. Used by the source and by the target."""

PRODUCT = "postgresql: COPY, binary"
"""`databases.wire.WireForm.product`."""
_PLAIN = frozenset(
    (
        "bit", "bool", "box", "bpchar", "bytea", "cidr", "circle", "date", "float4", "float8", "inet", "int2", "int4",
        "int8", "json", "jsonb", "line", "lseg", "macaddr", "macaddr8", "numeric", "oid", "path", "pg_lsn",
        "point", "polygon", "text", "time", "timestamp", "timestamptz", "timetz", "tsvector", "uuid", "varbit",
        "varchar",
    )
)  # fmt: skip
"""Not `interval`, whose infinities since version 17 are other values to the servers before; not `xml`, which names its
encoding; not `money`, whose scale a locale tells; not `name`, which may be too long in another encoding; nor queries
and paths that older servers do not know. Types that somebody made (enums, composite types, extensions) are known by
numbers of one database, or may differ."""
_RANGES = frozenset(("daterange", "int4range", "int8range", "numrange", "tsrange", "tstzrange"))
EXACT = _PLAIN | _RANGES | {name.replace("range", "multirange") for name in _RANGES} | {f"_{name}" for name in _PLAIN}
"""Names in `pg_catalog`. Arrays (`_…`) name the type of their elements by a number that all servers share."""
