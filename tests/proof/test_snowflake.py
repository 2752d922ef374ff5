"""Snowflake's emulator as the target of whole drivers that are killed, with writers running, and a column that comes
meanwhile: source = target afterwards, row by row and column by column.

All seams: `tests/soak/test_soak_snowflake.py`.
"""

import pytest

from support.proof.harness import SMALL, Begin
from support.snowflake import SnowflakeService
from support.snowflake_reader import SnowflakeCopies
from support.versions import turns

SEAMS = (
    ("capture.after-segments=kill@2", "apply.before-commit=kill@3"),
    ("journal.after-create=kill@2", "snowflake.before-commit=kill@3"),
    ("capture.before-ack=kill@2", "apply.after-commit=kill@3"),
    ("capture.after-slot=kill", "copy.recorded=kill@2"),
)
"""Capture dies at the first, and the driver starts another; then the driver dies at the second."""

CHUNKS = {"chunkRows": 60}
"""Each costs a login."""


@pytest.mark.timeout(600)
@pytest.mark.turn(0, 3)  # whole drivers: some thirty CPU seconds
@pytest.mark.parametrize(("of_capture", "of_driver"), turns(*SEAMS))
def test_a_driver_and_its_processes_that_are_killed_lose_and_double_nothing(
    prove: Begin, snowflake: SnowflakeService, of_capture: str, of_driver: str
) -> None:
    copies = SnowflakeCopies.of(snowflake)
    proof = prove("delta", seed=8, rows=SMALL, target=copies.target, snapshot=CHUNKS, apply={"freshness": "300ms"})
    proof.reader = lambda _, table: copies.read(table)
    writers = proof.writers(seed=8, count=1)
    run = proof.deployment.start(seams=f"{of_capture},{of_driver}")
    assert run.wait(240) == -9, f"{of_driver} was never reached\n{run.tail()}"
    reached = {mark.name for mark in proof.deployment.marks.iterdir()}
    assert reached == {seam.partition("=")[0] for seam in (of_capture, of_driver)}
    proof.server.execute("ALTER TABLE proof.single ADD COLUMN extra int DEFAULT 7")
    writers.stop()
    proof.deployment.once()
    proof.assert_equal()
    proof.assert_nothing_acknowledged_early()
