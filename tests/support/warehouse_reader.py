"""Tables in a warehouse's emulator as a client reads them: BigQuery or Snowflake."""

from typing import Any

import pytest

from support.bigquery import BigQueryService
from support.bigquery_reader import BigQueryCopies
from support.snowflake import SnowflakeService
from support.snowflake_reader import SnowflakeCopies

Service = BigQueryService | SnowflakeService
Copies = BigQueryCopies | SnowflakeCopies

WITH_ARRAYS = "bigquery with arrays"
"""A target as the tests call it, beside `bigquery` and `snowflake`: arrays are columns there."""


def service_of(target: str, request: pytest.FixtureRequest) -> Service:
    service: Service = request.getfixturevalue(target.split(maxsplit=1)[0])
    return service


def block_of(target: str) -> dict[str, Any]:
    """Fields of the target's block."""
    return {"lists": "Repeated"} if target == WITH_ARRAYS else {}


def copies_of(service: Service, **more: object) -> Copies:
    """A data set or schema that is not there yet. `more`: fields of the target's block."""
    if isinstance(service, BigQueryService):
        return BigQueryCopies.of(service, **more)
    return SnowflakeCopies.of(service, **more)
