"""The console's page in a real browser: over a copy that runs in the test's process, and over documents.

TAILRACE_SCREENSHOTS=1 writes the pictures of docs/console.md.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from typing_extensions import override

from support.browser import Look, browser
from support.console import TOKEN, Console, Shown, console
from support.scripted import ScriptedSource
from support.scripted_runs import Copy, filled
from support.served import Served
from tailrace.cli.console.local import LocalReplicator
from tailrace.contract.console import AssessedColumn, AssessedLine, AssessedTable, ConsoleAssessment
from tailrace.contract.history import (
    ChunkMap,
    ChunkRun,
    ChunkState,
    ColumnView,
    CounterHistory,
    LastHour,
    TableView,
)
from tailrace.contract.status import (
    ApplyStatus,
    CaptureStatus,
    ComparedRows,
    Fault,
    ObjectiveStatus,
    SignalReport,
    SnapshotStatus,
    SnapshotTableProgress,
    Status,
    TableCounters,
    TableStatus,
    Verification,
)
from tailrace.errors import ReadRefused
from tailrace.sources import api

HOUR = tuple(1_800_000_000.0 + 10 * n for n in range(360))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as made:
        yield made


def healthy(name: str) -> Shown:
    tables = tuple(TableStatus(name=f"public.t{n:04}", state="REPLICATING", lag_seconds=0) for n in range(3))
    status = Status(
        name=name, state="Running", started_at=1, updated_at=HOUR[-1], tables=tables, tables_total=3,
        tables_replicating=3, capture=CaptureStatus(alive=True, lag_seconds=0.3, record=7),
        apply=ApplyStatus(lag_seconds=0),
    )  # fmt: skip
    return Shown(name, status, numbers())


def numbers() -> LastHour:
    return LastHour(
        step_seconds=10, at=HOUR, capture_lag_seconds=tuple(0.2 + n % 7 / 10 for n in range(360)),
        apply_lag_seconds=tuple(1 + (n % 40) / 10 for n in range(360)),
        captured_rows_per_second=tuple(900.0 + n for n in range(360)),
        applied_rows_per_second=tuple(880.0 + n for n in range(360)), retained_bytes=(5 << 20,) * 360,
        tables_failing=(0,) * 360,
    )  # fmt: skip


def failing() -> Shown:
    """One that fails, in the middle of a snapshot, with 5,000 tables."""
    fault = Fault(
        name="ValueUnsupported", message="column price holds 12 digits", fix="Set as: {price: text}.", since=HOUR[9]
    )
    tables = [TableStatus(name=f"sales.t{n:04}", state="REPLICATING", lag_seconds=0.5) for n in range(4998)]
    tables += [TableStatus(name="sales.orders", state="STOPPED", fault=fault)]
    reading = TableStatus(
        name="sales.lines", state="SNAPSHOTTING", lag_seconds=2.5, counters=TableCounters(snapshot_rows=70),
        verified=Verification(
            snapshot="verify-1", at=HOUR[5], record=7, compared=ComparedRows(rows=500, undecided=3)
        ),
    )  # fmt: skip
    progress = SnapshotTableProgress(name="sales.lines", chunks_done=7, rows_done=70, rows_estimated=160)
    snapshot = SnapshotStatus(
        id="initial-1", reason="initial", state="Running", tables_total=1, rows_done=70, rows_estimated=160,
        rows_per_second=12, seconds_left=7.5, tables=(progress,),
    )  # fmt: skip
    status = Status(
        name="sales", state="Failing", message="1 of 5000 tables fail", started_at=1, updated_at=HOUR[-1],
        tables=(*tables, reading), tables_total=5000, tables_replicating=4998, tables_failing=1,
        snapshots=(snapshot,),
        signals=(
            SignalReport(sequence=1, id="s-1", type="execute-snapshot", state="Done", received=HOUR[0]),
            SignalReport(sequence=2, id="s-2", type="log", state="Ignored", received=HOUR[1], message="no such signal"),
        ),
        objective=ObjectiveStatus(within_seconds=5, percent=99, met_percent=97.5, remaining=-1.5),
        capture=CaptureStatus(
            alive=True, lag_seconds=0.4, record=812, position="0/16B3748", rows_per_second=1200, retained_bytes=3 << 30
        ),
        apply=ApplyStatus(lag_seconds=2.5, record=809, rows_per_second=1100),
    )  # fmt: skip
    runs: tuple[tuple[ChunkState, int], ...] = (
        ("applied", 5),
        ("read", 2),
        ("reading", 2),
        ("failed", 1),
        ("waiting", 3),
    )
    view = TableView(
        status=reading, schema_version=2,
        columns=(
            ColumnView(name="id", source_type="bigint", type="int64", nullable=False, key=0),
            ColumnView(name="price", source_type="numeric(10,2)", type="decimal(10,2)"),
            ColumnView(name="email", source_type="text", type="string", mask="Hash"),
        ),
        snapshots=(
            ChunkMap(
                snapshot="initial-1", state="Running", chunks=tuple(ChunkRun(state=s, chunks=n) for s, n in runs),
                more=3, reading=("(71, 80]", "(81, 90]"), rows_done=70, rows_estimated=160,
            ),
        ),
        history=CounterHistory(
            step_seconds=60, at=tuple(HOUR[::6]), inserts=tuple(60 + n % 9 for n in range(60)),
            updates=tuple(40 - n % 7 for n in range(60)), deletes=(0,) * 50 + (3,) * 10, truncates=(0,) * 60,
            schema_changes=(0,) * 59 + (1,), snapshot_rows=(0,) * 58 + (30, 40),
        ),
    )  # fmt: skip
    return Shown("sales", status, numbers(), {"sales.lines": view})


def assessed() -> Shown:
    column = AssessedColumn(column="id", source_type="bigint", becomes="int64", support="YES", reason="", suggestion="")
    partial = AssessedColumn(
        column="area", source_type="polygon", becomes="string", support="PARTIAL", reason="becomes text", suggestion=""
    )
    tables = (
        AssessedTable(table="hr.staff", copied=True, key=("id",), rows=1200, bytes=1 << 20, columns=(column, partial)),
        AssessedTable(table="hr.notes", copied=False, key=(), rows=None, bytes=None, columns=(column,)),
    )
    lines = (
        AssessedLine(level="ok", subject="source", message="PostgreSQL 18.1", fix=""),
        AssessedLine(level="fail", subject="hr.notes", message="it has no key", fix="Add a primary key."),
    )
    report = ConsoleAssessment(ready=False, lines=lines, tables=tables, seconds=12, include=("hr.*",))
    return Shown("hr", assessed=report)


@pytest.fixture(scope="module")
def documents() -> Iterator[Console]:
    shown = [failing(), assessed(), *(healthy(f"r{n:03}") for n in range(500))]
    with console(shown) as made:
        yield made


@pytest.fixture
def look(chromium: Browser, documents: Console) -> Iterator[Look]:
    made = Look(chromium, documents.url)
    yield made
    made.close()
    assert made.wrong == []


def opened(look: Look, shown: Console, path: str = "") -> None:
    look.page.goto(f"{shown.url}/#token={TOKEN}")
    expect(look.page.get_by_role("heading", name="Fleet")).to_be_visible()
    if path:
        look.page.goto(f"{shown.url}/#/{path}")


def test_the_fleet_has_trouble_first_and_is_worked_by_keys(look: Look, documents: Console) -> None:
    opened(look, documents)
    rows = look.page.locator("tbody tr")
    expect(rows).to_have_count(502)
    expect(rows.nth(0)).to_contain_text("sales")
    expect(rows.nth(0)).to_contain_text("97.5 % of 99 % within 5 s")
    expect(rows.nth(0)).to_contain_text("3.0 GiB")
    expect(rows.nth(1)).to_contain_text("Not running")
    expect(look.page.locator("#mode")).to_have_text("Read-only")
    paint = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    print(f"first contentful paint after {look.page.evaluate(paint):.0f} ms with 502 Replicators")
    look.picture("fleet")

    look.page.keyboard.press("/")
    look.page.keyboard.type("R49")
    expect(rows).to_have_count(10)
    assert look.obstacles() == []
    look.page.keyboard.press("Tab")  # the region that scrolls
    look.page.keyboard.press("Tab")
    look.page.keyboard.press("Enter")
    expect(look.page.get_by_role("heading", name="r490", exact=True)).to_be_visible()
    look.page.keyboard.press("h")
    expect(look.page.get_by_role("heading", name="Fleet")).to_be_visible()


def test_one_replicator_with_five_thousand_tables(look: Look, documents: Console) -> None:
    opened(look, documents, "r/sales")
    page = look.page
    expect(page.get_by_text("1 of 5000 tables do not replicate.")).to_be_visible()
    expect(page.get_by_role("list", name="Path of the data")).to_contain_text("captures 1,200 rows/s")
    expect(page.get_by_role("img", name="Lag over the last hour")).to_be_visible()
    expect(page.locator("canvas")).to_have_count(2)
    tables = page.get_by_role("region", name="of 5,000 tables")
    expect(tables.locator("tbody tr").nth(0)).to_contain_text("Fix: Set as: {price: text}.")
    expect(tables.locator("tbody tr")).to_have_count(100)
    signals = page.get_by_role("region", name="2 signals, the newest first").locator("tbody tr")
    expect(signals.nth(0)).to_contain_text("s-2")
    expect(signals.nth(0)).to_contain_text("no such signal")
    expect(tables.locator("tbody tr").nth(1)).to_contain_text("3 rows undecided")
    assert look.obstacles() == []
    look.picture("replicator")
    page.get_by_label("State").select_option("SNAPSHOTTING")
    expect(tables.locator("tbody tr")).to_have_count(1)
    page.get_by_label("State").select_option("")
    page.get_by_label("Search").fill("T499")
    expect(tables.locator("tbody tr")).to_have_count(8)

    page.get_by_role("button", name="Make a cut").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("tailrace cut -f replicator.yaml")
    expect(dialog.get_by_role("button", name="Carry out")).to_be_disabled()
    assert look.obstacles() == []
    look.picture("action")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Verify …").click()
    dialog.get_by_label("Tables").fill("orders")
    dialog.get_by_label("Tables").press("Tab")
    expect(dialog).to_contain_text("write schema.table")  # as the command says it
    assert all("422" in text for text in look.wrong)
    look.wrong.clear()


def test_one_table_has_a_map_of_its_chunks(chromium: Browser, documents: Console) -> None:
    """In the dark, too."""
    look = Look(chromium, documents.url, "dark")
    opened(look, documents, "r/sales/t/sales.lines")
    chunks = look.page.get_by_role(
        "img", name="Chunks by key: 5 applied, 2 read, 2 reading, 3 waiting, 1 failed, about 3 more"
    )
    expect(chunks).to_be_visible()
    expect(chunks.locator(".cell")).to_have_count(13)
    expect(look.page.get_by_role("region", name="3 columns")).to_contain_text("numeric(10,2)")
    expect(look.page.get_by_text("30 deletes, 0 truncates, 1 schema changes, 70 snapshot rows")).to_be_visible()
    rows = look.page.get_by_role("img", name="Rows a minute over the last hour: inserts at most 68, updates at most 40")
    expect(rows.locator("canvas")).to_have_count(1)
    assert look.obstacles() == []
    look.picture("table")
    look.close()
    assert look.wrong == []


def test_the_set_up_shows_what_doctor_says_and_the_tables_for_the_manifest(look: Look, documents: Console) -> None:
    opened(look, documents, "r/hr/setup")
    page = look.page
    expect(page.get_by_text("Not ready.")).to_be_visible()
    expect(page.get_by_role("region", name="2 tables that hr.* selects")).to_contain_text("area (polygon) as string")
    expect(page.locator("#manifest")).to_contain_text('- "hr.staff"')
    page.get_by_label("copy hr.staff").uncheck()
    expect(page.locator("#manifest")).not_to_contain_text("hr.staff")
    assert look.obstacles() == []


@pytest.mark.parametrize("path", ["setup", "r/hr/setup", "r/r001", "r/sales/t/sales.lines"])
def test_every_control_of_a_view_is_reached_by_the_tab_key(look: Look, documents: Console, path: str) -> None:
    opened(look, documents, path)
    expect(look.page.locator("main h1")).not_to_have_text("Fleet")
    expect(look.page.locator("main button:not([disabled])").first).to_be_visible()
    expect(look.page.locator("#main")).to_be_focused()  # the last step of the way to another view
    look.page.wait_for_load_state("networkidle")
    controls = look.page.locator("a[href], button:not([disabled]), input, select, [tabindex='0']")

    def walked() -> list[int]:
        look.page.locator("#skip").focus()
        places = []
        for _ in range(controls.count()):
            places.append(controls.evaluate_all("all => all.indexOf(document.activeElement)"))
            look.page.keyboard.press("Tab")
        return places

    # A view that is drawn again on the way has other controls: the way is taken once more.
    walks = (walked() for _ in range(3))
    seen = next((places for places in walks if places == list(range(controls.count()))), [])
    assert seen, "every control has its turn, in the order of the view"
    assert look.obstacles() == []


def test_a_wrong_token_and_a_replicator_that_is_gone_are_said(chromium: Browser, documents: Console) -> None:
    look = Look(chromium, documents.url)
    look.page.goto(f"{documents.url}/#token=wrong")
    look.page.get_by_label("Token").fill(TOKEN)
    look.page.get_by_role("button", name="Continue").click()
    expect(look.page.locator("tbody tr").nth(0)).to_contain_text("sales")
    look.page.goto(f"{documents.url}/#/r/gone")
    expect(look.page.get_by_role("status")).to_contain_text("there is no Replicator 'gone'")
    assert look.obstacles() == []
    look.close()
    assert all("401" in text or "404" in text for text in look.wrong) and look.wrong


def test_a_snapshot_of_a_running_copy_is_asked_for_and_watched(chromium: Browser, tmp_path: Path) -> None:
    copy = Copy(filled("orders", rows=40), tmp_path)
    served = Served(copy)
    with served.running():
        copy.level()
        copy.driver.control.ask_capture()
        local = LocalReplicator(copy.replicator, copy.manifest, served.run_dir)
        with console([local], allow_actions=True) as shown:
            look = Look(chromium, shown.url)
            opened(look, shown, "r/shop/t/main.orders")
            page = look.page
            expect(page.get_by_text("REPLICATING")).to_be_visible()
            page.get_by_role("button", name="Verify", exact=True).click()
            page.get_by_role("button", name="Carry out").click()
            expect(page.get_by_role("dialog")).to_contain_text("Done.")
            page.keyboard.press("Escape")
            copy.level()
            expect(page.get_by_text("40 rows compared, 0 missing, 0 extra, 0 different.")).to_be_visible()
            page.get_by_role("link", name="shop").click()
            expect(page.get_by_text("All tables replicate.")).to_be_visible()
            assert look.obstacles() == []

            copy.manifest.write_text(copy.manifest.read_text().replace("host", "hots", 1))
            page.get_by_role("link", name="Check source and tables (doctor)").click()
            expect(page.locator("#notice")).to_contain_text("InvalidManifest")
            expect(page.locator("#notice")).to_contain_text("hots")
            look.close()
            assert all("503" in text or "422" in text for text in look.wrong)  # cuts: this copy keeps none


@dataclass(frozen=True)
class Refusing(ScriptedSource):
    """It refuses to have one table read."""

    @override
    def read(
        self, table: api.Table, part: api.KeyRange | api.KeyList, where: str | None, write: api.Writer
    ) -> api.ChunkRead:
        if table.name == "main.refused":
            raise ReadRefused("main.refused", "no right to read it", "GRANT SELECT ON main.refused.")
        return super().read(table, part, where, write)


def test_the_views_of_a_copy_that_runs_in_its_first_snapshot_with_a_table_that_fails(
    chromium: Browser, tmp_path: Path
) -> None:
    copy = Copy(filled("orders", "refused", rows=40), tmp_path)
    copy.source, served = Refusing(copy.database), Served(copy)
    with served.running():
        local = LocalReplicator(copy.replicator, copy.manifest, served.run_dir)
        with console([local]) as shown:
            look = Look(chromium, shown.url)
            page = look.page

            def is_read_in_part(_: object) -> bool:
                snapshots = local.table("main.orders").snapshots
                return bool(snapshots) and 0 < snapshots[-1].rows_done < 40

            copy.until(is_read_in_part, work=True)
            opened(look, shown, "r/shop/t/main.orders")
            expect(page.get_by_role("img", name=re.compile("^Chunks by key: [1-6] applied"))).to_be_visible()
            expect(page.get_by_text("SNAPSHOTTING")).to_be_visible()
            assert look.obstacles() == []

            copy.until(lambda _: copy.driver.faults() == {"main.refused": "SnapshotFailed"}, work=True)
            copy.until(lambda _: local.table("main.orders").snapshots[-1].state != "Running", work=True)
            page.goto(f"{shown.url}/#/")
            row = page.locator("tbody tr").nth(0)
            expect(row).to_contain_text("shop")
            expect(row).to_contain_text("1 of 2 tables")
            page.get_by_role("link", name="shop").click()
            expect(page.get_by_text("1 of 2 tables do not replicate.")).to_be_visible()
            tables = page.get_by_role("region", name="of 2 tables")
            expect(tables.locator("tbody tr").nth(0)).to_contain_text("GRANT SELECT ON main.refused.")
            assert look.obstacles() == []
            tables.get_by_role("link", name="main.orders").click()
            expect(page.get_by_role("img", name=re.compile("^Chunks by key: [67] applied$"))).to_be_visible()
            look.close()
            assert all("503" in text for text in look.wrong)  # cuts: this copy keeps none
