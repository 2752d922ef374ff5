"""`onSchemaChange: Evolve`: whatever happens to the columns and the key of a table, it ends as the table is then."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from support.ddl.judge import Verdict, judge
from support.ddl.nursery import Nursery
from support.ddl.quick import Quick, quick
from support.postgres import PostgresServer

NUMBERS = count()
CHANGES = (
    "ALTER TABLE s.t DROP COLUMN b",
    "ALTER TABLE s.t RENAME b TO c",
    "ALTER TABLE s.t ALTER n TYPE text",
    "ALTER TABLE s.t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, a)",
    "ALTER TABLE s.t ALTER b SET NOT NULL, ALTER a DROP NOT NULL; ALTER TABLE s.t RENAME a TO x;"
    " ALTER TABLE s.t RENAME b TO a; ALTER TABLE s.t RENAME x TO b",
    "ALTER TABLE s.t DROP COLUMN b; ALTER TABLE s.t ADD COLUMN b int DEFAULT 7",
    "ALTER TABLE s.t ADD COLUMN k serial, DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (k)",
)
TABLE = "CREATE TABLE s.t (id int PRIMARY KEY, a text NOT NULL, b text DEFAULT 'd', n int)"
FIRST_ROWS = "INSERT INTO s.t SELECT g, 'a' || g, 'b' || g, g FROM generate_series(1, 20) g"
ROWS = (
    "INSERT INTO s.t (id, a, b) VALUES ({0}, 'x', 'y'); UPDATE s.t SET a = a || '!' WHERE id < 5;"
    " DELETE FROM s.t WHERE id = {1}"
)
LATER_ROWS = ROWS.replace("b)", "n)").replace("'y'", "'3'")
"""After a change, by which `b` may be gone."""


@pytest.fixture
def one(tmp_path: Path, nursery: Nursery, postgres: PostgresServer) -> Iterator[Quick]:
    with quick(postgres, nursery, tmp_path, f"evolve{next(NUMBERS)}", onSchemaChange="Evolve") as one:
        one.sql("CREATE SCHEMA s")
        one.sql(TABLE)
        one.sql(FIRST_ROWS)
        one.start()
        one.settle()
        yield one


def verdict(one: Quick) -> Verdict:
    return judge(one, one.settle())


@pytest.mark.postgres(18)
@pytest.mark.parametrize("killed", [False, True])
def test_every_change_of_form_is_followed(one: Quick, killed: bool) -> None:
    for change in CHANGES:
        one.sql(ROWS.format(100, 10))
        one.sql(change)
        one.sql(LATER_ROWS.format(200, 11))
        if killed:
            one.turn()
            one.stop(kill=True)
            one.sql(LATER_ROWS.format(300, 12))
            one.start()
        assert verdict(one) == Verdict((), {}), change
        one.sql("DROP TABLE s.t")
        one.sql(TABLE)
        one.sql(FIRST_ROWS)
        assert verdict(one) == Verdict((), {})


@pytest.mark.postgres(18)
def test_what_cannot_be_copied_stays_stopped_until_it_can(one: Quick) -> None:
    """The new form is refused itself: nothing goes round in circles, and what the source mends is followed."""
    one.sql("ALTER TABLE s.t DROP CONSTRAINT t_pkey, DROP COLUMN b")
    before = one.settle()
    assert [t.stopped.error for t in before.tables.values() if t.stopped] == ["NoKey"]
    one.sql("ALTER TABLE s.t ADD PRIMARY KEY (id)")
    assert verdict(one) == Verdict((), {})


@pytest.mark.postgres(18)
def test_a_table_has_a_policy_of_its_own(one: Quick) -> None:
    one.stop()
    one.spec["options"] = [{"match": "s.t", "onSchemaChange": "EvolveAdditive"}]
    one.start()
    one.sql("ALTER TABLE s.t DROP COLUMN b")
    stopped = verdict(one).stopped
    assert list(stopped) == ["s.t"] and stopped["s.t"].startswith("SchemaChangeUnsupported")
    one.stop()
    del one.spec["options"]
    one.start()
    assert verdict(one) == Verdict((), {})
