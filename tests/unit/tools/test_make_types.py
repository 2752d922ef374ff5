"""The page of types is what the code says, and no type is missing on it."""

import make_types

from tailrace.sources.mysql import types as mysql
from tailrace.sources.postgresql import types as postgresql


def test_the_page_is_what_the_code_says() -> None:
    assert make_types.PAGE.read_text(encoding="utf-8") == make_types.text(), "run `make crds`"


def test_no_type_that_a_source_knows_is_missing() -> None:
    def named(lines: tuple[make_types.Line, ...]) -> set[str]:
        return {make_types.base(kind) for line in lines for kind in line.types}

    assert set(postgresql.LOGICAL) <= named(make_types.POSTGRESQL)
    assert named(make_types.MYSQL) == mysql.NAMES
