"""PostgreSQL's stream, where its parts meet."""

from types import SimpleNamespace
from typing import cast

from tailrace.sources.postgresql.log.stream import PgStream


def test_the_catalog_is_not_looked_at_while_a_transaction_is_divided() -> None:
    """A look may add, stop or remove a table in a record before rows of it that are in segments already: the record
    with these rows would then be refused, at each start again."""
    polls: list[bool] = []

    def poll(always_mark: bool) -> int:
        polls.append(always_mark)
        return 4

    parts = SimpleNamespace(in_transaction=True, _looks={}, _poll=SimpleNamespace(poll=poll, acted_on=0, held={7}))
    stream = cast(PgStream, parts)
    assert not PgStream.poll_catalog_for(stream, 7)
    assert polls == []
    parts.in_transaction = False
    assert not PgStream.poll_catalog_for(stream, 7)
    assert polls == [True]
    stream._poll.acted_on = 4
    assert not PgStream.poll_catalog_for(stream, 7), "what was seen of the table waits for a new connection"
    stream._poll.held = frozenset()
    assert PgStream.poll_catalog_for(stream, 7)
