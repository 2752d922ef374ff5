"""Values of MySQL -> typed Arrow, exactly. Called by the chunk reader and by the log with what their wire forms have in
common, column by column: one codec for both, so a value comes out equal either way.

`valid` marks the rows that are not NULL; None: all. What the Arrow type and the lake formats cannot hold exactly raises
`Unrepresentable`, which `fitted` turns into `ValueUnsupported` with the way out, or becomes NULL (`Form.sets_null`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tailrace.changelog.types import arrow_type, decimal_parts
from tailrace.errors import CHANGED, RESYNC, ValueUnsupported, privacy
from tailrace.sources import numerals
from tailrace.sources.mysql.types import Form
from tailrace.sources.numerals import NoSuchNumber
from tailrace.sources.unrepresentable import or_null, way_out, without_unrepresentable

Ints = NDArray[np.int64]
Valid = NDArray[np.bool_] | None
_MONTH = np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_DAY = 86_400


class Unrepresentable(ValueError):
    """A value that the logical type cannot hold exactly."""

    def __init__(self, value: str) -> None:
        super().__init__("a value does not fit")
        self.value = value


class Undecodable(Unrepresentable):
    """Bytes that are no text in the column's character set; `value` says what is wrong, and shows none of them."""


class Unsent(Unrepresentable):
    """A value that the server did not send: the text of its JSON is longer than its limit."""

    def __init__(self) -> None:
        super().__init__("")


@dataclass(frozen=True)
class Clock:
    """Dates with times as the server spells them, parts that are zero included; no time zone."""

    year: Ints
    month: Ints
    day: Ints
    hour: Ints
    minute: Ints
    second: Ints
    micro: Ints

    @staticmethod
    def of(seconds: Ints, micros: Ints) -> "Clock":
        """Makes it from seconds since the Unix epoch, UTC; 0 is the zero date, as in a timestamp column."""
        days, rest = np.divmod(seconds, _DAY)
        year, month, day = _civil(days)
        some = ((seconds != 0) | (micros != 0)).astype(np.int64)
        return Clock(year * some, month * some, day * some, rest // 3600, rest // 60 % 60, rest % 60, micros)


@contextmanager
def fitted(table: str, column: str, form: Form, key: bool) -> Iterator[None]:
    """Turn a value that does not fit into `ValueUnsupported`."""
    try:
        yield
    except Unsent:
        raise ValueUnsupported(
            table,
            f"column {column!r} of {table} has a JSON value whose text is longer than the server's max_allowed_packet:"
            " the server sends an empty text in its place",
            "Run SET GLOBAL max_allowed_packet = 1073741824 on the server, or leave the column out (spec.options:"
            f" [{{match: {table}, columns: [<all others>]}}], {CHANGED}); then {RESYNC}.",
        ) from None
    except Undecodable as error:
        kept = f"spec.options: [{{match: {table}, columns: [<all others>]}}], {CHANGED}"
        raise ValueUnsupported(
            table,
            f"column {column!r} of {table} has {error.value}",
            f"Correct the value in the source, or leave the column out ({kept}); then {RESYNC}.{or_null(table, key)}",
        ) from None
    except Unrepresentable as error:
        shown = privacy.shown(error.value, form.logical)
        raise ValueUnsupported(
            table,
            f"column {column!r} of {table} has the value {shown}, which {form.logical} cannot hold exactly",
            way_out(table, column, key),
        ) from None


def integers(values: pa.Array, form: Form) -> pa.Array:
    """Integers of any width, years and bits (unsigned); nulls stay null."""
    if form.logical == "bool":
        return pc.not_equal(values, pa.scalar(0, values.type))
    if decimal_parts(form.logical) is not None:
        return values.cast(pa.decimal128(20, 0)).cast(arrow_type(form.logical))
    return values.cast(arrow_type(form.logical))


def floats(values: pa.Array, form: Form) -> pa.Array:
    """float32 or float64; as text, the shortest that reads back as the same number."""
    return values.cast(arrow_type(form.logical))


def decimals(text: pa.Array, form: Form) -> pa.Array:
    """The server's text, `-0.50`, of a decimal."""
    return text.cast(pa.string()).cast(arrow_type(form.logical))


def unfilled(text: pa.Array) -> pa.Array:
    """The server's text of a decimal without the zeros of ZEROFILL, which the log does not have."""
    return pc.replace_substring_regex(text.cast(pa.string()), r"^0+(\d)", r"\1")


def other_numbers(numbers: pa.Array, form: Form) -> pa.Array:
    """The numbers that `as` makes of integers, and of decimals in the server's text."""
    text = numbers.cast(pa.large_string())
    try:
        return _number(text, form.logical)
    except (pa.ArrowInvalid, NoSuchNumber):
        fit = without_unrepresentable(text, lambda some: _is_number(some, form.logical))
    if not form.sets_null:
        raise Unrepresentable(text.filter(pc.and_not(text.is_valid(), fit.is_valid()))[0].as_py())
    return _number(fit, form.logical)


def _is_number(text: pa.Array, logical: str) -> bool:
    try:
        _number(text, logical)
    except (pa.ArrowInvalid, NoSuchNumber):
        return False
    return True


def _number(text: pa.Array, logical: str) -> pa.Array:
    return numerals.double(text, logical) if logical == "float64" else numerals.decimal(text, logical)


def octets(values: pa.Array, form: Form) -> pa.Array:
    """Bytes; as text, lower-case hexadecimal digits."""
    if form.logical == "binary":
        return values.cast(pa.binary())
    return pa.array([None if v is None else v.hex() for v in values.to_pylist()], pa.string())


def uuids(text: pa.Array) -> pa.Array:
    """The bytes of uuids in the server's text."""
    return pa.array([None if v is None else UUID(v).bytes for v in text.cast(pa.string()).to_pylist()], pa.binary())


def dates(at: Clock, valid: Valid, form: Form) -> pa.Array:
    if form.logical == "string":
        return _spelled(_date_signs(at), valid)
    valid = _real(at, valid, form)
    days = _days(at.year, at.month, at.day).astype(np.int32)
    return pa.Array.from_buffers(pa.date32(), len(days), [_bitmap(valid), pa.py_buffer(days)])


def datetimes(at: Clock, valid: Valid, form: Form) -> pa.Array:
    """datetime and timestamp (`at` is UTC then)."""
    if form.logical == "string":
        signs = [*_date_signs(at), " ", *_clock_signs(at.hour, at.minute, at.second, at.micro, form.fraction)]
        return _spelled(signs, valid)
    valid = _real(at, valid, form)
    days = _days(at.year, at.month, at.day)
    micros = ((days * 24 + at.hour) * 60 + at.minute) * 60_000_000 + at.second * 1_000_000 + at.micro
    return pa.Array.from_buffers(arrow_type(form.logical), len(days), [_bitmap(valid), pa.py_buffer(micros)])


def times(negative: NDArray[np.bool_], hour: Ints, rest: tuple[Ints, Ints, Ints], valid: Valid, form: Form) -> pa.Array:
    """TIME, which is a length of time, as the server spells it: `-838:59:59.000000`. `rest`: minutes, seconds,
    microseconds."""
    if form.logical == "time":
        return _of_day(negative, hour, rest, valid, form)
    sign = _Sign(np.full(len(hour), ord("-"), np.uint8), negative)
    hundreds = _Sign(_digit(hour, 100), hour >= 100)
    clock = _clock_signs(hour % 100, *rest, form.fraction)
    return _spelled([sign, hundreds, *clock], valid)


def _of_day(
    negative: NDArray[np.bool_], hour: Ints, rest: tuple[Ints, Ints, Ints], valid: Valid, form: Form
) -> pa.Array:
    minute, second, micro = rest
    bad = negative | (hour > 23)
    if valid is not None:
        bad &= valid
    if bad.any() and not form.sets_null:
        at = int(np.flatnonzero(bad)[0])
        raise Unrepresentable(f"{'-' if negative[at] else ''}{hour[at]:02}:{minute[at]:02}:{second[at]:02}")
    if bad.any():
        valid = ~bad if valid is None else valid & ~bad
    micros = ((hour * 60 + minute) * 60 + second) * 1_000_000 + micro
    return pa.Array.from_buffers(arrow_type("time"), len(micros), [_bitmap(valid), pa.py_buffer(micros)])


@dataclass(frozen=True)
class _Sign:
    """One character per row, where `kept`."""

    code: NDArray[np.uint8]
    kept: NDArray[np.bool_]


_Signs = list["str | NDArray[np.uint8] | _Sign"]


def _date_signs(at: Clock) -> _Signs:
    year: _Signs = [_digit(at.year, unit) for unit in (1000, 100, 10, 1)]
    return [*year, "-", *_two(at.month), "-", *_two(at.day)]


def _clock_signs(hour: Ints, minute: Ints, second: Ints, micro: Ints, fraction: int) -> _Signs:
    signs: _Signs = [*_two(hour), ":", *_two(minute), ":", *_two(second)]
    digits: _Signs = [_digit(micro, 10 ** (5 - i)) for i in range(fraction)]
    return [*signs, ".", *digits] if fraction else signs


def _digit(number: Ints, unit: int) -> NDArray[np.uint8]:
    return (number // unit % 10 + ord("0")).astype(np.uint8)


def _two(number: Ints) -> _Signs:
    return [_digit(number, 10), _digit(number, 1)]


def _spelled(signs: _Signs, valid: Valid) -> pa.Array:
    """Rows of text out of columns of characters."""
    rows = next(len(s) for s in signs if isinstance(s, np.ndarray))
    table = np.empty((rows, len(signs)), np.uint8)
    kept = np.ones((rows, len(signs)), np.bool_)
    for i, sign in enumerate(signs):
        if isinstance(sign, _Sign):
            table[:, i], kept[:, i] = sign.code, sign.kept
        else:
            table[:, i] = ord(sign) if isinstance(sign, str) else sign
    if valid is not None:
        kept &= valid[:, None]
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(kept.sum(axis=1), out=offsets[1:])
    buffers = [_bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(table[kept].tobytes())]
    return pa.Array.from_buffers(pa.string(), rows, buffers)


def _real(at: Clock, valid: Valid, form: Form) -> Valid:
    """The rows whose dates are of years 1 to 9999 and exist: MySQL also has 0000-00-00, 2024-00-00 and, by sql_mode,
    2024-02-31."""
    inside = (at.year >= 1) & (at.year <= 9999) & (at.month >= 1) & (at.month <= 12) & (at.day >= 1)
    leap = (at.year % 4 == 0) & ((at.year % 100 != 0) | (at.year % 400 == 0))
    longest = _MONTH[at.month * inside] - ((at.month == 2) & ~leap)
    bad = ~(inside & (at.day <= longest))
    if valid is not None:
        bad &= valid
    if not bad.any():
        return valid
    if not form.sets_null:
        first = int(np.flatnonzero(bad)[0])
        raise Unrepresentable(f"{at.year[first]:04}-{at.month[first]:02}-{at.day[first]:02}")
    kept: NDArray[np.bool_] = ~bad
    return kept if valid is None else valid & kept


def _days(year: Ints, month: Ints, day: Ints) -> Ints:
    """Since 1970-01-01, in the Gregorian calendar (Hinnant's days_from_civil)."""
    y = year - (month <= 2)
    era = y // 400
    of_era = y - era * 400
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    days: Ints = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
    return days


def _civil(days: Ints) -> tuple[Ints, Ints, Ints]:
    """The reverse: year, month, day."""
    z = days + 719_468
    era = z // 146_097
    of_era = z - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + np.where(shifted < 10, 3, -9)
    return year + era * 400 + (month <= 2), month, day


def _bitmap(valid: Valid) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
