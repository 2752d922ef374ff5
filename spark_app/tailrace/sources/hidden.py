"""The check that decides if a table that is captured again must no longer be shown in the target's present form. Pure;
asked by both products.

A target stays for its readers until the table has been read again. That is wrong where the new form hides something:
a mask, a row filter, a column that is left out. Such a target is emptied at once.
"""

from collections.abc import Callable, Iterator

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.changelog.state import LogState, TableLog


def must_hide(state: LogState, now: TableSchema, left_out: Callable[[Column], bool], leaves_out: bool) -> bool:
    """`left_out`: whether a column of a former form is still there in the source, and not copied now. `leaves_out`:
    whether there is any such column."""
    former = list(_former(state, now))
    if not former and (now.schema_name, now.table_name) in state.forgotten_tables:
        return leaves_out or now.where is not None or any(column.mask for column in now.columns)
    # What a form before that was to hide may still be there, until the target has been opened since.
    waiting = any(table.must_hide and table.applied_record < table.added_record for table in former)
    if any(_unshown(table) for table in former) and (leaves_out or any(_masked_anew(t.schema, now) for t in former)):
        return True
    return waiting or any(hides(table.schema, now) or any(map(left_out, table.schema.columns)) for table in former)


def _former(state: LogState, now: TableSchema) -> Iterator[TableLog]:
    """The table itself, and the former table of its name."""
    for table in state.tables.values():
        if table.table_id == now.table_id or table.schema.name == now.name:
            yield table


def _unshown(table: TableLog) -> bool:
    """True if readers may see a form before the one that the log knows: the new copy may not be complete."""
    return table.read_record <= table.added_record or table.applied_record < table.read_record


def _masked_anew(before: TableSchema, now: TableSchema) -> bool:
    """True if a mask is set on a column that this form lacks, and that a form before it may have in clear."""
    known = {key for column in before.columns for key in (column.name, column.id)}
    return any(column.mask is not None and not known & {column.name, column.id} for column in now.columns)


def hides(before: TableSchema, now: TableSchema) -> bool:
    """True if a mask or a row filter hides something."""
    if now.where is not None and now.where != before.where:
        return True
    # A column is known again by its name or by its number.
    masks = {key: column.mask for column in now.columns for key in (column.name, column.id)}
    pairs = ((column.mask, masks.get(key)) for column in before.columns for key in (column.name, column.id))
    return any(mask is not None and mask != was and not _hashed(was, mask) for was, mask in pairs)


def _hashed(*masks: str | None) -> bool:
    """Hashes of another key show no more than those of this one."""
    return all(mask is not None and mask.startswith("Hash ") for mask in masks)
