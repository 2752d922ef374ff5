"""Masks of the manifest: their text in the change log, what is refused, and where the key is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.resources import replicator
from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.contract.resources import Replicator, ReplicatorSpec, TableOptions
from tailrace.errors import InvalidManifest, SchemaChangeUnsupported
from tailrace.selection import masking, masks

OPTIONS = TableOptions.model_validate(
    {
        "match": "s.t",
        "columns": ["id", "plain"],
        "mask": [
            {"column": "mail", "method": "Hash"},
            {"column": "name", "method": "Redact"},
            {"column": "zip", "method": "Truncate", "length": 2},
        ],
    }
)


@pytest.fixture(autouse=True)
def without_a_key() -> Iterator[None]:
    yield
    masking.configure(None)


def spec(**key: str) -> ReplicatorSpec:
    return Replicator.model_validate(replicator(maskKey=key)).spec


def schema(mask: str | None, key: int | None = None) -> TableSchema:
    column = Column(name="mail", id=2, source_type="text", type="string", key=key, mask=mask)
    number = Column(name="id", id=1, source_type="int", type="int32", key=0)
    return TableSchema(table_id=1, schema_name="s", table_name="t", version=1, columns=(number, column))


def test_a_mask_is_a_short_text_and_a_hash_names_its_key(tmp_path: Path) -> None:
    assert masks.mask_of(None, "mail") is None and masks.mask_of(OPTIONS, "plain") is None
    assert masks.mask_of(OPTIONS, "name") == "Redact" and masks.mask_of(OPTIONS, "zip") == "Truncate 2"
    with pytest.raises(InvalidManifest, match="'mail', and there is no key"):
        masks.mask_of(OPTIONS, "mail")
    (tmp_path / "key").write_text("k" * 32)
    masks.configure(spec(file=str(tmp_path / "key")), None)
    assert masks.mask_of(OPTIONS, "mail") == masking.hashed_by(b"k" * 32)


def test_a_secret_is_a_folder_and_its_key_is_named_in_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_SECRETS", str(tmp_path))
    with pytest.raises(InvalidManifest, match="key 'maskKey' of Secret 'masks' cannot be read"):
        masks.configure(spec(secretName="masks"), tmp_path)
    (tmp_path / "masks").mkdir()
    (tmp_path / "masks" / "maskKey").write_text("k" * 32 + "\n")
    masks.configure(spec(secretName="masks"), tmp_path)
    assert masking.own_hash() == masking.hashed_by(b"k" * 32)
    with pytest.raises(InvalidManifest, match="'masks' cannot be read outside Kubernetes"):
        masks.configure(spec(secretName="masks"), None)


def test_a_masked_column_that_the_table_lacks_is_named() -> None:
    assert masks.misnamed("s.t", OPTIONS, ["id", "plain", "mail", "name", "zip"]) is None
    stop = masks.misnamed("s.t", OPTIONS, ["id", "plain", "Mail", "name"])
    assert (
        stop is not None and "as, asText or mask name columns that s.t does not have: ['mail', 'zip']" in stop.message
    )


def test_a_key_cannot_be_masked() -> None:
    assert masks.of_key(schema("Redact")) is None
    stop = masks.of_key(schema("Redact", key=1))
    assert stop is not None and "options[].mask names 'mail', a column of the key of s.t" in stop.message
    assert "Remove it from mask" in stop.fix


def test_rows_hashed_with_another_key_stop_their_table(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k" * 32)
    masks.configure(spec(file=str(tmp_path / "key")), None)
    masks.require_own(schema(masking.own_hash()))
    masks.require_own(schema("Truncate 3"))
    with pytest.raises(SchemaChangeUnsupported, match=r"'mail' of s\.t is hashed with another key than spec\.maskKey"):
        masks.require_own(schema(masking.hashed_by(b"o" * 32)))
