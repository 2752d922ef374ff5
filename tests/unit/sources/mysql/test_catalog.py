"""What stops a table, as the catalog shows it."""

from tailrace.sources.mysql.catalog import _stop


def test_a_table_without_a_key_is_told_with_the_statement_for_it() -> None:
    row = {"table_schema": "shop", "table_name": "no`key", "table_type": "BASE TABLE", "engine": "InnoDB"}
    stop = _stop("shop.no`key", row, [], None)
    assert stop is not None
    assert (stop.name, stop.fix) == ("NoKey", "Run ALTER TABLE `shop`.`no``key` ADD PRIMARY KEY (…).")
