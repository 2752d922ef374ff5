"""Virtual columns that sessions compute differently, as MySQL's catalog has them."""

import pytest

from tailrace.sources.mysql.generated import Row, of_session


def column(name: str, data_type: str, expression: str | None = None, kind: str = "VIRTUAL") -> Row:
    extra = "" if expression is None else f"{kind} GENERATED"
    return {"column_name": name, "data_type": data_type, "extra": extra, "generation_expression": expression or ""}


PLAIN = [column("id", "int"), column("At", "timestamp"), column("dt", "datetime"), column("v", "varchar")]


@pytest.mark.parametrize(
    "expression",
    [
        "cast(`At` as date)",
        "hour(`at`)",
        "from_unixtime(`id`)",
        "dayname(`dt`)",
        r"date_format(`dt`,_utf8mb4\'%W\')",
        "date_format(`dt`,`v`)",
        r"concat(_utf8mb4\'it\\\'s \',`At`)",
    ],
)
def test_what_the_time_zone_or_the_language_decides_is_of_the_session(expression: str) -> None:
    assert of_session([*PLAIN, column("g", "varchar", expression)]) == {"g"}
    assert of_session([*PLAIN, column("g", "varchar", expression, "STORED")]) == set()


@pytest.mark.parametrize(
    "expression",
    [
        "(`id` % 7)",
        "cast(`dt` as date)",
        r"date_format(`dt`,_utf8mb4\'%Y-%m\')",
        r"json_unquote(json_extract(`v`,_utf8mb4\'$.at\'))",
        r"concat(`v`,_utf8mb4\'`At` dayname(\')",
        r"concat(`v`,_utf8mb4\'it\\\'s `At`\')",
        r"concat(`v`,_utf8mb4\'\\\\\')",
    ],
)
def test_what_all_sessions_compute_alike_is_not(expression: str) -> None:
    assert of_session([*PLAIN, column("g", "varchar", expression)]) == set()


def test_what_is_computed_of_such_a_column_is_like_it() -> None:
    later = [column("h", "int", "(`g` + 1)"), column("g", "int", "hour(`At`)"), column("s", "int", "(`v` + 1)")]
    assert of_session([*PLAIN, *later]) == {"g", "h"}
    kept = [column("g", "int", "hour(`At`)", "STORED"), column("h", "int", "(`g` + 1)")]
    assert of_session([*PLAIN, *kept]) == set()


def test_a_virtual_timestamp_is_converted_by_each_session() -> None:
    assert of_session([*PLAIN, column("g", "timestamp", "`dt`")]) == {"g"}
