from dataclasses import replace
from itertools import count

from support.states import keyed
from tailrace.batch.written import WrittenFiles
from tailrace.contract.status import Fault
from tailrace.driver.telling.lineage.runs import FIRST_PAUSE, LONGEST_PAUSE, Ending, Saying, SeenTable, TableRuns

AWAY, GONE = Fault(name="Retry", message="away"), Fault(name="NoKey", message="no key")


def seen(table_id: int = 1, **more: object) -> SeenTable:
    schema = keyed(table_id)
    made = SeenTable(table_id, ("s", schema.table_name), schema, schema, 1)
    return replace(made, **more)  # type: ignore[arg-type]  # fields of any type


class Told:
    """What the runs say, second by second."""

    def __init__(self) -> None:
        numbers = count(1)
        self.runs, self.now = TableRuns(lambda: f"run-{next(numbers)}"), 0.0
        self.dropped: set[int] = set()

    def look(self, *tables: SeenTable, after: float = 1.0) -> list[Saying]:
        self.now += after
        return self.runs.look(tables, self.now, lambda table: table.table_id in self.dropped)

    def kinds(self, *tables: SeenTable, after: float = 1.0) -> list[tuple[str, str]]:
        return [(one.kind, one.run.run_id) for one in self.look(*tables, after=after)]


def test_a_table_starts_once_and_is_told_of_again_when_it_has_changed() -> None:
    told = Told()
    assert told.kinds(seen(), seen(2)) == [("START", "run-1"), ("START", "run-2")]
    assert told.kinds(seen(), seen(2), after=2 * LONGEST_PAUSE) == []
    (one,) = told.look(seen(rows=5, version=3), seen(2))
    assert (one.kind, one.rows, one.table.version, one.change) == ("RUNNING", 5, 3, None)


def test_a_busy_table_is_told_of_ever_more_rarely_down_to_a_bound() -> None:
    told = Told()
    told.look(seen())
    at = [second for second in range(3600) if told.kinds(seen(rows=second + 1))]
    pauses = [later - earlier for earlier, later in zip([-1, *at], at, strict=False)]
    assert pauses[:5] == [10, 20, 40, 80, 160] and set(pauses[5:]) == {LONGEST_PAUSE}


def test_what_has_become_of_a_table_is_told_soon_and_by_its_kind() -> None:
    told, wider = Told(), keyed(1).model_copy(update={"columns": (*keyed(1).columns, *keyed(2, "x").columns)})
    told.look(seen())
    told.look(seen(rows=1), after=LONGEST_PAUSE)
    told.look(seen(rows=2), after=LONGEST_PAUSE)
    wider = keyed(1).model_copy(
        update={
            "columns": (*keyed(1).columns, keyed(1).columns[0].model_copy(update={"name": "v", "id": 2, "key": None}))
        }
    )
    assert told.look(seen(rows=2, source=wider, target=wider)) == []
    (altered,) = told.look(seen(rows=2, source=wider, target=wider), after=FIRST_PAUSE)
    assert altered.change == "ALTER"
    (made_again,) = told.look(seen(rows=2, source=wider, target=wider, generation=7), after=FIRST_PAUSE)
    assert made_again.change == "OVERWRITE"
    (failing,) = told.look(seen(rows=2, generation=7, source=wider, target=wider, fault=AWAY), after=FIRST_PAUSE)
    assert failing.fault == AWAY and failing.kind == "RUNNING"
    other = seen(rows=2, generation=7, source=wider, target=wider, fault=AWAY.model_copy(update={"count": 9}))
    assert told.look(other, after=FIRST_PAUSE) == []


def test_rows_count_from_the_start_of_the_run_also_when_a_new_copy_counts_anew() -> None:
    told = Told()
    told.look(seen(rows=100))
    (one,) = told.look(seen(rows=130), after=FIRST_PAUSE)
    assert one.rows == 30
    assert one.written is None
    (one,) = told.look(seen(rows=5, generation=2), after=LONGEST_PAUSE)
    assert one.rows == 35


def test_files_count_from_the_start_of_the_run_also_when_they_are_counted_anew() -> None:
    told = Told()
    told.look(seen(written=WrittenFiles(4, 400)))
    (one,) = told.look(seen(written=WrittenFiles(5, 700)), after=FIRST_PAUSE)
    assert one.written == WrittenFiles(1, 300)
    (one,) = told.look(seen(written=WrittenFiles(2, 50)), after=LONGEST_PAUSE)
    assert one.written == WrittenFiles(3, 350)
    assert [one.written for one in told.runs.end("ABORT", told.now)] == [WrittenFiles(3, 350)]


def test_a_stopped_table_fails_once_and_begins_another_run_when_it_is_healed() -> None:
    told = Told()
    told.look(seen())
    (failed,) = told.look(seen(stopped=True, fault=GONE))
    assert (failed.kind, failed.run.run_id, failed.fault) == ("FAIL", "run-1", GONE)
    assert told.kinds(seen(stopped=True, fault=GONE), after=2 * LONGEST_PAUSE) == []
    assert told.kinds(seen(generation=2)) == [("START", "run-2")]
    fresh = Told()
    assert fresh.kinds(seen(stopped=True, fault=GONE)) == [("START", "run-1"), ("FAIL", "run-1")]


def test_rows_by_which_a_stopped_table_is_healed_count_in_the_run_that_begins_with_them() -> None:
    told = Told()
    told.look(seen())
    told.look(seen(rows=10, written=WrittenFiles(1, 100)))
    told.look(seen(rows=10, written=WrittenFiles(1, 100), stopped=True, fault=GONE))
    (begun,) = told.look(seen(rows=18, written=WrittenFiles(2, 150)))
    assert (begun.kind, begun.rows) == ("START", 0)
    (ended,) = told.runs.end("ABORT", told.now)
    assert (ended.rows, ended.written) == (8, WrittenFiles(1, 50))


def test_a_table_that_is_no_longer_captured_is_complete() -> None:
    told = Told()
    told.look(seen(), seen(2))
    told.dropped = {2}
    ends = {one.run.run_id: (one.kind, one.change) for one in told.look()}
    assert ends == {"run-1": ("COMPLETE", None), "run-2": ("COMPLETE", "DROP")}
    assert told.runs.open == {} and told.kinds(seen()) == [("START", "run-3")]


def test_a_table_under_another_name_is_another_job() -> None:
    told = Told()
    told.look(seen())
    moved = seen(place=("s", "other"))
    assert told.kinds(moved) == [("COMPLETE", "run-1"), ("START", "run-2")]


def test_the_end_of_the_driver_ends_every_run() -> None:
    cases: list[tuple[Ending, Fault | None, list[tuple[str, Fault | None]]]] = [
        ("ABORT", None, [("ABORT", None), ("ABORT", None)]),
        ("COMPLETE", None, [("COMPLETE", None), ("FAIL", AWAY)]),
        ("FAIL", GONE, [("FAIL", GONE), ("FAIL", AWAY)]),
    ]
    for kind, fault, expected in cases:
        told = Told()
        told.look(seen(), seen(2, fault=AWAY))
        assert [(one.kind, one.fault) for one in told.runs.end(kind, 9.0, fault)] == expected
        assert told.runs.open == {}
