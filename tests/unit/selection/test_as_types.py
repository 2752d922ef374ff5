"""Types that the manifest asks for: what is allowed, what is said of it, and what is refused by name."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from tailrace.contract import base
from tailrace.contract.resources import TableOptions
from tailrace.selection import as_types, masks
from tailrace.sources.findings import TableSize
from tailrace.sources.postgresql.catalog import _table
from tailrace.sources.postgresql.model import PgTable
from tailrace.sources.postgresql.support import describe


def options(**given: Any) -> TableOptions:
    return TableOptions.model_validate({"match": "s.t", **given})


def test_each_column_has_at_most_one_type() -> None:
    given = options(**{"as": {"a": "text", "b": "double", "c": "decimal(38,10)"}, "asText": ["d"]})
    assert [as_types.requested(given, name) for name in "abcde"] == [
        "string",
        "float64",
        "decimal(38,10)",
        "string",
        None,
    ]
    assert as_types.requested(options(**{"as": {"a": "list"}}), "a", "list<int64>") == "list<int64>"
    assert as_types.requested(options(**{"as": {"a": "struct"}}), "a", PAIR) == PAIR
    assert [as_types.named(kind) for kind in ("list<int64>", PAIR, "binary", "float64")] == [
        *("list", "struct", "binary", "double"),
    ]
    assert as_types.requested(None, "a") is None
    with pytest.raises(ValidationError, match="asText: a is in as, too"):
        options(**{"as": {"a": "double"}, "asText": ["a"]})
    for kind in ("uuid", "decimal(39,0)", "decimal(0,0)", "decimal(5)", "float", "Double", "decimal(5, 2)"):
        with pytest.raises(ValidationError, match="as"):
            options(**{"as": {"a": kind}})
    with pytest.raises(ValidationError, match=r"as: a: decimal\(5,6\) has more digits"):
        options(**{"as": {"a": "decimal(5,6)"}})


def test_a_column_that_is_not_there_is_named() -> None:
    stop = masks.misnamed("s.t", options(**{"as": {"prize": "double"}}), ["id", "price"])
    assert stop is not None and "['prize']" in stop.message


PAIR = 'struct<"n":decimal(10,2),"a \\",\\"b":int64,"m":string>'
FIELDS = [("n", "numeric", (10 << 16 | 2) + 4), ('a ","b', "int8", -1), ("m", "", -1)]
LISTS = {"int4[]": "int32", "date[]": "date", "numeric[]": "decimal(10,2)"}


def table(type: str, given: TableOptions, typmod: int = -1, key: int | None = 0) -> PgTable:
    """A key `id`, at place `key` of it, and a column `v` of the type, as the catalog's query shows them."""
    base = {"oid": 1, "base_schema": "pg_catalog", "domain": False, "out_schema": "pg_catalog", "out_name": "x"}
    base |= {"generated": False, "stored": False, "atthasdef": False, "atthasmissing": False, "coll_schema": None}
    base |= {"coll_name": None, "operators": None}
    identity = {"attname": "id", "attnum": 1, "source_type": "numeric", "base_name": "numeric", "typmod": -1}
    identity |= {"position": key, "element_name": None, "fields": None}
    array = type.endswith("[]")
    base |= {"element_name": type[:-2] if array else None, "element_typmod": typmod, "fields": None}
    if type == "pair":
        base |= {"fields": [(name.encode().hex(), kind, typmod) for name, kind, typmod in FIELDS]}
    value = {"attname": "v", "attnum": 2, "source_type": type, "base_name": type, "typmod": typmod, "position": None}
    row = {"oid": 1, "nspname": "s", "relname": "t", "relkind": "r", "relpersistence": "p"}
    row |= {"relreplident": "f" if key is None else "d", "owner": "x", "file": 1, "attributes": 2}
    found = [base | identity | {"attnotnull": True}, base | value | {"attnotnull": False}]
    return _table(row, found, None, given)


@pytest.mark.parametrize(
    ("type", "typmod", "wanted", "support", "reason"),
    [
        ("uuid", -1, "binary", "YES", ""),
        ("bytea", -1, "binary", "YES", ""),
        ("time", -1, "time", "PARTIAL", "holds no 24:00: such values become NULL"),
        ("numeric", -1, "double", "PARTIAL", "rounded to the nearest double; holds no number beyond the range"),
        ("numeric", -1, "decimal(20,4)", "PARTIAL", "no infinity and no more than 16 digits before and 4 after"),
        ("numeric", (10 << 16 | 2) + 4, "decimal(20,4)", "PARTIAL", "holds no NaN"),
        ("int8", -1, "double", "PARTIAL", "rounded to the nearest double"),
        ("int8", -1, "decimal(18,0)", "PARTIAL", "no more than 18 digits"),
        ("int8", -1, "decimal(19,0)", "YES", ""),
        ("int4", -1, "double", "YES", ""),
        ("float8", -1, "double", "YES", ""),
        ("numeric", -1, "text", "PARTIAL", "becomes text"),
        ("jsonb", -1, "text", "PARTIAL", "becomes text"),
        ("int4[]", -1, "list", "PARTIAL", "holds no array of more than one dimension"),
        ("pair", -1, "struct", "PARTIAL", "holds no NaN: such values become NULL"),
        ("date[]", -1, "list", "PARTIAL", "begin at index 1; holds no infinity, no BC"),
        ("numeric[]", (10 << 16 | 2) + 4, "list", "PARTIAL", "begin at index 1; holds no NaN: such"),
    ],
)
def test_a_doctor_says_what_a_type_loses(type: str, typmod: int, wanted: str, support: str, reason: str) -> None:
    found = table(type, options(**{"as": {"v": wanted}}), typmod)
    assert found.stop is None
    logical = {"double": "float64", "text": "string", "list": f"list<{LISTS.get(type)}>", "struct": PAIR}.get(
        wanted, wanted
    )
    assert [c.type for c in found.schema.columns] == ["string", logical]
    told = describe(found, TableSize(), checks_text=True).columns[1]
    assert told.support == support and told.becomes == logical
    assert reason in told.reason and (not told.reason or bool(reason))


@pytest.mark.parametrize(
    ("type", "support", "reason"),
    [
        ("timestamptz", "YES", ""),
        ("jsonb", "YES", ""),
        ("int4[]", "YES", ""),
        ("regclass", "PARTIAL", "becomes text: exact text"),
        ("char", "PARTIAL", "becomes text: exact text"),
    ],
)
def test_a_doctor_says_that_postgresql_keeps_the_types_of_postgresql(type: str, support: str, reason: str) -> None:
    found = table(type, options().into_same_product())
    column = describe(found, TableSize(), checks_text=True).columns[1]
    assert column.support == support and column.reason.startswith(reason) and bool(column.reason) == bool(reason)
    assert support == "PARTIAL" or column.becomes == type


@pytest.mark.parametrize(
    ("type", "given", "message"),
    [
        ("jsonb", {"v": "double"}, "column 'v' of s.t cannot be copied as double: its type is jsonb"),
        ("text", {"v": "decimal(5,2)"}, r"cannot be copied as decimal\(5,2\): its type is text"),
        ("float8", {"v": "decimal(5,2)"}, "its type is float8"),
        ("float4", {"v": "double"}, "its type is float4"),
        ("text", {"v": "binary"}, "column 'v' of s.t cannot be copied as binary: its type is text"),
        ("timetz", {"v": "time"}, "column 'v' of s.t cannot be copied as time: its type is timetz"),
        ("time", {"v": "binary"}, "column 'v' of s.t cannot be copied as binary: its type is time"),
        ("pair", {"v": "list"}, "column 'v' of s.t cannot be copied as list: its type is pair"),
        ("int4[]", {"v": "struct"}, r"column 'v' of s.t cannot be copied as struct: its type is int4\[\]"),
        ("text", {"v": "struct"}, "column 'v' of s.t cannot be copied as struct: its type is text"),
        ("text", {"v": "list"}, "column 'v' of s.t cannot be copied as list: its type is text"),
        ("int4[]", {"v": "double"}, r"cannot be copied as double: its type is int4\[\]"),
        (
            "int4",
            {"id": "decimal(38,0)"},
            "column 'id' of s.t cannot .* its type is numeric, and it is part of the key",
        ),
    ],
)
def test_what_a_type_does_not_allow_stops_the_table_before_it_is_read(
    type: str, given: dict[str, str], message: str
) -> None:
    found = table(type, options(**{"as": given}))
    assert found.stop is not None
    with pytest.raises(type_of(found), match=message):
        raise found.stop
    (name,) = given
    assert found.stop.fix == f"Remove {name} from as, or write {name}: text."
    told = describe(found, TableSize(), checks_text=True)
    (column,) = (c for c in told.columns if c.column == name)
    assert told.stopped and (column.support, column.becomes, column.suggestion) == ("NO", None, found.stop.fix)


def type_of(found: PgTable) -> type[Exception]:
    assert found.stop is not None and found.stop.name == "ReadRefused"
    return type(found.stop)


def test_rows_are_not_chosen_by_a_column_of_another_type() -> None:
    """The source would compare exact numbers, and the log's rows rounded ones."""
    for wanted in ("double", "decimal(20,4)", "text"):
        stop = table("numeric", options(**{"as": {"v": wanted}, "where": "v > 0.1"})).stop
        assert stop is not None and f"column 'v' is numeric, which is copied as {wanted}" in stop.message


def test_a_mask_is_of_the_text_whatever_the_type() -> None:
    mask = [{"column": "v", "method": "Redact"}]
    found = table("jsonb", options(**{"as": {"v": "double"}, "mask": mask}))
    assert found.stop is None and [c.type for c in found.schema.columns] == ["string", "string"]


def test_another_word_is_answered_with_all_that_there_are() -> None:
    words = set(re.findall("[a-z]{2,}", base._COPIED_AS))
    assert {"text", "struct", "decimal"} <= words
    assert words <= set(re.findall("[a-z]+", base.FORMS[base._COPIED_AS]))
