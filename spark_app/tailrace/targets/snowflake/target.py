"""Snowflake as a target: where its tables are, and how it is reached."""

import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from typing_extensions import override

from tailrace.changelog.records.terms import TableSchema
from tailrace.contract import resources
from tailrace.errors import AuthenticationFailed, TableStop, TailraceError
from tailrace.targets.api import Obstacle
from tailrace.targets.snowflake.connect import SnowflakeConfig
from tailrace.targets.snowflake.session import SnowflakeSession
from tailrace.targets.sql.pool import SessionPool
from tailrace.targets.sql.warehouse import WarehouseTarget

KEY, PASSPHRASE = "privateKey", "privateKeyPassphrase"
"""The keys of a Secret."""
PASSPHRASE_FILE = ".passphrase"
"""The end of the name of the file with the passphrase of a key that is in a file."""
NAME_CHARACTERS = 255
MOST_COLUMNS = 2_000
LONG_SECONDS = 120
"""A warehouse that runs on for longer after a statement costs more than most batches do."""


class SnowflakeTarget(WarehouseTarget):
    """See `targets.api.Target`."""

    product = "Snowflake"

    def __init__(
        self, spec: resources.TargetSpec, source: str = "", environment: Mapping[str, str] = os.environ
    ) -> None:
        super().__init__(spec, source, environment)
        assert spec.snowflake is not None
        of = spec.snowflake
        self._into = of.schema_name.upper()
        self._of = of

    @property
    def _config(self) -> SnowflakeConfig:
        of, credentials = self._of, self._spec.credentials
        if credentials is None:
            raise AuthenticationFailed("the target has no private key", "Set target.credentials.")
        key = self._secret(credentials, KEY)
        passphrase = key + PASSPHRASE_FILE if credentials.file is not None else self._secret(credentials, PASSPHRASE)
        return SnowflakeConfig(
            account=of.account,
            user=of.user,
            database=of.database.upper(),
            schema=of.schema_name.upper(),
            warehouse=of.warehouse.upper(),
            role=of.role.upper(),
            endpoint=of.endpoint,
            key=key,
            passphrase=passphrase,
        )

    @override
    def _session(self) -> SnowflakeSession:
        return SnowflakeSession(self._config)

    @override
    def _warnings(self, session: Any) -> Iterator[Obstacle]:
        warehouse = self._of.warehouse.upper()
        try:
            after = session.suspended_after()
        except TailraceError as error:  # what else was found is told all the same
            what = f"whether warehouse {warehouse} suspends itself is not known: {error.message}"
            yield Obstacle("warn", what, error.fix)
            return
        if after is None or after > LONG_SECONDS:
            when = "is not known to suspend itself" if after is None else f"is suspended {after} s after a statement"
            yield Obstacle(
                "warn",
                f"warehouse {warehouse} {when}: each batch pays for that time",
                f"Run `ALTER WAREHOUSE {warehouse} SET AUTO_SUSPEND = 60 AUTO_RESUME = TRUE`.",
            )

    @override
    def shown(self, schema: TableSchema) -> TableSchema:
        self._require_shape(schema)
        names = [("table", schema.table_name), *(("column", column.name) for column in schema.columns)]
        for what, name in names:
            if len(name) > NAME_CHARACTERS or "\0" in name:
                raise TableStop(
                    schema.name,
                    f"the name of {what} {name!r} is none that Snowflake allows: it has more than {NAME_CHARACTERS}"
                    " characters, or U+0000",
                    f"Rename it in the source, or exclude the {what}.",
                )
        if len(schema.columns) > MOST_COLUMNS:
            raise TableStop(
                schema.name,
                f"{len(schema.columns)} columns are more than Snowflake's tables should have ({MOST_COLUMNS})",
                "Exclude columns (options[].columns), or the table.",
            )
        return schema

    @override
    def _sessions(self, source: str) -> SessionPool:
        return SessionPool(partial(SnowflakeSession, self._config))
