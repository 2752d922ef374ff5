"""The Iceberg catalog that a Replicator's target names: folder, REST or JDBC.

The catalog object is used directly, without Spark's caching wrapper: another writer's commit is seen at once.
"""

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from py4j.protocol import Py4JJavaError

from tailrace.contract.resources import Credentials, StorageLocation, TargetSpec
from tailrace.errors import InvalidManifest, TargetRefused
from tailrace.storage import secret_files
from tailrace.storage.access import resolve
from tailrace.storage.path_names import encode, table_folder
from tailrace.targets.lake.iceberg import classes
from tailrace.targets.lake.iceberg.java import Java, guarded

NAME = "tailrace"
"""The catalog's name. A JDBC catalog keeps it in its rows: readers must call theirs the same."""
HADOOP_FILES = "org.apache.iceberg.hadoop.HadoopFileIO"
_JDBC_NAMES = {"username": "jdbc.user", "password": "jdbc.password"}
_REST_NAMES = {"token": "token", "credential": "credential"}


def catalog_options(target: TargetSpec, environment: Mapping[str, str]) -> dict[str, str]:
    """The properties for Iceberg's catalog loader. Secrets go no further than into the loader's map."""
    catalog = target.catalog
    kind = catalog.type if catalog is not None else "folder"
    location = resolve(target.lake, environment).root
    if catalog is None or kind == "folder":
        return {"type": "hadoop", "warehouse": location}
    if catalog.uri is None:
        raise InvalidManifest(f"target.catalog.uri is missing for catalog type {kind}", "Set the catalog's address.")
    options = {"type": kind, "uri": catalog.uri, "warehouse": catalog.warehouse or location}
    options |= file_options(target.lake, environment)
    if location.startswith("file:"):
        options["io-impl"] = HADOOP_FILES
    if kind == "jdbc":
        options |= {"jdbc.schema-version": "V1", "jdbc.init-catalog-tables": "true"}
    if catalog.credentials is not None:
        options |= _secrets(catalog.credentials, _JDBC_NAMES if kind == "jdbc" else _REST_NAMES, environment)
    return options


def file_options(config: StorageLocation, environment: Mapping[str, str]) -> dict[str, str]:
    """Properties for Iceberg's own access to files on S3. Empty if local."""
    access = resolve(config, environment)
    if access.scheme != "s3":
        return {}
    values = {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": access.endpoint,
        "s3.path-style-access": "true" if access.path_style else None,
        "s3.access-key-id": access.access_key,
        "s3.secret-access-key": access.secret_key,
        "s3.session-token": access.session_token,
        "client.region": access.region or ("us-east-1" if access.endpoint else None),
    }
    return {name: value for name, value in values.items() if value is not None}


def with_tailrace_classes(options: Mapping[str, str]) -> dict[str, str]:
    """Options of the same catalog with Tailrace's classes, where it has some."""
    ours = dict(options)
    if ours["type"] == "hadoop":
        del ours["type"]
        ours |= {"catalog-impl": classes.CATALOG, "io-impl": HADOOP_FILES}
    return ours | ({"io-impl": classes.FILES} if ours.get("io-impl") == HADOOP_FILES else {})


def _secrets(credentials: Credentials, names: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """`username` and `password` (jdbc), `token` or `credential` (rest)."""
    field = "target.catalog.credentials"
    found = secret_files.read(credentials, tuple(names), environment, TargetRefused, field)
    if not found:
        raise TargetRefused(f"{field} hold none of {', '.join(names)}", "Give them.")
    return {names[name]: value for name, value in found.items()}


def table_location(target_location: str, schema_name: str, table_name: str) -> str:
    """`<location>/<schema>/<table>`, see `storage.path_names`."""
    return f"{target_location.rstrip('/')}/{table_folder(schema_name, table_name)}"


class IcebergCatalog:
    """A catalog and the target's root, from which every table's place follows. A folder is opened when it is first
    needed, others at once: what is wrong with them is told at the start."""

    def __init__(
        self,
        java: Callable[[], Java],
        target: TargetSpec,
        environment: Mapping[str, str] | None = None,
        name: str = NAME,
    ) -> None:
        """`java`: starts the JVM if there is none yet."""
        environment = os.environ if environment is None else environment
        self._make, self._name = java, name
        self._options = catalog_options(target, environment)
        self._lock = threading.Lock()
        self._opened: tuple[Java, Any] | None = None
        self._namespaces = set[str]()
        self.location = resolve(target.lake, environment).root
        self.folder = self._options["type"] == "hadoop"
        """True for a folder catalog: it alone knows the location of a table."""
        if not self.folder:
            self._open()

    @classmethod
    def open(
        cls, java: Java, target: TargetSpec, environment: Mapping[str, str] | None = None, name: str = NAME
    ) -> "IcebergCatalog":
        """One that is open."""
        made = cls(lambda: java, target, environment, name)
        made._open()
        return made

    @property
    def java(self) -> Java:
        return self._open()[0]

    @property
    def catalog(self) -> Any:
        return self._open()[1]

    def _open(self) -> tuple[Java, Any]:
        with self._lock:
            if self._opened is None:
                java = self._make()
                with guarded(self._name, "opening the Iceberg catalog"):
                    classes.ensure(java.jvm, java.hadoop)
                    made = java.iceberg.CatalogUtil.buildIcebergCatalog(
                        self._name, java.map(with_tailrace_classes(self._options)), java.hadoop
                    )
                self._opened = java, made
            return self._opened

    def _named(self, schema_name: str, table_name: str) -> tuple[str, str]:
        """A folder catalog makes folders of the names."""
        return (encode(schema_name), encode(table_name)) if self.folder else (schema_name, table_name)

    def identifier(self, schema_name: str, table_name: str) -> Any:
        schema_name, table_name = self._named(schema_name, table_name)
        catalogs = self.java.iceberg.catalog
        return catalogs.TableIdentifier.of(catalogs.Namespace.of(self.java.string_array(schema_name)), table_name)

    def find(self, schema_name: str, table_name: str) -> Any:
        """The table; None: there is none."""
        return self.java.iceberg.TailraceTables.open(self.catalog, *self._named(schema_name, table_name))

    def create(
        self, schema_name: str, table_name: str, schema: str, properties: Mapping[str, str], days: str | None
    ) -> Any:
        """The new table, in a namespace that exists. `schema`: Iceberg's JSON; `days`: the column by whose days it is
        partitioned."""
        place = None if self.folder else table_location(self.location, schema_name, table_name)
        names, form = self._named(schema_name, table_name), urlencode(properties)
        return self.java.iceberg.TailraceTables.create(self.catalog, *names, schema, form, days, place)

    def ensure_namespace(self, schema_name: str, table_name: str) -> None:
        """Asked once for all tables of a folder catalog, which makes the folder with a table's first file anyway."""
        if self.folder and schema_name in self._namespaces:
            return
        namespace = self.identifier(schema_name, table_name).namespace()
        with guarded(f"{schema_name}.{table_name}", "creating the namespace of"):
            self._namespaces.add(schema_name)
            if self.catalog.namespaceExists(namespace):
                return
            try:
                self.catalog.createNamespace(namespace)
            except Py4JJavaError:  # each catalog has an error of its own for one that another table has just created
                if not self.catalog.namespaceExists(namespace):
                    raise
