"""Texts of numbers -> decimals, exactly, and floats. Called by the codecs of the products."""

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.changelog.types import MAX_PRECISION, arrow_type, decimal_parts


class NoSuchNumber(ValueError):
    """Some text is no number of the type; which one is found afterwards."""


def decimal(text: pa.LargeStringArray, type: str) -> pa.Array:
    """Exactly: zeros at the end are no digits. Arrow's cast (26) lets a number that needs more than 128 bits wrap, when
    it is read and when it is scaled, so it only gets what cannot."""
    precision, scale = decimal_parts(type) or (0, 0)
    if not _small(text, scale):
        whole = f"(0|[1-9][0-9]{{0,{precision - scale - 1}}})" if precision > scale else "0"
        text = pc.replace_substring_regex(text, r"^(-?[0-9]+)(\.[0-9]*[1-9])?\.?0*$", r"\1\2")
        if not all_true(pc.match_substring_regex(text, rf"^-?{whole}(\.[0-9]{{1,{max(scale, 1)}}})?$")):
            raise NoSuchNumber
    return text.cast(arrow_type(type))


def _small(text: pa.LargeStringArray, scale: int) -> bool:
    """True if no text has more than 38 digits, also when it is given so many after the point."""
    length = pc.binary_length(text)
    if (pc.max(length).as_py() or 0) + scale <= MAX_PRECISION:
        return True
    point = pc.find_substring(text, ".")
    bare = pc.subtract(length, pc.starts_with(text, "-").cast(pa.int64()))  # without the sign
    pointed = pc.greater_equal(point, 0)
    whole = pc.if_else(pointed, pc.subtract(bare, pc.subtract(length, point)), bare)
    digits = pc.subtract(bare, pointed.cast(pa.int64()))
    return all_true(pc.and_(pc.less_equal(digits, MAX_PRECISION), pc.less_equal(whole, MAX_PRECISION - scale)))


def double(text: pa.LargeStringArray, type: str) -> pa.Array:
    """float32 or float64: the nearest number; NaN and the infinities by their names."""
    numbers = text.cast(arrow_type(type))
    # Too large a literal would be read as infinity.
    infinite = pc.is_inf(numbers)
    if pc.any(infinite).as_py() and not all_true(pc.ends_with(text.filter(infinite), "Infinity")):
        raise NoSuchNumber
    # Nor is too small a one zero: PostgreSQL's cast refuses both.
    zero = text.filter(pc.equal(numbers, pa.scalar(0, numbers.type)))
    if pc.any(pc.match_substring_regex(zero, "^-?[0.]*[1-9]")).as_py():
        raise NoSuchNumber
    return numbers


def all_true(condition: pa.BooleanArray) -> bool:
    """No entry is false; nulls do not count."""
    return bool(pc.all(condition, min_count=0).as_py())
