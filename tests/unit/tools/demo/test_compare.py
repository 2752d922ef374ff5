"""What the comparison of the proofs and of the demo tells of tables that differ: how many rows, and the first few."""

from demo.compare import FEW, Row, matched


def rows(first: int, end: int, v: str = "a") -> list[Row]:
    return [(number, v) for number in range(first, end)]


def told(source: list[Row], target: list[Row]) -> list[str]:
    return matched("s.t", ("id", "v"), (0,), source, target)


def test_of_each_kind_of_difference_all_rows_are_counted_and_the_first_are_named() -> None:
    source = rows(0, 100) + rows(100, 150, "here")
    target = rows(30, 100) + rows(100, 150, "there") + rows(200, 207) + [(99, "again")]
    head, *lines = told(source, target)
    assert head == "s.t: rows: 30 missing in the target, 7 not in the source, 50 different, 1 twice in the target"
    for part in ("is missing", "is in the target and not", "column v: source 'here', target 'there'"):
        assert sum(part in line for line in lines) == FEW
    assert len(lines) == 3 * FEW + 1 and all(line.startswith("s.t: key (") for line in lines)


def test_kinds_without_rows_are_not_told() -> None:
    assert told(rows(0, 5), rows(0, 5)) == []
    assert told(rows(0, 5), rows(0, 4))[0] == "s.t: rows: 1 missing in the target"


def test_a_row_counts_once_however_many_of_its_cells_differ() -> None:
    head, *cells = matched("s.t", ("id", "a", "b"), (0,), [(1, 2, 3)], [(1, 4, 5)])
    assert head == "s.t: rows: 1 different" and len(cells) == 2
