"""Parts of a Replicator beside its source, target and tables: how it reads, applies, checks, keeps and tells."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from tailrace.contract.base import (
    A_MINUTE,
    Duration,
    FormerDefault,
    LineageNamespace,
    Model,
    Name,
    ReceiverUrl,
    Text,
    at_least_a_minute,
    rules,
    seconds_in_cel,
)
from tailrace.contract.places import (
    Credentials,
)
from tailrace.contract.units import seconds


class SnapshotSpec(Model):
    """Defaults of every snapshot."""

    initial: bool = True
    """Read the existing rows of each table when it is first captured. A table that starts over (renamed, repaired,
    captured again, or re-created under the same name) is always read."""
    chunk_seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """Chunks are sized to take about this many seconds to read; up to three times as many while their files would be
    smaller than 48 MiB."""
    chunk_rows: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    """Fixed chunk size in rows instead; unset: adaptive."""
    parallelism: Annotated[int, Field(ge=1, le=256)] = 2
    """Number of chunks read at the same time, over all tables. If it is raised while the driver runs, large batches of
    changes may have to wait for the end of a chunk, until the driver is restarted."""


SHORTEST_FRESHNESS, LONGEST_FRESHNESS = 0.1, 3600.0
FRESHNESS, WAREHOUSE_FRESHNESS = 5.0, 60.0
"""Seconds that are promised unless the manifest says otherwise."""
_BOUNDS = "it must be at least 100ms and at most 1h"
_IN_BOUNDS = f"!has(self.freshness) || [{seconds_in_cel('freshness')}].all(s, s >= 0.1 && s <= 3600.0)"


class ApplySpec(Model):
    """The way in which changes are applied to the target."""

    model_config = rules((_IN_BOUNDS, f"freshness: {_BOUNDS}"))

    suspend: bool = False
    """Pause writing to the target only; capture continues."""
    freshness: Annotated[Duration | None, FormerDefault("5s")] = None
    """The time within which a committed change is to be visible in the target (`500ms`, `1m`): from 100ms to 1h; unset:
    `5s`, and `60s` in a warehouse, which bills each batch. The longer it is, the fewer commits are made, and the less
    the same changes cost."""

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, given: object) -> object:
        """A plain "not a known field" would not say what took its place."""
        if isinstance(given, Mapping) and "interval" in given:
            raise ValueError(
                "interval is now freshness: the time within which a change shall be visible, not the time between two"
                " batches; 500ms comes closest to the former default"
            )
        return given

    @model_validator(mode="after")
    def _in_bounds(self) -> "ApplySpec":
        if self.freshness is not None and not SHORTEST_FRESHNESS <= seconds(self.freshness) <= LONGEST_FRESHNESS:
            raise ValueError(f"freshness is {self.freshness}: {_BOUNDS}")
        return self


SHORTEST_PERIOD = 60.0
_LONG_ENOUGH = at_least_a_minute("every")


def _check_period(every: str) -> None:
    if seconds(every) < SHORTEST_PERIOD:
        raise ValueError(f"every is {every}: {A_MINUTE}")


class VerifySpec(Model):
    """The verification of all tables in the background, one after another."""

    model_config = rules(_LONG_ENOUGH)

    every: Duration = "7d"
    """The period in which each table is compared with its source once (`24h`, `7d`), spread over it."""
    max_rows_per_second: Annotated[int, Field(ge=100, le=100_000_000)] = 50_000
    """Maximum number of rows that are compared per second."""

    @model_validator(mode="after")
    def _long_enough(self) -> "VerifySpec":
        _check_period(self.every)
        return self


class CutsSpec(Model):
    """Cuts that the driver makes by its clock."""

    model_config = rules(_LONG_ENOUGH)

    every: Duration = "15m"
    """The time between two cuts, at least `1m`."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 96
    """The number of these cuts that are kept; the oldest is dropped for a new one. Cuts that were requested by name
    do not count."""

    @model_validator(mode="after")
    def _long_enough(self) -> "CutsSpec":
        _check_period(self.every)
        return self


_WINDOW = "it must be at least 1h and at most 7d"
_IN_WINDOW = f"!has(self.window) || [{seconds_in_cel('window')}].all(s, s >= 3600.0 && s <= 604800.0)"


class ObjectiveSpec(Model):
    """The age that changes may have when they become visible in the target, and how many of them may be older."""

    model_config = rules((_IN_WINDOW, f"window: {_WINDOW}"))

    within: Duration = "10s"
    """The age, from the commit in the source on."""
    percent: Annotated[float, Field(ge=50, lt=100)] = 99.0
    """The percentage of the changes that must not be older."""
    window: Duration = "24h"
    """The time over which they are counted, from 1h to 7d."""

    @model_validator(mode="after")
    def _kept(self) -> "ObjectiveSpec":
        if not 3600 <= seconds(self.window) <= 7 * 86_400:
            raise ValueError(f"window is {self.window}: {_WINDOW}")
        return self


_NO_CONFIGURATION = "give exactly one of configFile and secretName"


class LineageSpec(Model):
    """Lineage events in OpenLineage's format: which table of the source becomes which one of the target."""

    model_config = rules(("has(self.secretName) != has(self.configFile)", _NO_CONFIGURATION))

    namespace: LineageNamespace
    """The namespace of the jobs: one for the Replicator, and one for each of its tables."""
    config_file: Text | None = None
    """Path of OpenLineage's own configuration file (`openlineage.yml`), as the driver sees it: where and how events are
    sent."""
    secret_name: Name | None = None
    """Kubernetes: a Secret in the Replicator's namespace with this file under the key `openlineage.yml`."""

    @model_validator(mode="after")
    def _one(self) -> "LineageSpec":
        if (self.secret_name is None) == (self.config_file is None):
            raise ValueError(_NO_CONFIGURATION)
        return self


class RetrySpec(Model):
    """The retries of a table that fails, and of a driver that is refused."""

    time: Duration = "1h"
    """The time for which a failing table is retried (`30m`, `7d`). After that, the change log no longer waits for the
    table, and it needs a snapshot."""
    halted: Duration = "30m"
    """The time after which the operator starts a driver again that was stopped because the source, the target or the
    storage refused its credentials or its configuration; 0s: it does not. Ignored outside Kubernetes."""


class RetentionSpec(Model):
    """The time for which the change log is kept."""

    time: Duration = "1h"
    """Minimum time that changes are kept (`1h`, `7d`); longer where a table still needs them."""


class RecoverSpec(Model):
    """The reaction to a lost position in the source's log (`PositionLost`)."""

    mode: Literal["Resnapshot"]
    """`Resnapshot`: start every table over from the present end of the source's log, and read all rows."""
    nonce: Annotated[int, Field(ge=0, le=2**53 - 1)]
    """Each number allows one recovery: change it to recover again."""


class NotificationsSpec(Model):
    """The receiver of events about snapshots, tables, verifications, cuts and rewinds, as CloudEvents over HTTP."""

    url: ReceiverUrl
    """`https://host/path`, without user name and password."""
    credentials: Credentials
    """The key that signs each event: key `signingKey` of a Secret, or the content of a file; at least 16 bytes, or
    `whsec_` and base64."""
