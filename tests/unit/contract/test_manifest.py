import pytest

from tailrace.contract.manifest import parse
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


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("port", "host: db, port: 99999"), ("spec.source.port", "99999")),
        (("unknown", "host: db, hots: x"), ("spec.source.hots", "not a known field", "'x'")),
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
