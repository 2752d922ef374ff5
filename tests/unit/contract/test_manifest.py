import io
import sys
from pathlib import Path

import pytest

from tailrace.contract import base
from tailrace.contract.manifest import load, parse
from tailrace.contract.units import seconds, size
from tailrace.errors import InvalidManifest

GOOD = """
apiVersion: tailrace.dev/v1alpha1
kind: Replicator
metadata: {name: shop}
spec:
  source: {type: postgresql, host: db, database: shop, username: tailrace}
  tables: {include: ["public.*"]}
  target: {type: delta, location: file:///lake}
  storage: {location: file:///log}
---
apiVersion: tailrace.dev/v1alpha1
kind: SnapshotRequest
metadata: {name: again}
spec: {replicator: shop, tables: ["public.orders"]}
"""


def test_several_documents_of_one_file_are_told_apart_by_kind() -> None:
    manifest = parse(GOOD, "x.yaml")
    assert manifest.replicator().metadata.name == "shop"
    assert [r.metadata.name for r in manifest.requests_of("shop")] == ["again"]
    assert manifest.requests_of("other") == ()


def test_a_manifest_comes_from_standard_input_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
    assert load(Path("-")).replicator().metadata.name == "shop"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    with pytest.raises(InvalidManifest, match="standard input is not a text in UTF-8"):
        load(Path("-"))


def test_the_status_of_what_came_out_of_a_cluster_is_passed_over() -> None:
    manifest = parse(
        GOOD.replace("metadata: {name: shop}", "metadata: {name: shop, managedFields: []}\nstatus: {x: 1}"), "x"
    )
    assert manifest.replicator().metadata.name == "shop"


def test_documents_of_other_apis_are_passed_over_wherever_they_stand() -> None:
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: shop-db}\nstringData: {password: x}\n"
    policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: shop}\n"
    manifest = parse(f"{secret}---{GOOD}---\n{policy}", "x.yaml")
    assert manifest.replicator().metadata.name == "shop" and len(manifest.requests) == 1
    with pytest.raises(InvalidManifest, match=r"no Replicator or SnapshotRequest \(found: Secret, NetworkPolicy\)"):
        parse(f"{secret}---\n{policy}", "x.yaml")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("port", "host: db, port: 99999"), ("spec.source.port", "99999")),
        (("unknown", "host: db, hots: x"), ("spec.source.hots is not a known field; did you mean host?",)),
        (("unknown", "host: db, port_number: 1"), ("spec.source.port_number is not a known field. Fix",)),
        (
            ("nested", "host: db, tls: {Mode: require}"),
            ("spec.source.tls.Mode is not a known field; did you mean mode?",),
        ),
        (("missing", ""), ("spec.source.host", "missing")),
        (("moved", "host: db, slot: mine"), ("spec.source: source.slot is now source.postgresql.slot",)),
        (("moved", "host: db, publication: x"), ("source.publication is now source.postgresql.publication",)),
    ],
)
def test_a_wrong_field_is_named_with_its_path_and_value(change: tuple[str, str], named: tuple[str, ...]) -> None:
    text = GOOD.replace("host: db", change[1]) if change[1] else GOOD.replace("host: db, ", "")
    with pytest.raises(InvalidManifest) as caught:
        parse(text, "x.yaml")
    assert caught.value.exit_code == 2
    for part in named:
        assert part in str(caught.value)


SECRET = "hunter2!%"
GUESSES = [
    f"host: db, password: '{SECRET}'",
    f"host: db, credentials: {{password: '{SECRET}'}}",
    f"host: db, credentials: {{file: ['{SECRET}']}}",
    f"host: db, credentials: '{SECRET}'",
    f"host: db, password: {SECRET}}}",  # not YAML: the line is not quoted
    f"host: db, password: *{SECRET}",
    f"host: db, password: !{SECRET} x",
]


@pytest.mark.parametrize("guess", GUESSES)
def test_a_password_in_the_wrong_place_is_not_repeated(guess: str) -> None:
    with pytest.raises(InvalidManifest) as caught:
        parse(GOOD.replace("host: db", guess), "x.yaml")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("text", [f"'{SECRET}'", f"- '{SECRET}'", GOOD.replace("spec:", f"spec: ['{SECRET}']\nold:")])
def test_a_document_of_another_shape_is_not_repeated(text: str) -> None:
    with pytest.raises(InvalidManifest, match="mapping of fields") as caught:
        parse(text, "x.yaml")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "uri: 'jdbc:postgresql://db/c?user=u&password=hunter2'",
        "uri: 'jdbc:postgresql://db/c?sslPassword=hunter2'",
        "uri: 'jdbc:postgresql://u:hunter2@db/c'",
        "uri: 'jdbc:sqlserver://db;databaseName=c;password=hunter2'",
        "uri: 'jdbc:mysql://(host=db,password=hunter2)/c'",
        "uri: 'https://u:hunter2@catalog/v1'",
        "uri: 'https://catalog/v1?token=hunter2'",
        "uri: 'https://catalog/v1', warehouse: 's3://key:hunter2@lake/x'",
    ],
)
def test_a_password_in_the_address_of_a_catalog_is_refused_and_not_repeated(address: str) -> None:
    target = f"type: iceberg, catalog: {{type: jdbc, {address}}}"
    with pytest.raises(InvalidManifest, match="the file or Secret that credentials names") as caught:
        parse(GOOD.replace("type: delta", target), "x.yaml")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "uri: 'jdbc:postgresql://db:5432/c?user=u&ssl=true'",
        "uri: 'jdbc:postgresql://[::1]:5432/c', warehouse: 's3://lake/@x'",
        "uri: 'https://catalog:8181/a@b'",
        "uri: 'https://catalog', warehouse: 'abfss://lake@account.dfs.core.windows.net/x'",
    ],
)
def test_an_address_of_a_catalog_without_a_password_is_taken(address: str) -> None:
    parse(GOOD.replace("type: delta", f"type: iceberg, catalog: {{type: jdbc, {address}}}"), "x.yaml")


def test_a_fault_of_the_syntax_is_told_with_its_line() -> None:
    with pytest.raises(
        InvalidManifest, match=r"x.yaml is not YAML: line 7, column 1: found character '\\t' that cannot"
    ):
        parse(GOOD.replace("  tables:", "\ttables:"), "x.yaml")


def test_a_text_in_place_of_a_list_is_told_in_yaml_s_words() -> None:
    with pytest.raises(InvalidManifest, match=r"include is 'public\.\*': input should be a list"):
        parse(GOOD.replace('["public.*"]', '"public.*"'), "x.yaml")


def test_the_values_that_are_allowed_are_told_as_they_are_written() -> None:
    options = 'options: [{match: "*.*", onUnsupported: Stop}]'
    with pytest.raises(InvalidManifest, match=r"input should be 'Fail' or 'SetNull'"):
        parse(GOOD.replace("  tables:", f"  {options}\n  tables:"), "x.yaml")


def test_every_served_version_is_taken_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "VERSIONS", ("v1alpha1", "v1beta1"))
    newer = GOOD.replace("v1alpha1", "v1beta1")
    assert parse(newer, "x.yaml").replicators[0].spec == parse(GOOD, "x.yaml").replicators[0].spec
    with pytest.raises(InvalidManifest, match=r"Use tailrace.dev/v1alpha1 or tailrace.dev/v1beta1\."):
        parse(GOOD.replace("v1alpha1", "v2"), "x.yaml")


def test_a_port_that_is_not_given_is_the_products_own() -> None:
    (given,) = parse(GOOD.replace("host: db", "host: db, port: 5433").partition("---")[0], "x.yaml").replicators
    assert parse(GOOD, "x.yaml").replicator().spec.source.address == "db:5432/shop"
    assert given.spec.source.address == "db:5433/shop"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "no document"),
        ("a: [", "not YAML"),
        ("- 1", "document 1"),
        ("kind: Pod", "kind is 'Pod'"),
        ("apiVersion: tailrace.dev/v1alpha1\nkind: Replica", "kind is 'Replica'"),
        ("kind: Replicator\napiVersion: v1", "apiVersion is 'v1'"),
        ("kind: Replicator\nkind: Replicator", "appears twice"),
        ("{a: 1, [b]: 2}", "not YAML"),
        ("a: 2026-13-45", "not YAML"),
        (GOOD + "---" + GOOD, "two Replicators are called 'shop'"),
    ],
)
def test_what_is_no_manifest_is_refused_with_the_reason(text: str, part: str) -> None:
    with pytest.raises(InvalidManifest, match=part):
        parse(text, "x.yaml")


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ('include: ["public.*"]', "include: [orders]", "spec.tables.include.0 is 'orders': write schema.table"),
        ("name: shop}", "name: Shop}", "metadata.name is 'Shop': use lower-case letters, digits, - and ."),
        (
            "file:///log",
            "/log",
            "spec.storage.location is '/log': write file:///path, s3://bucket/prefix, gs://… or az://…",
        ),
        ("file:///log", "s3a://lake/log", "s3:// for s3a:// and s3n://"),
        ("host: db", "host: db, postgresql: {slot: a-b}", "slot is 'a-b': use lower-case letters, digits and _"),
    ],
)
def test_a_form_that_does_not_fit_is_told_in_words(good: str, bad: str, said: str) -> None:
    with pytest.raises(InvalidManifest) as caught:
        parse(GOOD.replace(good, bad), "x.yaml")
    assert said in caught.value.message and "^" not in caught.value.message


def test_every_message_about_a_file_names_it(tmp_path: Path) -> None:
    (tmp_path / "twice.yaml").write_text("kind: Replicator\nkind: Replicator")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff")
    for name, said in (
        ("none.yaml", "none.yaml: No such file or directory"),
        ("bytes.yaml", "bytes.yaml is not a text in UTF-8"),
        ("twice.yaml", "twice.yaml, line 2: the field 'kind' appears twice"),
    ):
        with pytest.raises(InvalidManifest) as caught:
            load(tmp_path / name)
        assert caught.value.message.endswith(said.partition(".yaml")[2])
        assert str(tmp_path / name) in caught.value.message


def test_a_rule_over_several_fields_is_explained() -> None:
    text = GOOD.replace("username: tailrace", "username: t, passwordFile: /p, credentials: {file: /q}")
    with pytest.raises(InvalidManifest, match="credentials or passwordFile, not both"):
        parse(text, "x.yaml")


def test_durations_and_sizes() -> None:
    assert seconds("1h30m") == 5400
    assert seconds("500ms") == 0.5
    assert size("2Gi") == 2 << 30
    with pytest.raises(InvalidManifest, match="'5 s'"):
        seconds("5 s")
    with pytest.raises(InvalidManifest, match="'2G'"):
        size("2G")


@pytest.mark.parametrize("sample", ["0%", "100%", "101%", "5", "abc"])
def test_a_sample_of_nothing_or_of_more_than_all_is_told_in_words(sample: str) -> None:
    text = f"""apiVersion: tailrace.dev/v1alpha1
kind: SnapshotRequest
metadata: {{name: check}}
spec: {{replicator: shop, tables: ["public.*"], mode: Verify, sample: "{sample}"}}
"""
    with pytest.raises(InvalidManifest) as caught:
        parse(text, "x.yaml")
    assert f"spec.sample is '{sample}': write a share such as 5%" in caught.value.message
