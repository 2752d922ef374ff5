"""What making a slot waits for."""

import re
from concurrent.futures import ThreadPoolExecutor

from support.postgres import PostgresServer
from support.waiting import until
from tailrace.sources.postgresql.objects import slot_waits_for


def test_what_a_slot_waits_for_is_told_to_a_user_who_may_not_see_when_it_began(postgres: PostgresServer) -> None:
    """It was "open for None s", of an application ''."""
    postgres.execute("CREATE ROLE copier LOGIN REPLICATION; CREATE TABLE t (id int PRIMARY KEY)")
    make = "SELECT pg_create_logical_replication_slot('waits', 'pgoutput')"
    with (
        postgres.connect(autocommit=False) as writer,
        postgres.connect(user="copier", application_name="maker") as maker,
        postgres.connect(user="copier") as looker,
        ThreadPoolExecutor() as pool,
    ):
        writer.execute("INSERT INTO t VALUES (1)")
        made = pool.submit(maker.execute, make)
        told = until(lambda: slot_waits_for(looker, "maker"), "what the slot waits for")
        pid = writer.info.backend_pid
        writer.rollback()
        made.result(20)
    assert re.fullmatch(rf"the slot waits for transaction \d+ of backend {pid}", told), told
