"""What a follower would read otherwise than the Replicator that it follows, and which difference is named."""

from dataclasses import dataclass
from typing import Any

import pytest

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.errors import TableStop
from tailrace.sources.followed.comparison import discrepancy

ID = Column(name="id", id=1, source_type="bigint", type="int64", key=0)
NOTE = Column(name="note", id=2, source_type="text", type="string")


@dataclass(frozen=True)
class Own:
    """See `sources.api.Table`."""

    schema: TableSchema
    stop: TableStop | None = None

    @property
    def name(self) -> str:
        return self.schema.name

    def shows(self, version: TableSchema) -> bool:
        return version.form == self.schema.form


def schema(*columns: Column, **fields: Any) -> TableSchema:
    return TableSchema(
        table_id=1, schema_name="public", table_name="t", version=0, columns=columns or (ID, NOTE), **fields
    )


def note(**fields: Any) -> TableSchema:
    return schema(ID, NOTE.model_copy(update=fields))


def test_a_table_that_is_read_alike_has_none_whatever_its_version_and_the_order_of_its_columns() -> None:
    followed = schema(NOTE, ID).model_copy(update={"version": 7})
    assert discrepancy(Own(schema()), followed) is None


@pytest.mark.parametrize(
    "here,there,text,certain",
    [
        (schema(where="a"), schema(), "where is a here, not set there", True),
        (schema(), schema(history="Changes"), "history is not set here, Changes there", True),
        (note(mask="Hash:12:ab"), schema(), "column 'note' has the mask", True),
        (note(type="int64"), schema(), "column 'note' has type int64 here, string there", False),
        (note(key=1), schema(), "column 'note' has another place in the key", False),
        (note(behind="text"), schema(), "column 'note' is read for another kind of target", False),
        (schema(), schema(ID), "column 'note' is read here, and not there", False),
        (schema(ID), schema(), "column 'note' is read there, and not here", False),
        (schema(keyless=True), schema(), "only one of the two has a key", False),
    ],
)
def test_each_difference_is_named(here: TableSchema, there: TableSchema, text: str, certain: bool) -> None:
    found = discrepancy(Own(here), there)
    assert found is not None and found.certain is certain
    assert text in found.text and f"public.t is not read as in the change log that is followed: {found.text}" in str(
        found.refusal
    )


def test_what_only_the_manifests_can_explain_is_named_before_what_may_be_a_change_that_is_not_yet_known() -> None:
    found = discrepancy(Own(schema(ID, where="a")), schema())
    assert found is not None and found.certain and found.text.startswith("where is a here")


def test_a_table_that_cannot_be_copied_with_this_manifest_may_still_change() -> None:
    found = discrepancy(Own(schema(), TableStop("public.t", "it has no key")), schema(where="a"))
    assert found is not None and not found.certain
    assert found.text == "with this manifest it cannot be copied: it has no key"
