"""Names of jobs and of copies in lineage events. Pure."""

from tailrace import __version__, targets
from tailrace.contract import dataset_names
from tailrace.contract.base import GROUP
from tailrace.contract.dataset_names import DatasetName
from tailrace.contract.target import TargetSpec
from tailrace.storage.path_names import encode, table_folder

PRODUCER = f"https://{GROUP}/{__version__}"
"""Names the maker of the events, in each."""


def job_of(replicator: str, place: tuple[str, str]) -> str:
    """The name of the job that keeps the copy at `place`."""
    return ".".join((replicator, *place))


def of_copy(spec: TargetSpec, schema: str, table: str) -> DatasetName:
    """The copy of a table that was first captured under this name."""
    return dataset_names.of_target(spec, schema, targets.table_name(spec, table), table_folder(schema, table))


def in_catalog(spec: TargetSpec, schema: str, table: str) -> DatasetName | None:
    """The copy's name in its catalog; None: it has none."""
    return dataset_names.in_catalog(spec, schema, table, encode)
