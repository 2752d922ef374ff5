"""What doctor says of MySQL's columns is what the catalog does with them."""

from typing import Any, cast

import make_types
import pytest

from tailrace.contract.resources import TableOptions
from tailrace.sources.findings import ColumnSupport, TableSize
from tailrace.sources.mysql import types
from tailrace.sources.mysql.catalog import _table
from tailrace.sources.mysql.model import MysqlTable
from tailrace.sources.mysql.source import MysqlSession
from tailrace.sources.mysql.support import describe

EXACT = types.NAMES - {"date", "datetime", "timestamp", "decimal", *types.OTHER_FORM}


def column(kind: str, **more: object) -> dict[str, object]:
    digits = make_types._digits(kind)
    return {
        "column_name": "v",
        "data_type": make_types.base(kind),
        "column_type": kind,
        "is_nullable": "YES",
        "numeric_precision": digits[0] if digits else None,
        "numeric_scale": digits[1] if len(digits) > 1 else None,
        "datetime_precision": None,
        "character_octet_length": None,
        "character_set_name": None,
        "extra": "",
        "mariadb": 0,
    } | more


def table(kind: str, options: TableOptions | None = None, **more: object) -> MysqlTable:
    row = {"table_schema": "d", "table_name": "t", "engine": "InnoDB", "table_type": "BASE TABLE"}
    key = {"index_name": "PRIMARY", "column_name": "id", "nullable": "", "sub_part": None}
    columns = [column("int") | {"column_name": "id", "is_nullable": "NO"}, column(kind, **more)]
    return _table(row, columns, [key], options)


def told(kind: str, **more: object) -> tuple[ColumnSupport, bool]:
    """What is said of a column of this type, and whether its table is stopped."""
    described = describe(table(kind, None, **more), TableSize())
    return described.columns[1], described.stopped


@pytest.mark.parametrize("kind", [kind for line in make_types.MYSQL for kind in line.types])
def test_every_type_of_the_page_is_described(kind: str) -> None:
    found, stopped = told(kind)
    name = make_types.base(kind)
    assert not stopped and found.becomes == make_types.of_mysql(kind)
    exact = name in EXACT or kind == "decimal(38,10)"
    assert found.support == ("YES" if exact else "PARTIAL") and bool(found.reason) != exact
    if name in types.OTHER_FORM and not exact:
        assert found.reason == f"becomes {'text' if found.becomes == 'string' else 'bytes'}: {types.OTHER_FORM[name]}"


@pytest.mark.parametrize(
    ("kind", "more", "reason"),
    [
        ("newtype", {}, "the type newtype, which is not supported"),
        ("text", {"character_set_name": "klingon"}, "the character set klingon, which is not supported"),
    ],
)
def test_what_stops_the_table_is_no(kind: str, more: dict[str, object], reason: str) -> None:
    found, stopped = told(kind, **more)
    assert stopped and (found.support, found.becomes, found.reason) == ("NO", None, reason)
    assert "options[].columns" in found.suggestion


def asked(kind: str, column: str, wanted: str) -> MysqlTable:
    return table(kind, TableOptions.model_validate({"match": "d.t", "as": {column: wanted}}))


@pytest.mark.parametrize(
    ("kind", "column", "wanted", "why"),
    [
        ("double", "v", "decimal(5,2)", "decimal(5,2) in options[].as, which the type double does not allow"),
        ("bit(9)", "v", "double", "double in options[].as, which the type bit(9) does not allow"),
        ("varchar", "v", "double", "the type varchar does not allow"),
        ("varchar", "v", "binary", "binary in options[].as, which the type varchar does not allow"),
        ("datetime", "v", "time", "time in options[].as, which the type datetime does not allow"),
        ("int", "id", "double", "double in options[].as, which its key does not allow"),
    ],
)
def test_a_type_that_a_column_cannot_have_stops_the_table(kind: str, column: str, wanted: str, why: str) -> None:
    refused = asked(kind, column, wanted)
    assert refused.stop is not None and refused.stop.name == "ReadRefused" and why in refused.stop.message
    described = describe(refused, TableSize())
    assert described.stopped and "NO" in {c.support for c in described.columns}


NULLED = ": such values become NULL"


@pytest.mark.parametrize(
    ("kind", "wanted", "reason"),
    [
        ("decimal(65,30)", "double", "rounded to the nearest double"),
        ("decimal(65,30)", "decimal(38,10)", f"holds no more than 28 digits before and 10 after the point{NULLED}"),
        ("decimal(5,2)", "decimal(10,4)", ""),
        ("decimal(20,4)", "decimal(20,4)", ""),
        ("int", "double", ""),
        ("bigint unsigned", "decimal(18,0)", f"holds no more than 18 digits before and 0 after the point{NULLED}"),
        ("bigint", "decimal(19,0)", ""),
        ("double", "double", ""),
        ("time", "time", f"holds no time below 0 or of 24 hours and more{NULLED}"),
        ("uuid", "binary", ""),
    ],
)
def test_a_doctor_says_what_a_type_loses(kind: str, wanted: str, reason: str) -> None:
    described = describe(asked(kind, "v", wanted), TableSize())
    assert not described.stopped
    found = described.columns[1]
    assert (found.support, found.reason) == ("PARTIAL" if reason else "YES", reason)
    assert found.becomes == {"double": "float64"}.get(wanted, wanted)


def test_a_generated_column_that_the_log_leaves_out_is_no_and_stops_nothing() -> None:
    found, stopped = told("int", extra="STORED GENERATED", mariadb=1)
    assert not stopped and found.support == "NO" and "generated" in found.reason and found.suggestion
    assert told("int", extra="STORED GENERATED")[0].support == "YES"


def test_options_say_what_is_left_out_and_what_becomes_null() -> None:
    (_, left_out) = describe(table("date", TableOptions(match="d.t", columns=("id",))), TableSize()).columns
    assert (left_out.support, left_out.becomes, left_out.reason) == ("NO", None, "left out by options[].columns")
    (_, null) = describe(table("date", TableOptions(match="d.t", on_unsupported="SetNull")), TableSize()).columns
    assert null.support == "PARTIAL" and "become NULL" in null.reason and null.suggestion == ""


def test_a_column_that_is_to_be_copied_as_text_is_told_as_such() -> None:
    """Its type in the source is as before."""
    session = MysqlSession(cast(Any, None), cast(Any, None))
    before, as_text = table("datetime"), table("datetime", TableOptions(match="d.t", as_text=("v",)))
    stop = session.unfollowed(before, as_text)
    assert stop is not None
    assert stop.message == "column 'v' of d.t is to be copied as string, not as timestamp"
    assert session.unfollowed(before, before) is None
    changed = session.unfollowed(before, table("date"))
    assert changed is not None and "changed its type from datetime to date" in changed.message


def test_another_row_filter_is_told_and_one_that_cannot_be_used_stops_the_table() -> None:
    session = MysqlSession(cast(Any, None), cast(Any, None))
    before, filtered = table("varchar"), table("varchar", TableOptions(match="d.t", where="v = 'eu'"))
    assert filtered.stop is None and filtered.schema.where == "\"v\" = 'eu'"
    for one, other in ((before, filtered), (filtered, before)):
        stop = session.unfollowed(one, other)
        assert stop is not None and stop.message.startswith("options[].where of d.t is ")
        assert not other.shows(one.schema)
    assert session.unfollowed(filtered, filtered) is None
    for kind, where in (("json", "v = '{}'"), ("varchar", "w = 'eu'"), ("int", "v LIKE '1%'")):
        refused = table(kind, TableOptions(match="d.t", where=where)).stop
        assert refused is not None and f"(where: {where})" in refused.message
