"""Values of rows never reach what people read, unless they ask for it."""

import logging
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tailrace.changelog import keys
from tailrace.contract.faults import fault_of
from tailrace.errors import CorruptLog, Retry, ValueUnsupported, privacy
from tailrace.logs import JsonFormatter, TextFormatter
from tailrace.snapshot.ranges import Range
from tailrace.sources.postgresql import codec

CANARY = "CANARY-7f3a"


@pytest.fixture(params=[False, True])
def showing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    monkeypatch.delenv(privacy.VARIABLE, raising=False)
    privacy.configure(request.param)
    yield request.param
    privacy.configure(False)


def test_a_value_that_does_not_fit_is_named_by_type_and_hash(showing: bool) -> None:
    for kind, raw in (
        ("timestamp", CANARY.encode()),
        ("int64", CANARY.encode()),
        ("string", CANARY.encode() + b"\xff"),
    ):
        with pytest.raises(ValueUnsupported) as error:
            codec.decode(pa.array([b"1", raw], pa.large_binary()).slice(1), kind, "s.t", "c")
        text = str(error.value)
        assert (CANARY in text or CANARY.encode().hex() in text) is showing
        assert showing or f"{kind} #" in text


def test_a_range_shows_its_ends_as_hashes(showing: bool) -> None:
    text = str(Range(1, (CANARY, "2"), None))
    assert (CANARY in text) is showing and text.startswith("(") and text.endswith("…]")


def test_errors_of_libraries_keep_their_kind_and_lose_their_text(showing: bool) -> None:
    assert (CANARY in fault_of(ValueError(f"could not convert {CANARY}"), 0.0).message) is showing
    assert "ValueError" in fault_of(ValueError(CANARY), 0.0).message
    assert fault_of(Retry("the network"), 0.0).message == "the network"
    with pytest.raises(CorruptLog) as corrupt:
        keys.columns([(CANARY,)], [pa.int64()])
    assert (CANARY in str(corrupt.value)) is showing
    with pytest.raises(ValueError if showing else privacy.Withheld) as raised, privacy.withheld():
        raise ValueError(CANARY)
    assert (CANARY in str(raised.value)) is showing


@pytest.mark.parametrize("formatter", [TextFormatter(watched=True), JsonFormatter()])
def test_tracebacks_say_where_and_not_what(showing: bool, formatter: logging.Formatter) -> None:
    try:
        try:
            int(CANARY)
        except ValueError as error:
            raise KeyError(CANARY) from error
    except KeyError as error:
        info = (KeyError, error, error.__traceback__)
    text = formatter.format(logging.LogRecord("tailrace", logging.ERROR, "", 1, "failed", (), info))
    assert "test_privacy.py" in text and "ValueError" in text and "KeyError" in text
    assert (CANARY in text) is showing


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (f'invalid input syntax for type integer: "{CANARY}"', "22P02"),
        (f'value "{CANARY}" and "more" is out of range for type integer', "22003"),
        (f'invalid input value for enum mood: "a"{CANARY}"b"', "22P02"),
        (f"{CANARY} is bad", "P0001"),
    ],
)
def test_what_the_database_says_of_a_value_is_cut(showing: bool, text: str, state: str) -> None:
    found = privacy.server_text(text, state)
    assert (CANARY in found) is showing
    assert showing or state == "P0001" or found.startswith(("invalid input", "value … is"))


def test_what_it_says_of_names_stays() -> None:
    assert privacy.server_text('column "x" does not exist', "42703") == 'column "x" does not exist'
