"""What is wrong with the client's configuration is refused by name; what is wrong in the manifest is among the cases of
`support.resources`."""

import builtins
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tailrace.contract.settings import LineageSpec
from tailrace.driver.telling.lineage import configuration
from tailrace.errors import InvalidManifest


def spec(path: Path) -> LineageSpec:
    return LineageSpec(namespace="prod", config_file=str(path))


def refused(spec: LineageSpec, secrets: Path | None = None) -> InvalidManifest:
    with pytest.raises(InvalidManifest) as caught:
        configuration.emitter(spec, secrets)
    assert caught.value.exit_code == 2 and caught.value.fix
    return caught.value


@pytest.mark.parametrize(
    "content,what",
    [
        (b"transport: [", "is not YAML (line 1, column 13)"),
        (b"\xff\xfe", "is not a text in UTF-8"),
        (b"", "is no mapping"),
        (b"- transport", "is no mapping"),
        (b"transport: http", "has no transport.type"),
        (b"transport: {url: 'http://x'}", "has no transport.type"),
        (b"transport: {type: file, log_file_path: /x}\ntransports: {}", "has unknown fields: transports"),
        (b"transport: {type: http}", "`url` key not passed"),
        (b"transport: {type: http, url: none}", "Need valid url"),
        (b"transport: {type: carrier.Pigeon}", "(transport carrier.Pigeon)"),
        (b"transport: {type: kafka, config: {}}", "(transport kafka)"),
        (b"transport: {type: http, url: 'http://x', auth: {type: api_key}}", "apiKey is required"),
        (b"transport: {type: file}", "`log_file_path` key not passed"),
        (b"transport: {type: http, url: 'http://x'}\nfacets: {unknown: 1}", "unknown"),
    ],
)
def test_a_wrong_file_is_refused_with_its_path(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "openlineage.yml"
    path.write_bytes(content)
    said = refused(spec(path)).message
    assert said.startswith(f"spec.lineage.configFile {path} ") and what in said


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refused(spec(tmp_path / "none.yml")).message
    assert "Is a directory" in refused(spec(tmp_path)).message


def test_passwords_in_the_file_are_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "openlineage.yml"
    path.write_text("transport: {type: http, url: '//me:hunter2@host'}")
    assert "hunter2" not in str(refused(spec(path)))
    path.write_text("transport: {type: http, apiKey: hunter2, url: [}")
    assert "hunter2" not in str(refused(spec(path)))


def test_a_secret_is_read_where_it_is_mounted_and_refused_outside_kubernetes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_SECRETS", str(tmp_path))
    given = LineageSpec(namespace="prod", secret_name="catalog")
    assert "outside Kubernetes" in refused(given).message
    assert "key 'openlineage.yml' of Secret 'catalog' cannot be read" in refused(given, tmp_path).message
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "openlineage.yml").write_text("transport: {type: http, url: 'http://x'}")
    assert configuration.check(given, tmp_path) == "http"


def test_a_package_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "openlineage.yml"
    path.write_text("transport: {type: http, url: 'http://x'}")
    real = builtins.__import__

    def without(name: str, *arguments: Any, **more: Any) -> Any:
        if name.startswith("openlineage"):
            raise ModuleNotFoundError(f"No module named {name!r}", name="openlineage")
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    error = refused(spec(path))
    assert "openlineage" in error.message and ".[lineage]" in error.fix


def test_the_clients_own_switch_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    path = tmp_path / "openlineage.yml"
    path.write_text("transport: {type: http, url: 'http://x'}")
    with caplog.at_level(logging.WARNING):
        assert configuration.check(spec(path), None) == "http"
    assert "OPENLINEAGE_DISABLED" in caplog.text


def test_events_go_to_a_file(tmp_path: Path) -> None:
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState

    path, events = tmp_path / "openlineage.yml", tmp_path / "events.jsonl"
    path.write_text(json.dumps({"transport": {"type": "file", "log_file_path": str(events), "append": True}}))
    emit = configuration.emitter(spec(path), None)
    run = Run("3b452093-782c-4ef2-9c0c-aafe2aa6f34d")
    for kind in (RunState.START, RunState.COMPLETE):
        emit(RunEvent(eventTime="2026-11-29T10:00:00Z", eventType=kind, run=run, job=Job("prod", "shop")))
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    assert [line["eventType"] for line in lines] == ["START", "COMPLETE"]
    assert "sourceCodeLocation" not in lines[0]["job"]["facets"] and "tailrace" in lines[0]["producer"]


def test_events_go_to_kafka(tmp_path: Path) -> None:
    """To the broker that Kafka's own client has for tests."""
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState

    path = tmp_path / "openlineage.yml"
    kafka = {"bootstrap.servers": "unused:1", "test.mock.num.brokers": "1"}
    path.write_text(json.dumps({"transport": {"type": "kafka", "topic": "lineage", "config": kafka}}))
    emit = configuration.emitter(spec(path), None)
    run = Run("3b452093-782c-4ef2-9c0c-aafe2aa6f34d")
    emit(RunEvent(eventTime="2026-11-29T10:00:00Z", eventType=RunState.START, run=run, job=Job("prod", "shop")))
    client = emit.__self__  # type: ignore[attr-defined]  # it is the bound method of one
    producer = client.transport.producer
    assert len(producer) == 0 and producer.list_topics("lineage", 10).topics["lineage"].error is None


def test_secrets_in_the_address_are_not_told_with_an_error() -> None:
    """The status shows it to whoever can reach the driver."""
    refused = RuntimeError("HTTPPool(host='x'): Max retries exceeded with url: /api?code=hunter2 (Caused by a timeout)")
    text = configuration.text_of(refused)
    assert "hunter2" not in text and text.endswith("(Caused by a timeout)")
    cut_off = RuntimeError("x" * 285 + " //me:hunter2@host/api")
    assert "hunt" not in configuration.text_of(cut_off)
