"""Which slot and which server of PostgreSQL a change log is continued with."""

from dataclasses import replace

import pytest

from support.origins import origin as make_origin
from support.resources import replicator
from tailrace.changelog.records.terms import Position
from tailrace.contract.resources import Replicator
from tailrace.errors import PositionLost, SourceRefused
from tailrace.sources.postgresql.admission import check_origin, check_position, check_slot
from tailrace.sources.postgresql.names import Names
from tailrace.sources.postgresql.objects import ServerIdentity, Slot

SERVER = ServerIdentity("77", 1, "d", Position(1000))
ORIGIN = make_origin(name="tailrace_shop", system="77")


@pytest.mark.parametrize(
    ("slot", "words"),
    [
        (None, "missing"),
        (Slot("pgoutput", "d", Position(6), "reserved"), "after the journal's position"),
        (Slot("pgoutput", "d", Position(5), "lost"), "lost its log"),
        (Slot("pgoutput", "d", None, "reserved"), "another one"),
        (Slot("test_decoding", "d", Position(5), "reserved"), "another one"),
        (Slot("pgoutput", "e", Position(5), "reserved"), "another one"),
    ],
)
def test_a_slot_that_does_not_fit_the_journal_is_a_lost_position(slot: Slot | None, words: str) -> None:
    with pytest.raises(PositionLost, match=words):
        check_slot(slot, "s", "d", Position(5))


def test_a_slot_that_gives_all_after_the_journal_is_read_on() -> None:
    for confirmed in (4, 5):
        check_slot(Slot("pgoutput", "d", Position(confirmed), "reserved"), "s", "d", Position(5))


@pytest.mark.parametrize(
    ("server", "error"),
    [
        (replace(SERVER, system_identifier="78"), SourceRefused),
        (replace(SERVER, database="e"), SourceRefused),
        (replace(SERVER, timeline=2), PositionLost),
        (replace(SERVER, insert_position=Position(4)), PositionLost),
        (SERVER, None),
    ],
)
def test_only_the_change_log_s_own_server_in_the_state_that_it_was_read_in_is_taken(
    server: ServerIdentity, error: type[Exception] | None
) -> None:
    names = Names.of_log(Replicator.model_validate(replicator()), ORIGIN)

    def admit() -> None:
        check_origin(names, ORIGIN, server)
        check_position(ORIGIN, server, Position(5))

    if error is None:
        admit()
    else:
        with pytest.raises(error):
            admit()


def test_a_log_connection_is_known_by_its_change_log_and_not_by_the_slot_that_it_reads() -> None:
    """Two Replicators may be given the same slot by mistake: neither ends the other's connection."""
    owner = Replicator.model_validate(replicator())
    first, second = Names.of(owner, "0a" * 16), Names.of(owner, "0b" * 16)
    assert first.slot == second.slot
    assert not set(first.applications) & set(second.applications)
