"""`tailrace retained`: what a slot keeps, asked without a driver."""

import json
from pathlib import Path

import pytest

from support.dropping import UID, journal, manifest
from support.origins import origin
from support.pg_source import config_of
from support.postgres import PostgresServer
from tailrace.cli.main import main
from tailrace.contract.ownership import made_name
from tailrace.databases.postgresql.connect import connect
from tailrace.sources.postgresql import objects as slots

SLOT = made_name("web-shop", UID)


def test_it_says_what_the_slot_keeps_also_in_its_last_words(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = tmp_path / "words"
    monkeypatch.setenv("TAILRACE_TERMINATION_MESSAGE", str(words))
    path = manifest(tmp_path, {"host": postgres.host, "port": postgres.port}, UID)
    command = ("retained", "-f", str(path))
    assert main(command) == 0
    said = capsys.readouterr()
    assert said.out == "the source keeps no log for web-shop\n" and "there is no change log of this" in said.err
    with connect(config_of(postgres)) as admin:
        system = slots.identify(admin).system_identifier
        journal(tmp_path / "other", origin("log", "team/other@u", SLOT, system))
        other = manifest(tmp_path, {"host": postgres.host}, UID, storage={"location": f"file://{tmp_path}/other"})
        assert main(("retained", "-f", str(other))) == 0, "it is not asked: the log there is another's"
        assert "there is no change log of this Replicator" in capsys.readouterr().err
        path = manifest(tmp_path, {"host": postgres.host, "port": postgres.port}, UID)
        journal(tmp_path / "log", origin("log", f"team/web-shop@{UID}", SLOT, system))
        assert main((*command, "--json")) == 0
        assert json.loads(capsys.readouterr().out) == {"retainedBytes": None}, "there is no slot"
        slots.create_slot(config_of(postgres), SLOT)
        admin.execute("SELECT pg_logical_emit_message(false, 'x', repeat('x', 3 << 20))")
        assert main(command) == 0
        assert capsys.readouterr().out == "the source keeps 3 MiB of log for web-shop\n"
        said = json.loads(words.read_text())["retained"]
        assert 3 << 20 <= said["bytes"] < 4 << 20
