"""Doctor's tables: a line each, columns only where they are not copied exactly; for programs, everything."""

from support.doctoring import partial, table
from tailrace.cli import assessment
from tailrace.driver.asking.assessment import BASIS
from tailrace.driver.asking.doctor import Line, Report
from tailrace.sources.findings import ColumnSupport, TableSize


def test_a_table_is_a_line_and_its_odd_columns_another_with_each_fix_once() -> None:
    generated = ColumnSupport("twice", None, None, "NO", "it is generated", "Compute it.")
    many = [partial(f"n{i}") for i in range(7)]
    report = Report(
        (), (table("a", *many, generated), table("b", partial("n"), size=TableSize(1200, 4096)), table("c"))
    )
    told = list(assessment.lines(report))
    assert [line for line in told if line.startswith("s.")] == [
        "s.a        ?      ?  id   8 of 9",
        "s.b    1,200  4 KiB  id   2 of 2",
        "s.c        ?      ?  id   1 of 1",
    ]
    assert [line.strip() for line in told if line.startswith("    ")][:3] == [
        "PARTIAL " + ", ".join(f"n{i} (numeric(9,2))" for i in range(5)) + " and 2 more: holds no NaN",
        "NO      twice: it is generated",
        "PARTIAL n (numeric(9,2)): holds no NaN",
    ]
    assert [line for line in told if "fix:" in line] == [
        "holds no NaN\n     fix: Copy it as text.",
        "it is generated\n     fix: Compute it.",
    ]
    assert "first snapshot: at least 3.8 s for 3 tables, at least 1,200 rows, 4 KiB" in told
    assert "2 tables have no statistics yet" in told[-1]


def test_a_name_cannot_make_lines_of_its_own() -> None:
    report = Report((), (table("a\nready", partial("n\nready")),))
    assert not [part for line in assessment.lines(report) for part in line.split("\n") if part.startswith("ready")]


def test_the_estimate_counts_what_can_be_copied_and_says_from_what() -> None:
    large = TableSize(2_700_000, 1)
    refused = Report(
        (Line("fail", "s.b", "the target cannot hold it", "Rename it."),),
        (table("a", size=large), table("b", size=large), table("c", size=large, stopped=True)),
    )
    told = list(assessment.lines(refused))
    assert sum("not copied" in line for line in told) == 2
    assert any(line.startswith("first snapshot: about 12.3 s for 1 table, 2,700,000 rows,") for line in told)
    assert any("estimate" in line and BASIS in line for line in told)


def test_the_document_has_all_columns_under_stable_names() -> None:
    report = Report((Line("ok", "version", "PostgreSQL 18"),), (table("a", partial("n"), size=TableSize(27_000, 10)),))
    assert assessment.document(report) == {
        "ready": True,
        "lines": [{"level": "ok", "subject": "version", "message": "PostgreSQL 18", "fix": "", "exitCode": 0}],
        "tables": [
            {
                "table": "s.a",
                "copied": True,
                "key": ["id"],
                "rows": 27_000,
                "bytes": 10,
                "columns": [
                    {
                        "column": "id",
                        "sourceType": "int",
                        "becomes": "int32",
                        "support": "YES",
                        "reason": "",
                        "suggestion": "",
                    },
                    {
                        "column": "n",
                        "sourceType": "numeric(9,2)",
                        "becomes": "decimal(9,2)",
                        "support": "PARTIAL",
                        "reason": "holds no NaN",
                        "suggestion": "Copy it as text.",
                    },
                ],
            }
        ],
        "snapshot": {"tables": 1, "rows": 27_000, "bytes": 10, "seconds": 3.3, "basis": BASIS},
    }


def test_without_tables_there_is_nothing_to_say() -> None:
    assert list(assessment.lines(Report(()))) == []
