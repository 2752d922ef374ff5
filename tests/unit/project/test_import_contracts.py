"""Each import contract breaks when one import that it forbids is added, and its lists leave nothing out."""

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import grimp
import pytest
from importlinter import configuration
from importlinter.application.use_cases import read_user_options
from importlinter.application.user_options import UserOptions
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.independence import IndependenceContract
from importlinter.contracts.layers import LayersContract

ROOT = Path(__file__).parents[3]
DATA, CONTROL = "pyproject.toml", "tools/operator-imports.toml"
KINDS: dict[str, type[ForbiddenContract | IndependenceContract | LayersContract]] = {
    "forbidden": ForbiddenContract,
    "independence": IndependenceContract,
    "layers": LayersContract,
}
VIOLATIONS = {
    "Each room uses only those below it": ("tailrace.changelog.state", "tailrace.capture.loop"),
    "A target's engine and its formats know nothing of each other": (
        "tailrace.targets.lake.engine.build",
        "tailrace.targets.lake.delta.table",
    ),
    "The driver answers with what it tells, and neither knows who runs it": (
        "tailrace.driver.telling.status",
        "tailrace.driver.asking.control",
    ),
    "No room but the registry knows a source's product": ("tailrace.capture.loop", "psycopg"),
    "Sources are independent of each other": ("tailrace.sources.mysql.chunks", "tailrace.sources.postgresql.sql"),
    "PostgreSQL's connections and MySQL's are independent of each other": (
        "tailrace.databases.mysql.connect",
        "tailrace.databases.postgresql.connect",
    ),
    "No room but the registry knows a target's product": ("tailrace.apply.applier", "tailrace.targets.lake.model"),
    "A database's product stands on what all databases share, and no target knows another": (
        "tailrace.targets.sql.unit",
        "tailrace.targets.postgresql.types",
    ),
    "The contract stands on nothing but the errors": ("tailrace.contract.status", "tailrace.logs"),
    "Capture runs without a JVM": ("tailrace.capture.loop", "pyspark"),
    "Planning snapshots and cutting batches are pure": ("tailrace.snapshot.planner", "pyarrow"),
    "The fold is arrays alone, whatever the target": ("tailrace.fold.decide", "pyroaring"),
    "What bootstrap imports stands on nothing but the standard library and the errors": (
        "tailrace.spark.artifacts",
        "yaml",
    ),
    "The data plane knows nothing of the control plane": ("tailrace.driver.asking.namespace", "kubernetes"),
    "The control plane uses nothing of the data plane but the contract": (
        "tailrace_operator.decide.desired",
        "tailrace.logs",
    ),
    "Handlers call, acting follows deciding, deciding follows observing": (
        "tailrace_operator.decide.desired",
        "tailrace_operator.act.events",
    ),
    "Deciding, rendering and status are pure": ("tailrace_operator.decide.desired", "asyncio"),
}
"""Contract -> who imports what."""
ALLOWED_TO_THE_OPERATOR = {"contract", "errors", "seams"}
"""`seams` imports nothing: the operator is killed at its write-ahead steps by the same means. `errors` is what the
contract stands on."""


@cache
def options_of(file: str) -> UserOptions:
    configuration.configure()
    return read_user_options(str(ROOT / file))


def contracts() -> dict[str, tuple[str, dict[str, Any]]]:
    """Name -> the file that has it, and its options."""
    return {o["name"]: (file, o) for file in (DATA, CONTROL) for o in options_of(file).contracts_options}


@cache
def graph(file: str) -> grimp.ImportGraph:
    packages = options_of(file).session_options["root_packages"]
    return grimp.build_graph(*packages, include_external_packages=True, cache_dir=None)


def kept(name: str, imports: grimp.ImportGraph) -> bool:
    file, options = contracts()[name]
    contract = KINDS[options["type"]](name, options_of(file).session_options, options)
    return contract.check(deepcopy(imports), verbose=False).kept


def modules(folder: str) -> set[str]:
    """Modules and packages of a folder; not what is left of one that was renamed (bytecode)."""
    found = (ROOT / "spark_app/tailrace" / folder).iterdir()
    return {path.stem for path in found if path.suffix == ".py" or (path / "__init__.py").exists()} - {"__init__"}


def rooms() -> set[str]:
    return modules("") - {"__main__"}


@pytest.mark.parametrize("name", contracts())
def test_every_contract_is_kept_and_breaks_on_a_violation(name: str) -> None:
    importer, imported = VIOLATIONS[name]
    imports = graph(contracts()[name][0])
    assert importer in imports.modules
    assert kept(name, imports)
    broken = deepcopy(imports)
    if imported not in broken.modules:
        broken.add_module(imported, is_squashed=True)
    broken.add_import(importer=importer, imported=imported)
    assert not kept(name, broken)


def test_a_room_that_stands_in_no_layer_breaks_the_contract() -> None:
    imports = deepcopy(graph(DATA))
    imports.add_module("tailrace.newcomer")
    assert not kept("Each room uses only those below it", imports)


@pytest.mark.parametrize(
    "registry, folders", [("source", ["sources", "databases", "targets"]), ("target", ["targets"])]
)
def test_no_room_is_left_out_of_those_that_may_know_no_product(registry: str, folders: list[str]) -> None:
    """And nothing in the folders that have products, but the registry itself and the products."""
    _, options = contracts()[f"No room but the registry knows a {registry}'s product"]
    own = {f"tailrace.{folder}.{module}" for folder in folders for module in modules(folder)}
    products = own & set(options["forbidden_modules"])
    assert products
    assert set(options["source_modules"]) == {f"tailrace.{r}" for r in rooms() - set(folders)} | own - products


def test_no_room_is_left_out_of_those_that_the_control_plane_may_not_use() -> None:
    _, options = contracts()["The control plane uses nothing of the data plane but the contract"]
    wanted = {f"tailrace.{room}" for room in rooms() - ALLOWED_TO_THE_OPERATOR}
    assert wanted <= set(options["forbidden_modules"])


def test_no_room_is_left_out_of_those_that_the_contract_may_not_use() -> None:
    _, options = contracts()["The contract stands on nothing but the errors"]
    assert {f"tailrace.{room}" for room in rooms() - {"contract", "errors"}} <= set(options["forbidden_modules"])
