"""The language of row filters: its canonical text, and what is refused with which words."""

import pytest

from tailrace.changelog.records.terms import Column
from tailrace.selection import conditions
from tailrace.selection.binding import bound
from tailrace.selection.conditions import ConditionRefused

TYPES = {
    "a": "int32", "big": "int64", "d": "decimal(6,2)", "ok": "bool", "s": "string", "day": "date", "at": "timestamp",
    "tz": "timestamptz", "f": "float64", "raw": "binary", "Odd \"x\"": "string",
}  # fmt: skip
COLUMNS = tuple(Column(name=name, id=i, source_type="?", type=type) for i, (name, type) in enumerate(TYPES.items(), 1))


def canonical(text: str) -> str:
    return conditions.canonical(bound(text, COLUMNS))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a=1", '"a" = 1'),
        ("1 < a", '"a" > 1'),
        ("a != 1.0", '"a" <> 1'),
        ("a between -1 and 1", '"a" >= -1 AND "a" <= 1'),
        ("a not in (1, 2)", 'NOT ("a" IN (1, 2))'),
        ("s is not null", 'NOT ("s" IS NULL)'),
        ("ok and not ok or ok = false", '("ok" AND NOT ("ok")) OR "ok" = FALSE'),
        ("a = 1 and (a = 2 and a = 3) and a = 4", '"a" = 1 AND ("a" = 2 AND "a" = 3) AND "a" = 4'),
        ("s = 'it''s'", "\"s\" = 'it''s'"),
        ('"Odd ""x""" <> \'\' -- no comment', '"Odd ""x""" <> \'\''),
        ("d < 1e1", '"d" < 10'),
        ("d < 100.00 and d > 1.50", '"d" < 100 AND "d" > 1.5'),
        ("d in (-0.0, -1.10)", '"d" IN (0, -1.1)'),
        ("day >= '2026-01-31'", "\"day\" >= '2026-01-31'"),
        ("at < '2026-01-31 18:00'", "\"at\" < '2026-01-31 18:00:00'"),
        ("tz < '2026-01-31T18:00:00.500+01:00'", "\"tz\" < '2026-01-31 17:00:00.500000+00:00'"),
        ("tz < '2026-01-31 18:00Z'", "\"tz\" < '2026-01-31 18:00:00+00:00'"),
        ("raw is null or f is null", '"raw" IS NULL OR "f" IS NULL'),
    ],
)
def test_texts_with_one_meaning_have_one_form(text: str, wanted: str) -> None:
    assert canonical(text) == wanted
    assert canonical(wanted) == wanted


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        ("", "it is empty", "Write comparisons"),
        ("a = ", "it cannot be parsed", "Write comparisons"),
        ("a = 1; a = 2", "it is more than one expression", "Write comparisons"),
        ("(" * 5000 + "ok" + ")" * 5000, "cannot be parsed|nested too deeply", "Write comparisons"),
        ("a - 1 = 2", "a - 1 is more than a row filter can be", "Write comparisons"),
        ("lower(s) = 'x'", "more than a row filter can be", "Write comparisons"),
        ("t.a = 1", "t.a is more than a row filter can be", "Write comparisons"),
        ("s like 'x%'", "s LIKE 'x%' is more than a row filter can be", "Write comparisons"),
        ("a in (select 1)", "more than a row filter can be", "Write comparisons"),
        ("exists (select 1)", "more than a row filter can be", "Write comparisons"),
        ("a::text = '1'", "more than a row filter can be", "Write comparisons"),
        ("s collate x = '1'", "more than a row filter can be|cannot be parsed", "Write comparisons"),
        ("ok is true", "more than a row filter can be", "Write comparisons"),
        ("drop table t", "more than a row filter can be", "Write comparisons"),
        ("a = big", "big stands where a literal is expected", "single quotes"),
        ('s = "eu"', '"eu" stands where a literal is expected', "single quotes"),
        ("a = null", "a comparison with NULL is never true", "Write IS NULL"),
        ("a in (1, null)", "a comparison with NULL is never true", "Write IS NULL"),
        ("a", "column 'a' is no boolean", "Compare it with a literal"),
        ("A = 1", "there is no copied column 'A'", "double quotes"),
        ("a = 1.5", "1.5 does not fit column 'a', which is int32", "a whole number between -2147483648 and 2147483647"),
        ("a < 2147483648", "2147483648 does not fit column 'a'", "a whole number"),
        ("a = '1'", "'1' does not fit column 'a'", "a whole number"),
        ("a = true", "TRUE does not fit column 'a'", "a whole number"),
        ("d < 10000", "10000 does not fit column 'd'", "4 digits and 2 behind a point"),
        ("d = 0.001", "0.001 does not fit column 'd'", "4 digits and 2 behind a point"),
        ("d < 1e999999", "1e999999 fits no column", "Write a number"),
        ("s < 'x'", "column 's' is string, of which rows are chosen by =, <> and IN only", "IN"),
        ("s = 1", "1 does not fit column 's'", "a text in single quotes"),
        ("ok > false", "column 'ok' is bool", "IN"),
        ("ok = 1", "1 does not fit column 'ok'", "TRUE or FALSE"),
        ("day = '2026-02-30'", "does not fit column 'day'", "a date like '2026-01-31'"),
        ("day = '20260201'", "does not fit column 'day'", "a date like '2026-01-31'"),
        ("day = '2026-02-01 00:00'", "does not fit column 'day'", "a date like '2026-01-31'"),
        ("at = '2026-02-01 00:00Z'", "does not fit column 'at'", "without a zone"),
        ("tz = '2026-02-01 00:00'", "does not fit column 'tz'", "with its offset"),
        ("tz = '0001-01-01 00:00+10:00'", "does not fit column 'tz'", "with its offset"),
        ("at = '2026-02-01 00:00:00.1234567'", "does not fit column 'at'", "without a zone"),
        ("f < 1", "column 'f' is float64, which is not compared", "IS NULL"),
        ("raw = 'x'", "column 'raw' is binary, which is not compared", "IS NULL"),
    ],
)
def test_what_is_outside_of_the_language_is_refused_with_what_to_write(text: str, what: str, fix: str) -> None:
    with pytest.raises(ConditionRefused, match=what) as refused:
        canonical(text)
    assert fix in refused.value.fix


def test_a_long_chain_is_no_deep_one() -> None:
    text = " OR ".join(["ok"] * 800)
    assert canonical(text).count("OR") == 799
