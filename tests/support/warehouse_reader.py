"""Tables in a warehouse's emulator as a client reads them: BigQuery or Snowflake."""

from support.bigquery import BigQueryService
from support.bigquery_reader import BigQueryCopies
from support.snowflake import SnowflakeService
from support.snowflake_reader import SnowflakeCopies

Service = BigQueryService | SnowflakeService
Copies = BigQueryCopies | SnowflakeCopies


def copies_of(service: Service) -> Copies:
    """A data set or schema that is not there yet."""
    return BigQueryCopies.of(service) if isinstance(service, BigQueryService) else SnowflakeCopies.of(service)
