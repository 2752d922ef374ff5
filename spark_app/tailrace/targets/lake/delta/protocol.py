"""The choice of who commits to a Delta table: Tailrace itself, by one file, or Delta, where the table has features or
properties whose rules Tailrace does not know. Pure.

Tailrace writes data files, deletion vectors, domains and transactions. All else that a writer must do for a feature is
Delta's: row ids, timestamps inside commits, copies of the metadata for other formats.
"""

from collections.abc import Mapping
from typing import Any

from tailrace.targets.lake.delta.log import Action

FEATURE = "delta.feature."
"""A property of this prefix asks for a feature. Whoever commits it moves it into the protocol."""
_USED = ("columnMapping", "deletionVectors", "domainMetadata")
_READERS = frozenset({"columnMapping", "deletionVectors", "timestampNtz"})
_KNOWN = frozenset({
    *_USED, "allowColumnDefaults", "appendOnly", "changeDataFeed", "checkConstraints", "clustering", "generatedColumns",
    "identityColumns", "invariants", "timestampNtz", "typeWidening", "vacuumProtocolCheck",
})  # fmt: skip
"""Features that ask nothing of a writer who adds whole rows of its own and removes files. (Of constraints and generated
columns others are told: the values are the source's.)"""
_PROPERTIES = frozenset({
    "appendOnly", "autoOptimize.optimizeWrite", "checkpoint.writeStatsAsJson", "checkpoint.writeStatsAsStruct",
    "checkpointInterval", "checkpointPolicy", "checkpointRetentionDuration", "columnMapping.maxColumnId",
    "columnMapping.mode", "dataSkippingNumIndexedCols", "dataSkippingStatsColumns", "deletedFileRetentionDuration",
    "enableChangeDataFeed", "enableDeletionVectors", "enableExpiredLogCleanup", "enableTypeWidening", "isolationLevel",
    "logRetentionDuration", "randomizeFilePrefixes", "randomPrefixLength", "setTransactionRetentionDuration",
    "targetFileSize", "tuneFileSizesForRewrites",
})  # fmt: skip
_VALUES = {
    "checkpoint.writeStatsAsJson": "true",
    "checkpoint.writeStatsAsStruct": "false",
    "checkpointPolicy": "classic",
    "columnMapping.mode": "name",
}
"""The only value with which Tailrace knows the property's rules."""
NEW: Action = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["columnMapping", "deletionVectors"],
    "writerFeatures": ["appendOnly", "columnMapping", "deletionVectors", "domainMetadata", "invariants"],
}
"""The protocol of a table that Tailrace makes; what its columns need besides comes with `settled`."""


def is_direct(protocol: Action, metadata: Action) -> bool:
    """True if Tailrace commits to the table and writes its checkpoints; False: Delta does."""
    features = {*protocol.get("readerFeatures", ()), *protocol.get("writerFeatures", ())}
    return (
        (protocol.get("minReaderVersion"), protocol.get("minWriterVersion")) == (3, 7)
        and features >= {*_USED}
        and features <= _KNOWN
        and all(_harmless(name, value) for name, value in metadata["configuration"].items())
    )


def _harmless(name: str, value: str) -> bool:
    if not name.startswith("delta.") or name.startswith("delta.constraints."):
        return True
    name = name.removeprefix("delta.")
    return name in _PROPERTIES and value.lower() == _VALUES.get(name, value.lower())


def settled(protocol: Action, metadata: Mapping[str, Any]) -> tuple[Action, Action]:
    """Protocol and metadata with the features that the metadata's properties ask for moved from one to the other."""
    configuration = dict(metadata["configuration"])
    asked = [name.removeprefix(FEATURE) for name in configuration if name.startswith(FEATURE)]
    for name in asked:
        del configuration[FEATURE + name]
    writers, readers = set(protocol["writerFeatures"]), set(protocol["readerFeatures"])
    after = {
        **protocol,
        "readerFeatures": sorted(readers | (_READERS & {*asked})),
        "writerFeatures": sorted(writers | {*asked}),
    }
    changed = not writers.issuperset(asked)
    return (after if changed else protocol), {**metadata, "configuration": configuration}
