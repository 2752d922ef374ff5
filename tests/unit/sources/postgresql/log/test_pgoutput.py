"""The parser of the stream against bytes of any kind: names as they come, and a named end for what is cut off."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import pgoutput_messages
from tailrace.errors import Stop
from tailrace.sources.postgresql.log import pgoutput

NAME = st.binary(min_size=1, max_size=63).map(lambda name: name.replace(b"\0", b"\xff"))
PARSERS = {
    b"B": pgoutput.begin,
    b"C": pgoutput.commit,
    b"c": pgoutput.stream_commit,
    b"A": pgoutput.stream_abort,
    b"R": pgoutput.relation,
    b"T": pgoutput.truncate,
    b"M": pgoutput.logical_message,
}


def relation(schema: bytes, table: bytes, columns: list[bytes]) -> bytes:
    described = b"".join(b"\x01" + name + b"\0" + bytes(8) for name in columns)
    return b"R" + bytes(4) + schema + b"\0" + table + b"\0d" + len(columns).to_bytes(2, "big") + described


@given(NAME, NAME, st.lists(NAME, max_size=4))
def test_names_of_any_bytes_become_text_that_can_be_stored(schema: bytes, table: bytes, columns: list[bytes]) -> None:
    found = pgoutput.relation(relation(schema, table, columns))
    names = [found.schema_name, found.table_name, *(column.name for column in found.columns)]
    for name, raw in zip(names, (schema, table, *columns), strict=True):
        assert name.encode().decode() == name == raw.decode(errors="backslashreplace")


@given(NAME, st.binary(max_size=50), st.booleans())
def test_a_foreign_message_is_not_read(prefix: bytes, content: bytes, transactional: bool) -> None:
    message = b"M" + bytes([transactional]) + bytes(8) + prefix + b"\0" + len(content).to_bytes(4, "big") + content
    found = pgoutput.logical_message(message)
    assert (found.prefix, found.content, found.transactional) == (prefix, content, transactional)


@pytest.mark.parametrize("kind", list(PARSERS), ids=lambda kind: kind.decode())
@given(body=st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_by_name(kind: bytes, body: bytes) -> None:
    try:
        PARSERS[kind](kind + body)
    except Stop as error:
        assert error.name == "UnknownMessage"


@given(st.integers(0, 20))
def test_a_message_that_is_cut_off_is_refused_by_name(length: int) -> None:
    whole = pgoutput_messages.begin(7)
    if length < len(whole):
        with pytest.raises(pgoutput.UnknownMessage, match="cut off"):
            pgoutput.begin(whole[: max(length, 1)])
