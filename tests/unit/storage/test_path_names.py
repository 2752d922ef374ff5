"""One encoding of names for paths: injective, reversible up to a length, of characters that readers take literally."""

import re
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.lake import table_schema
from tailrace.changelog.paths import segment_path, segment_range
from tailrace.changelog.records.terms import Seq
from tailrace.storage.path_names import LONGEST, decode, encode, table_folder

NAMES = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=63
) | st.sampled_from(
    [
        ".",
        "..",
        "...",
        "%",
        "%25",
        "%2e%2e",
        "a!b",
        "!21",
        "a/b",
        "a\\b",
        "t.",
        ".t",
        "a b",
        "\t",
        "_delta_log",
        "ö",
        "A",
    ]
)


@given(NAMES)
def test_a_name_comes_back_from_its_path(name: str) -> None:
    part = encode(name)
    assert len(part) <= LONGEST
    if "!-" in part:
        assert len(name.encode()) > LONGEST // 3
    else:
        assert decode(part) == name
    assert re.fullmatch(r"[A-Za-z0-9_.!-]+", part) and not part.startswith(".") and not part.endswith(".")
    assert unquote(part) == part, "a reader that decodes URIs finds the same folder"


@given(NAMES, NAMES)
def test_two_names_never_share_a_path(one: str, other: str) -> None:
    assert (encode(one) == encode(other)) == (one == other)


@pytest.mark.parametrize("character", ["é", "表", "a"])
def test_the_longest_names_fit_into_a_file_system(character: str) -> None:
    """PostgreSQL's in LATIN1, and MySQL's: a folder of more than 255 bytes cannot be made."""
    one, other = (encode(63 * character + end) for end in "xy")
    assert one != other
    assert max(len(one), len(other)) <= LONGEST
    if "!-" in one:
        assert encode(63 * character + "x") == one
        with pytest.raises(ValueError, match="not an encoded name"):
            decode(one)


@given(st.text(alphabet="ab!0123456789ef.", max_size=8))
def test_only_what_was_encoded_is_decoded(part: str) -> None:
    try:
        name = decode(part)
    except ValueError:
        return
    assert encode(name) == part


@pytest.mark.parametrize("name", ["orders", "Orders", "order_lines", "a-b", "v1.2", "_migrations", "T1"])
def test_a_plain_name_is_its_own_path(name: str) -> None:
    assert encode(name) == name == quote(name, safe="")
    assert table_folder("public", name) == f"public/{name}"


def test_no_name_of_the_source_is_too_long_for_a_file_system() -> None:
    assert len(encode("€" * 21)) <= 255


@given(NAMES, NAMES)
def test_a_segment_lies_in_one_folder_whatever_the_table_s_name(schema: str, table: str) -> None:
    named = table_schema([("id", "int64")], ["id"]).model_copy(update={"schema_name": schema, "table_name": table})
    path = segment_path(named, Seq(1), Seq(2), "aa")
    assert segment_range(path) == (1, 2) and path.count("/") == 2 and len(path.split("/")[1]) < 255
