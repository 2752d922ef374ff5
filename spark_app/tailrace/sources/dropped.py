"""Whether the copy of a table that was dropped in the source goes, too. Pure; asked by both products, and once more by
who deletes it."""

from tailrace.contract.resources import ReplicatorSpec
from tailrace.sources.patterns import options_of, selected


def drops(spec: ReplicatorSpec, schema: str, table: str) -> bool:
    """What `onTableDrop` says of a table of this name; whoever has excluded it wants its copy to stay."""
    options = options_of(spec.options, schema, table)
    own = None if options is None else options.on_table_drop
    return (own or spec.on_table_drop) == "Drop" and selected(spec.tables, schema, table)
