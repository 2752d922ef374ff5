from tailrace.contract.status import TableCounters
from tailrace.driver.telling.table_history import KEPT, STEP_SECONDS, TableHistory


def test_each_step_has_what_the_counters_grew_by() -> None:
    ring = TableHistory()
    ring.add(1000.0, {"a": TableCounters(inserts=50), "b": TableCounters()})
    ring.add(1010.0, {"a": TableCounters(inserts=51), "b": TableCounters()})  # within the step
    ring.add(1060.0, {"a": TableCounters(inserts=57, deletes=2), "b": TableCounters()})
    ring.add(1120.0, {"a": TableCounters(inserts=57, deletes=2), "b": TableCounters(updates=1)})
    # Table a starts over, and c is new.
    ring.add(
        1180.0, {"a": TableCounters(snapshot_rows=9), "b": TableCounters(updates=1), "c": TableCounters(inserts=4)}
    )
    a = ring.document("a")
    assert (a.at, a.inserts, a.deletes) == ((1060.0, 1120.0, 1180.0), (7, 0, 0), (2, 0, 0))
    assert a.snapshot_rows == (0, 0, 9) and ring.document("b").updates == (0, 1, 0)
    assert ring.document("c").inserts == (0, 0, 4) and ring.document("none").inserts == (0, 0, 0)


def test_an_hour_is_kept_and_only_of_tables_that_changed() -> None:
    ring = TableHistory()
    busy = {f"t{n}": TableCounters() for n in range(3)}
    for step in range(3 * KEPT):
        busy["t0"] = TableCounters(inserts=step)
        busy["t1"] = TableCounters(updates=min(step, 10))
        ring.add(step * STEP_SECONDS, dict(busy))
    assert ring.document("t0").inserts == (1,) * KEPT
    assert ring.document("t1").updates == (0,) * KEPT
    assert list(ring._grown) == ["t0"] and len(ring._grown["t0"]) == 7 * KEPT
    ring.add(1e6, {"t1": busy["t1"]})
    assert not ring._grown and ring.document("t0").inserts == (0,) * KEPT
