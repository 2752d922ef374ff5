"""What somebody else deletes: the right recovery, or a refusal with a name.

Slots and sources that are lost: `tests/integration/capture/test_source.py` and `test_start.py`; with their repairs:
`test_repairs_stream.py`.
"""

import shutil

import pytest

from support.proof.harness import SMALL, Begin
from support.versions import turns

CONFIGURATION = 10


PARTS = """
CREATE TABLE proof.parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE proof.parts_low PARTITION OF proof.parts FOR VALUES FROM (0) TO (100);
CREATE TABLE proof.parts_high PARTITION OF proof.parts FOR VALUES FROM (100) TO (200);
INSERT INTO proof.parts SELECT g, 'v' || g FROM generate_series(0, 199) g;
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_a_checkpoint_costs_nothing_rows_that_went_without_a_word_go_and_a_lost_log_is_refused(
    prove: Begin, format: str
) -> None:
    """T12's rule in place: a complete snapshot removes what it did not find, changes under way or not. Without its log
    a target is refused."""
    proof = prove(format, seed=9, rows=SMALL, snapshot={"chunkRows": 150})
    proof.server.execute(PARTS)
    proof.deployment.once()
    proof.assert_equal("proof.parts")
    for folder in proof.deployment.state.rglob("checkpoint*"):
        shutil.rmtree(folder)
    proof.server.execute("UPDATE proof.single SET v = 80")
    proof.server.execute("DELETE FROM proof.composite WHERE a = 3")
    proof.server.execute("ALTER TABLE proof.parts DETACH PARTITION proof.parts_high")
    run = proof.deployment.start()
    run.until(lambda: proof.level("proof.parts", "proof.parts_high"), 240, "the changes, and the detached rows to go")
    writers = proof.writers(seed=9, count=2)
    proof.server.execute("ALTER TABLE proof.parts DETACH PARTITION proof.parts_low")
    run.until(lambda: not proof.differences("proof.parts", "proof.parts_low"), 240, "the others to go under writers")
    writers.stop()
    proof.settle(run, "proof.parts", "proof.parts_low", "proof.parts_high")
    shutil.rmtree(proof.deployment.log)
    proof.server.drop_slot(proof.slot())
    proof.assert_refused(CONFIGURATION, "TargetRefused")
