"""The refusals of a cutover that no server is asked for."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.resources import replicator
from tailrace.changelog.records.terms import RecordNumber
from tailrace.contract.resources import Replicator
from tailrace.contract.status import ApplyStatus, ComparedRows, Fault, NulledColumn, Status, TableStatus, Verification
from tailrace.driver.asking.cutover import Cutover, CutoverOptions, CutoverRefused, _not_there
from tailrace.places import Places
from tailrace.sources.findings import Writers

DATABASE = {"type": "postgresql", "host": "copy", "database": "shop", "username": "tailrace"}
NOW = 1_000_000.0


class Running:
    """A driver whose comparisons have this result."""

    def __init__(self, status: Status, after: Status | None = None) -> None:
        self.found, self.after = status, after
        self.compared: list[Sequence[str]] = []

    def status(self) -> Status:
        return self.found

    def verify(self, tables: Sequence[str]) -> None:
        self.compared.append(tables)
        self.found = self.after or self.found


def cutover(folder: Path, driver: Running | None = None, **spec: Any) -> Cutover:
    document = replicator("shop", target=DATABASE, storage={"location": f"file://{folder}/log"})
    document["spec"] |= spec
    found = Replicator.model_validate(document)
    return Cutover(
        found,
        Places(found.spec),
        driver or Running(status()),
        CutoverOptions(1.0),
        lambda line: None,
        clock=lambda: NOW,
        sleep=lambda seconds: None,
    )


def table(**more: Any) -> TableStatus:
    return TableStatus.model_validate({"name": "shop.item", "state": "REPLICATING", "read": True} | more)


def status(*tables: TableStatus, **more: Any) -> Status:
    return Status.model_validate(
        {"name": "shop", "state": "Running", "started_at": 1.0, "updated_at": 1.0, "tables": tables} | more
    )


def verified(at: float, undecided: int = 0) -> Verification:
    return Verification(snapshot="s", at=at, record=1, compared=ComparedRows(rows=1, undecided=undecided))


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"type": "delta", "location": "file:///lake"}, "the target is delta"),
        ({"type": "mysql", "host": "copy", "username": "tailrace"}, "the source is postgresql, the target mysql"),
    ],
)
def test_only_a_database_of_the_same_product_takes_programs(tmp_path: Path, target: dict[str, str], said: str) -> None:
    with pytest.raises(CutoverRefused, match=said):
        cutover(tmp_path, target=target).run()


def test_without_a_change_log_there_is_nothing_to_cut_over(tmp_path: Path) -> None:
    with pytest.raises(CutoverRefused, match="nothing was copied"):
        cutover(tmp_path).run()


FAULT = Fault(name="TargetRefused", message="no room", fix="Make room.")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (status(table()), []),
        (status(table(), state="Starting"), ["the Replicator is Starting: "]),
        (status(table(), apply=ApplyStatus(suspended=True)), ["writing to the target is suspended"]),
        (status(), ["no table is copied"]),
        (status(table(state="SNAPSHOTTING")), ["table shop.item is SNAPSHOTTING"]),
        (status(table(state="STOPPED", fault=FAULT)), ["table shop.item has a fault: TargetRefused: no room"]),
        (status(table(read=False)), ["table shop.item has not been read completely"]),
        (status(table(replacing=True)), ["table shop.item has not been read completely"]),
        (status(table(holes=2)), ["table shop.item withholds 2 rows"]),
        (
            status(table(converging_since=NOW)),
            [
                "table shop.item has rows that foreign keys changed below the source's log, and that are still to be"
                " read again"
            ],
        ),
        (status(table(nulled=(NulledColumn(column="d", values=1),))), ["table shop.item has values that became NULL"]),
        (status(table(lag_seconds=90.0)), ["the copies are 90 s behind, and programs would have to wait for that"]),
    ],
)
def test_a_copy_that_is_not_level_is_named(tmp_path: Path, found: Status, said: list[str]) -> None:
    assert [message for message, _ in cutover(tmp_path)._not_ready(found)] == said


def test_a_copy_that_is_meant_to_be_another_is_named(tmp_path: Path) -> None:
    given = {"where": "n > 1", "as": {"n": "text"}, "asText": ["m"]}
    options = [{"match": "shop.i*", **given}, {"match": "shop.k", "history": "Changes"}]
    made = cutover(tmp_path, options=options)
    names = [(f"shop.{n}", n) for n in "ijk"]
    tables = [SimpleNamespace(schema=SimpleNamespace(name=n, schema_name="shop", table_name=t)) for n, t in names]
    assert [message for message, _ in made._not_whole(cast(Any, tables))] == [
        "the copy of shop.i is another than the table: options[].where",
        "the copy of shop.i is another than the table: options[].as",
        "the copy of shop.i is another than the table: options[].asText",
        "the copy of shop.k is another than the table: options[].history",
    ]


def test_what_was_compared_within_a_day_is_not_compared_again(tmp_path: Path) -> None:
    driver = Running(status(table(verified=verified(NOW - 3600))))
    cutover(tmp_path, driver)._verify(86_400)
    assert driver.compared == []
    old = table(verified=verified(NOW - 90_000))
    driver = Running(status(old), status(table(verified=verified(NOW))))
    cutover(tmp_path, driver)._verify(86_400)
    assert driver.compared == [["shop.item"]]


def test_rows_that_no_comparison_decides_are_refused(tmp_path: Path) -> None:
    driver = Running(status(table(verified=verified(NOW, undecided=1))))
    with pytest.raises(CutoverRefused, match="not known to be equal"):
        cutover(tmp_path, driver)._verify(86_400)
    assert len(driver.compared) == 3


@pytest.mark.parametrize(
    "lacks", [{"applied_record": 8}, {"holes": 1}, {"converging_since": NOW}, {"replacing": True}], ids=str
)
def test_rows_that_are_still_to_come_are_waited_for_while_programs_stand_still(
    tmp_path: Path, lacks: dict[str, Any]
) -> None:
    """A row that is withheld, or read again, is in no copy: whoever wrote into it would miss that row for good."""
    driver = Running(status(table(**{"applied_record": 9} | lacks)))
    made, waits = cutover(tmp_path, driver), list[str]()

    def come(seconds: float) -> None:
        driver.found = status(table(applied_record=9))

    made.say, made.sleep = waits.append, come
    made._wait_applied(RecordNumber(9), made.monotonic() + 60)
    assert len(waits) == 1 and "1 tables do not hold all of record 9 yet, such as shop.item" in waits[0]


def test_what_was_created_while_a_cutover_waited_is_named(tmp_path: Path) -> None:
    def table_of(number: int, *columns: str) -> Any:
        return SimpleNamespace(
            table_id=number, name=f"shop.t{number}", columns=[SimpleNamespace(name=name) for name in columns]
        )

    copied = [cast(Any, SimpleNamespace(schema=table_of(1, "id")))]
    assert [message for message, _ in _not_there([table_of(1, "id", "late"), table_of(2, "id")], copied)] == [
        "column 'late' of shop.t1 is not in the copy yet",
        "table shop.t2 of the source is not copied yet",
    ]
    assert list(_not_there([table_of(1, "id")], copied)) == []


def test_once_all_is_applied_everything_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the source is asked again after that."""
    made, order = cutover(tmp_path), list[str]()

    def writers(since: str | None, stopped: bool) -> Writers:
        order.append("writers")
        return Writers((), "then")

    session = SimpleNamespace(writers=writers, log_end=lambda: "1")
    source = SimpleNamespace(session=lambda: nullcontext(session))
    reader = SimpleNamespace(poll=lambda: False, state=SimpleNamespace(position="1", number=3, tables={}))
    monkeypatch.setattr(made, "_wait_applied", lambda record, until: order.append("applied"))
    assert made._settled(cast(Any, source), cast(Any, reader), lambda: order.append("look")) == 3
    assert order == ["writers", "applied", "look", "writers"]


def test_a_manifest_is_not_told_of_options_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(declared: bool) -> str:
        made = cutover(tmp_path)
        made.options = CutoverOptions(-1.0, declared=declared)
        nothing = SimpleNamespace(extras=lambda names: [])
        session = SimpleNamespace(
            writers=lambda since, stopped: Writers((("not read-only", "Stop."),)), log_end=lambda: "1"
        )
        source = cast(Any, SimpleNamespace(session=lambda: nullcontext(session)))
        with pytest.raises(CutoverRefused) as refused:
            made._settled(source, cast(Any, None), lambda: None)
        fixes = [refused.value.fix, *(fix for _, fix in made._not_ready(status(table(read=False))))]
        target = SimpleNamespace(lacked=lambda extras, schemas: {"shop.item": ["CREATE INDEX"]})
        monkeypatch.setattr(type(made.places), "target", target)
        reading = cast(Any, SimpleNamespace(session=lambda: nullcontext(nothing)))
        return " ".join([*fixes, *(fix for _, fix in made._lacked(reading, []))])

    of_command, of_manifest = said(declared=False), said(declared=True)
    for word in ("--writers-stopped", "--accept-missing", "run it again"):
        assert word in of_command and word not in of_manifest
    assert "set cutover.acceptMissing: true" in of_manifest
