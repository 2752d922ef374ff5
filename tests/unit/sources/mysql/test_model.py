from tailrace.sources.mysql.model import identity, number_of


def test_dots_in_names_make_no_two_tables_one() -> None:
    ways = [("a", "b.c"), ("a.b", "c"), ("a", "b"), ("a.b.c", ""), ("", "a.b.c")]
    assert len({number_of(identity(*way)) for way in ways}) == len(ways)


def test_the_number_of_a_table_stays_what_journals_have() -> None:
    assert number_of(identity("shop", "orders")) == 1666596575312647046
