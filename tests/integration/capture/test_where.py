"""An error says which part met it, by real faults: operators and people look there first."""

import pytest

from support.capture import CaptureRun
from support.postgres import PostgresServer
from tailrace import sources
from tailrace.contract.resources import SourceSpec, TablesSpec
from tailrace.errors import TailraceError, where_of
from tailrace.sources.api import KeyRange

TABLE = "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a')"


def ended(capture: CaptureRun) -> tuple[str, str]:
    assert capture.wait(60) != 0
    fault = capture.fault()
    return fault["name"], fault["where"]


def test_a_source_that_goes_away_is_the_sources_fault(capture: CaptureRun) -> None:
    capture.server.execute(TABLE)
    capture.start()
    capture.server.stop("immediate")
    assert ended(capture) == ("Retry", "source")
    capture.start(wait=False)
    assert ended(capture) == ("Retry", "source"), "as at a start"


def test_a_role_that_does_not_exist_is_the_sources_fault(capture: CaptureRun) -> None:
    capture.source = {"username": "nobody_of_this_name"}
    capture.start(wait=False)
    assert ended(capture) == ("AuthenticationFailed", "source")


def test_a_chunk_whose_source_goes_away_while_it_is_read_is_the_sources_fault(postgres: PostgresServer) -> None:
    postgres.execute(TABLE)
    postgres.execute("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(2, 30000) g")
    spec = SourceSpec(
        type="postgresql", host=postgres.host, port=postgres.port, database="postgres", username="postgres"
    )
    source = sources.open(spec, "test")
    with source.session() as session:
        (table,) = session.tables(TablesSpec(include=("public.t",)), ())
        key = session.keys(table).max_key()
    assert key is not None

    def killed(_: object) -> None:
        postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'test'")

    with pytest.raises(TailraceError) as broken:
        source.reader().read(table, KeyRange(None, key), None, killed)
    assert (broken.value.name, where_of(broken.value)) == ("Retry", "source")
