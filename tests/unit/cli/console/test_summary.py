from typing import Any

from tailrace.cli.console import summary
from tailrace.contract.history import LastHour
from tailrace.contract.status import (
    ApplyStatus,
    CaptureStatus,
    Fault,
    FollowerReport,
    ObjectiveStatus,
    Status,
    TableState,
    TableStatus,
)

READS = FollowerReport(name="team/mine", record=7, renewed=0.0, held=True)
SILENT = READS.model_copy(update={"name": "team/lake", "silent": True})
FAULT = Fault(name="Refused", message="the source is away", fix="Start it.")


def status(**more: Any) -> Status:
    given: dict[str, Any] = {
        "name": "shop",
        "state": "Running",
        "started_at": 1.0,
        "updated_at": 2.0,
        "capture": CaptureStatus(alive=True),
    }
    return Status(**(given | more))


def test_trouble_is_sorted_by_what_needs_somebody_first() -> None:
    missed = ObjectiveStatus(within_seconds=5, percent=99, met_percent=97, remaining=-2)
    rising = [
        status(),
        status(state="Suspended"),
        status(state="Starting", capture=CaptureStatus()),
        status(capture=CaptureStatus(alive=True, waiting_for="transaction 7")),
        status(followers=(READS, SILENT)),
        status(apply=ApplyStatus(freshness_missed="3 tables are later than 5 s")),
        status(objective=missed),
        status(tables_failing=1, tables_total=3),
        status(tables_failing=2, tables_total=3),
        status(capture=CaptureStatus()),
        status(fault=FAULT),
        status(state="Stopped", fault=FAULT),
    ]
    ranks = [summary.trouble(one) for one in rising]
    assert ranks[0] == 0 and ranks == sorted(set(ranks))


def test_conditions_are_sentences_with_the_numbers() -> None:
    said = summary.conditions(
        status(
            fault=FAULT,
            tables_failing=1,
            tables_total=3,
            objective=ObjectiveStatus(within_seconds=5, percent=99, met_percent=97, remaining=-2),
            apply=ApplyStatus(suspended=True),
            capture=CaptureStatus(alive=True, retained_bytes=3 << 20),
            followers=(READS, SILENT),
        )
    )
    assert said == (
        "Refused: the source is away.",
        "1 of 3 tables do not replicate.",
        "The objective is missed: 97 % of the changes within 5 s, asked for 99 %.",
        f"F{str(SILENT.said)[1:]}.",
        "Apply is suspended: the source is captured, the target does not change.",
        "The source keeps 3 MiB of log.",
    )


def test_the_sparkline_keeps_the_peaks_of_an_hour() -> None:
    lags = [0.5] * 360
    lags[100] = 40.0
    numbers = LastHour(
        step_seconds=10,
        at=tuple(map(float, range(360))),
        capture_lag_seconds=tuple(lags),
        apply_lag_seconds=(None,) * 360,
    )
    found = summary.lags(numbers)
    assert len(found) == 60 and max(v for v in found if v is not None) == 40.0
    assert summary.lags(None) == ()
    uneven = LastHour(step_seconds=10, at=(1.0, 2.0), capture_lag_seconds=(1.0,), apply_lag_seconds=(2.0, 3.0))
    assert summary.lags(uneven) == (2.0,)  # a driver may answer whatever it likes


def table(name: str, state: TableState = "REPLICATING", fault: Fault | None = None) -> TableStatus:
    return TableStatus(name=name, state=state, fault=fault)


def test_a_page_of_tables_is_searched_filtered_and_has_the_faults_first() -> None:
    tables = [table(f"public.t{n:04}") for n in range(5000)]
    tables[4000] = table("public.Orders", "FAILING", FAULT)
    first = summary.page(tables, "", (), 0, 3)
    assert (first.total, first.matching) == (5000, 5000)
    assert [t.name for t in first.tables] == ["public.Orders", "public.t0000", "public.t0001"]
    assert [t.name for t in summary.page(tables, "oRd", (), 0, 3).tables] == ["public.Orders"]
    assert summary.page(tables, "", ["REPLICATING"], 4998, 3).tables[-1].name == "public.t4999"
    assert summary.page(tables, "", ["STOPPED"], 0, 3).matching == 0
