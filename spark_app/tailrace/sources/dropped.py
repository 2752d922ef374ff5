"""The check that decides if the copy of a table that was dropped in the source is deleted, too. Pure; used by both
products, and once more before the deletion."""

from tailrace.contract.resources import ReplicatorSpec
from tailrace.sources.patterns import options_of, selected


def drops(spec: ReplicatorSpec, schema: str, table: str) -> bool:
    """True if `onTableDrop` applies to a table of this name; the copy of an excluded one is kept."""
    options = options_of(spec.options, schema, table)
    own = None if options is None else options.on_table_drop
    return (own or spec.on_table_drop) == "Drop" and selected(spec.read_tables, schema, table)
