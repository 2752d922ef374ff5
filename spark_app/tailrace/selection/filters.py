"""Row filters and histories of the manifest (`options[].where`, `options[].history`): what is the same for every
product."""

from collections.abc import Collection, Mapping, Set
from contextlib import suppress
from uuid import UUID

from tailrace.changelog.history import TAKEN_FIX, taken_name
from tailrace.changelog.records.terms import TableSchema
from tailrace.contract.resources import TableOptions
from tailrace.errors import ReadRefused
from tailrace.selection import as_types
from tailrace.selection.binding import bound
from tailrace.selection.conditions import Condition, ConditionRefused, canonical, columns_of, values_of
from tailrace.selection.parsing import parsed

WHERE_CHANGED = "options[].where of {table} is {now}, and its copy has been made with {before}"


HISTORY_CHANGED = "options[].history of {table} is {now}, and its copy has been made with {before}"


def shown_history(schema: TableSchema) -> str:
    more = [] if schema.history_prefix == "_" else [f"historyPrefix: {schema.history_prefix}"]
    more += [] if schema.partition_by is None else [f"partitionBy: {schema.partition_by}"]
    history = schema.history or "Current"
    return f"{history} ({', '.join(more)})" if more else history


def shown(where: str | None) -> str:
    return "unset" if where is None else f"`{where}`"


def changed(before: TableSchema, now: TableSchema) -> str:
    if before.choice[1:] != now.choice[1:]:
        return HISTORY_CHANGED.format(table=before.name, now=shown_history(now), before=shown_history(before))
    return WHERE_CHANGED.format(table=before.name, now=shown(now.where), before=shown(before.where))


def filtered(
    schema: TableSchema,
    options: TableOptions | None,
    *,
    texts: Collection[str],
    padded: Mapping[str, int] | None = None,
    uuids: Collection[str] = (),
) -> tuple[TableSchema, ReadRefused | None]:
    """The table with its filter or its history, or why that cannot be. `texts`: columns that are text in the source,
    too. `padded`: those of them whose values are filled up with blanks, and to which length; `uuids`: those that hold
    uuids."""
    if options is None:
        return schema, None
    refused = None
    if options.history != "Current":
        more = {"history_prefix": options.history_prefix, "partition_by": options.partition_by}
        schema = schema.model_copy(update={"history": options.history, **more})
        refused = _without_history(schema)
    if refused is not None or options.where is None:
        return schema, refused
    try:
        written = parsed(options.where)
        _require_plain(schema, options, written, texts)
        condition = bound(options.where, schema.columns)
        _require_length(condition, padded or {})
        _require_uuids(condition, uuids)
    except ConditionRefused as error:
        what = f"options[].where of {schema.name} cannot be used: {error} (where: {options.where})"
        return schema, ReadRefused(schema.name, what, error.fix)
    return schema.model_copy(update={"where": canonical(condition)}), None


def _without_history(schema: TableSchema) -> ReadRefused | None:
    """Why no history of the table can be kept; None: it can."""
    what, name = f"options[].history of {schema.name} cannot be {schema.history}", schema.name
    if not schema.key_columns:
        fix = "Add a primary key, or set options[].history: Current."
        return ReadRefused(name, f"{what}: the table has no key", fix)
    taken = taken_name(schema)
    if taken is not None:
        return ReadRefused(name, f"{what}: it has a column {taken}", TAKEN_FIX)
    return None


def _require_plain(schema: TableSchema, options: TableOptions, condition: Condition, texts: Collection[str]) -> None:
    """Checks that the source's values and the copied ones compare equally."""
    columns = {column.name: column for column in schema.columns}
    for name in filter(columns.__contains__, columns_of(condition)):
        if columns[name].mask is not None:
            raise ConditionRefused(f"column {name!r} is masked", "Choose rows by a column that is not masked.")
        requested = as_types.requested(options, name) is not None
        if requested or (columns[name].type == "string" and name not in texts):
            kind, becomes = columns[name].source_type, as_types.named(columns[name].type)
            raise ConditionRefused(
                f"column {name!r} is {kind}, which is copied as {becomes}", "Choose rows by a column of another type."
            )


def _require_length(condition: Condition, padded: Mapping[str, int]) -> None:
    for name, value in values_of(condition):
        length = padded.get(name)
        if length is not None and isinstance(value, str) and len(value) != length:
            what = f"column {name!r} has {length} characters, blanks included, and {value!r} has {len(value)}"
            raise ConditionRefused(what, f"Fill the text up with blanks to {length} characters.")


def _require_uuids(condition: Condition, uuids: Collection[str]) -> None:
    """Checks that uuids are written as the log and chunks have them: the source takes other texts for the same uuid,
    and here they are compared."""
    for name, value in values_of(condition):
        if name not in uuids:
            continue
        try:
            form = str(UUID(str(value)))
        except ValueError:
            form = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
        if value != form:
            what = f"{value!r} is not how column {name!r} has a uuid"
            raise ConditionRefused(what, f"Write it in lower case, with hyphens alone: '{form}'.")


def named(options: TableOptions | None) -> Set[str]:
    """Columns that the filter of the options names; none where it cannot be read, which `filtered` tells."""
    if options is None or options.where is None:
        return frozenset()
    with suppress(ConditionRefused):
        return set(columns_of(parsed(options.where)))
    return frozenset()


def filter_columns(schema: TableSchema) -> set[str]:
    """Columns that decide which rows are copied."""
    return set() if schema.where is None else set(columns_of(parsed(schema.where)))
