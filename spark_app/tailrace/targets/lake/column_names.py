"""The names of columns in a target where no reader could use the source's name: a reserved one, one that only differs
in case from another, and one that is written like something inside another column. Pure."""

from collections.abc import Collection, Iterable
from itertools import count

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.changelog.types import element_of, fields_of
from tailrace.errors import RESYNC, SchemaChangeUnsupported


def shown(schema: TableSchema, format: str, reserved: Collection[str], elements: bool) -> TableSchema:
    """The schema under its names in the target: the source's, or else the first free one of `name_1`, `name_2`, …

    Of names that differ only in case the first in the source's order stays. `reserved`: in lower case; Spark compares
    names without case. `elements`: the format calls what is in a list `<column>.element`. Raises
    `SchemaChangeUnsupported` if fields of one struct differ only in case.
    """
    names, taken = dict[int, str](), set(reserved)
    for column in schema.columns:
        paths = paths_of(column, column.name, elements)
        if len(set(paths)) < len(paths):
            raise _twins(schema, column, format)
        if taken.isdisjoint(paths):
            taken.update(paths)
            names[column.id] = column.name
    for column in schema.columns:
        if column.id not in names:
            names[column.id] = _free(column, elements, taken)
            taken.update(paths_of(column, names[column.id], elements))
    if all(column.name == names[column.id] for column in schema.columns):
        return schema
    columns = tuple(column.model_copy(update={"name": names[column.id]}) for column in schema.columns)
    return schema.model_copy(update={"columns": columns})


def _free(column: Column, elements: bool, taken: set[str]) -> str:
    names = (f"{column.name}_{number}" for number in count(1))
    return next(name for name in names if taken.isdisjoint(paths_of(column, name, elements)))


def paths_of(column: Column, name: str, elements: bool) -> list[str]:
    """The names by which readers find the column and what is in it, in lower case."""
    inside = [field for field, _ in fields_of(column.type) or ()]
    if elements and element_of(column.type) is not None:
        inside = ["element"]
    return [name.lower(), *(f"{name}.{field}".lower() for field in inside)]


def _twins(schema: TableSchema, column: Column, format: str) -> SchemaChangeUnsupported:
    first, second = _alike(name for name, _ in fields_of(column.type) or ())
    what = f"fields {first!r} and {second!r} of column {column.name!r} differ only in case, which readers of {format}"
    fix = f"Rename one, or copy the column as text (options[].as); if the table is captured already, then {RESYNC}."
    return SchemaChangeUnsupported(schema.name, f"{what} cannot hold (table {schema.name})", fix)


def _alike(names: Iterable[str]) -> tuple[str, str]:
    seen = dict[str, str]()
    return next((other, name) for name in names if (other := seen.setdefault(name.lower(), name)) is not name)
