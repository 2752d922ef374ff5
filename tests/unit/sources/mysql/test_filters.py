"""Which replication filters may keep changes of a database away."""

import pytest

from tailrace.sources.mysql.filters import left_out


@pytest.mark.parametrize(
    ("name", "items", "concerned"),
    [
        ("do_db", {"shop"}, False),
        ("do_db", {"other"}, True),
        ("ignore_db", {"shop"}, True),
        ("ignore_db", {"mysql"}, False),
        ("do_table", {"shop.plain"}, True),
        ("wild_do_table", {"shop.%"}, False),
        ("wild_do_table", {"shop.p%"}, True),
        ("ignore_table", {"mysql.plugin"}, False),
        ("ignore_table", {"shop.plain"}, True),
        ("wild_ignore_table", {"sh%.t"}, True),
        ("wild_ignore_table", {"sh_p.t"}, True),
        ("wild_ignore_table", {"sh\\_p.t"}, False),
        ("wild_do_table", {"%.%"}, False),
        ("wild_do_table", {"sh%.%"}, False),
        ("wild_do_table", {"shop%.%%"}, False),
        ("wild_do_table", {"a.%", "sho_.%"}, False),
        ("wild_do_table", {"other%.%"}, True),
        ("wild_do_table", {"%.p%"}, True),
        ("ignore_db", {"Shop"}, True),
        ("wild_ignore_table", {"SH%.t"}, True),
        ("ignore_table", {"Shop.plain"}, True),
        ("rewrite_db", {"Shop", "copy"}, True),
        ("do_domain_ids", {"0"}, True),
        ("ignore_domain_ids", {"7"}, True),
        ("ignore_server_ids", {"77"}, True),
        ("rewrite_db", {"shop", "copy"}, True),
        ("rewrite_db", {"a", "b"}, False),
    ],
)
def test_a_filter_counts_against_a_database_whose_changes_it_may_keep_away(
    name: str, items: set[str], concerned: bool
) -> None:
    found = left_out({name: frozenset(items)}, {"shop"})
    assert found == ({f"replicate_{name}": "shop"} if concerned else {})


def test_a_table_rule_is_no_loss_where_another_rule_has_the_whole_database() -> None:
    rules = {"do_table": frozenset({"a.t"}), "wild_do_table": frozenset({"shop.%"})}
    assert not left_out(rules, {"shop"})
    assert left_out(rules, {"a"}).keys() == {"replicate_do_table", "replicate_wild_do_table"}
