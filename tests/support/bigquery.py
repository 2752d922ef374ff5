"""BigQuery as a target under test: an emulator on loopback, in memory, or Google's service, where it is asked for."""

import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import requests

import servers
from demo.ports import free_port
from support.conforming import Rows, log_of, no_spark
from support.process import Program, of_other_environment
from tailrace import targets
from tailrace.changelog.records.terms import TableSchema
from tailrace.changelog.types import arrow_type
from tailrace.contract.resources import TargetSpec
from tailrace.targets.api import Runtime, Target, Units
from tailrace.targets.bigquery import names, types
from tailrace.targets.bigquery.rest import BigQueryClient, BigQueryConfig

LIVE = "TAILRACE_LIVE_BIGQUERY"
"""Environment variable: `project:dataset:location` of Google's service, where data sets whose names begin like this are
made and deleted."""
EMULATOR = Path(__file__).parent / "bigquery_emulator.py"


@dataclass
class BigQueryService:
    project: str = "copies"
    prefix: str = "d"
    """The beginning of the names of data sets."""
    location: str = "EU"
    endpoint: str | None = None
    made: list[str] = field(default_factory=list)

    def new_dataset(self) -> str:
        """The name of one that is not there."""
        self.made.append(f"{self.prefix}{secrets.token_hex(6)}")
        return self.made[-1]

    def spec(self, dataset: str, **more: object) -> TargetSpec:
        block = {"project": self.project, "dataset": dataset, "location": self.location, "endpoint": self.endpoint}
        return TargetSpec.model_validate({"type": "bigquery", "bigquery": block | more})

    def target(self, dataset: str, **more: object) -> Target:
        return targets.open(self.spec(dataset, **more))

    @contextmanager
    def client(self, dataset: str = "") -> Iterator[BigQueryClient]:
        config = BigQueryConfig(self.project, dataset, self.location, self.endpoint, None)
        with closing(BigQueryClient(config)) as client:
            yield client

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with self.client() as client:
            return list(client.rows(client.query(statement)))

    def tables(self, dataset: str) -> list[str]:
        with self.client() as client:
            return list(client.tables(dataset))

    def clear(self) -> None:
        with self.client() as client:
            for dataset in (name + end for name in self.made for end in ("", "_tailrace")):
                if client.dataset(dataset) is not None:
                    client.call("DELETE", f"datasets/{dataset}", params={"deleteContents": "true"})


@contextmanager
def bigquery_service(folder: Path) -> Iterator[BigQueryService]:
    """Google's, where the environment names one, else an emulator."""
    live = os.environ.get(LIVE)
    if live is not None:
        project, prefix, location = live.split(":")
        service = BigQueryService(project, prefix, location)
        yield service
        service.clear()
        return
    port = free_port()
    service = BigQueryService(endpoint=f"http://127.0.0.1:{port}")
    command = [str(servers.bqemulator()), "-I", str(EMULATOR), "start", "--rest-port", str(port), "--grpc-port", "0"]
    home = of_other_environment() | {"HOME": str(servers.bqemulator_dir())}
    options = ["--project", service.project, "--log-level", "warning"]
    process = Program.start([*command, *options], folder / "bqemulator.log", env=home)
    try:
        process.until(
            lambda: _answers(f"{service.endpoint}/bigquery/v2/projects/p/datasets"), 180, "the emulator answers"
        )
        yield service
    finally:
        process.kill()


def _answers(address: str) -> bool:
    try:
        return requests.get(address, timeout=1).ok
    except requests.RequestException:
        return False


@dataclass(frozen=True)
class BigQueryDatabase:
    folder: Path
    server: BigQueryService
    dataset: str
    lacking: frozenset[str] = frozenset()
    unfit: frozenset[str] = frozenset()
    lists: str = "Text"

    @property
    def target(self) -> Target:
        return self.server.target(self.dataset, lists=self.lists)

    def units(self, admit: Callable[[], None]) -> Units:
        return self.target.units(Runtime(log_of(self.folder), admit, no_spark, "mysql"))

    def rows(self, schema: TableSchema) -> Rows:
        there = self.resource(schema.table_name)
        columns = there["schema"]["fields"]
        found = [names.read(column["name"]) for column in columns]
        taken = ", ".join(
            f"TO_JSON_STRING(`{column['name']}`)" if column.get("mode") == types.REPEATED else f"`{column['name']}`"
            for column in columns
        )
        rows = self.server.query(f"SELECT {taken} FROM `{self.dataset}`.`{names.written(schema.table_name)}`")
        kinds = {column.name: arrow_type(column.type) for column in schema.columns}
        return [{n: _value(v, kinds.get(n)) for n, v in zip(found, row, strict=True)} for row in rows]

    def resource(self, name: str) -> dict[str, Any]:
        with self.server.client() as client:
            found = client.table(self.dataset, names.written(name))
        assert found is not None
        return found

    def lose(self, path: str) -> None:
        self.server.query(f"DROP TABLE `{self.dataset}_tailrace`.`{path}`")

    def holds(self, path: str) -> bool:
        return bool(self.server.query(f"SELECT 1 FROM `{self.dataset}_tailrace`.`{path}` LIMIT 1"))


def _value(value: Any, kind: pa.DataType | None) -> Any:
    if value is None or kind is None:
        return value
    return json.loads(value) if pa.types.is_nested(kind) else pa.scalar(value, kind).as_py()
