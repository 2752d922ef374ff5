"""Events of the client library, made of what is to be said. Reads no clock, sends nothing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from openlineage.client import facet_v2
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState

from tailrace import __version__
from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.contract import dataset_names
from tailrace.contract.base import OWNER_LABEL
from tailrace.contract.dataset_names import DatasetName
from tailrace.contract.resources import ReplicatorSpec, TableOptions
from tailrace.contract.status import Fault
from tailrace.driver.telling.lineage import naming
from tailrace.driver.telling.lineage.runs import Kind, Saying, SeenTable
from tailrace.selection import as_types
from tailrace.selection.filters import filter_columns
from tailrace.sources import patterns

_STATES = {kind: RunState(kind) for kind in ("START", "RUNNING", "COMPLETE", "FAIL", "ABORT")}
_INTEGRATION = "TAILRACE"


@dataclass(frozen=True)
class LineageOrigin:
    """The Replicator that events are of."""

    namespace: str
    """The namespace of its jobs."""
    name: str
    spec: ReplicatorSpec
    owners: Sequence[tuple[str, str | None]] = ()
    """Names, and types where they have one."""
    once: bool = False


def owners_in(labels: Mapping[str, str]) -> list[tuple[str, str | None]]:
    """The owners that the Replicator's labels name."""
    ours = [(label.removeprefix(OWNER_LABEL), name) for label, name in sorted(labels.items()) if _names(label, name)]
    return [(name, kind.removeprefix(".").upper() or None) for kind, name in ours]


def _names(label: str, name: str) -> bool:
    return bool(name) and (label == OWNER_LABEL or label.startswith(f"{OWNER_LABEL}."))


class LineageEvents:
    """Makes the events of one Replicator, whose own run is the parent of its tables'."""

    def __init__(self, origin: LineageOrigin, run_id: str) -> None:
        self._origin, self.run_id = origin, run_id

    def of_replicator(self, kind: Kind, at: float, fault: Fault | None = None) -> RunEvent:
        run = Run(self.run_id, facets=_engine() | _error(fault))
        return self._event(kind, at, run, self._job(self._origin.name, "REPLICATOR"))

    def of_table(self, saying: Saying) -> RunEvent:
        table, origin = saying.table, self._origin
        parent = facet_v2.parent_run.ParentRunFacet(
            run=facet_v2.parent_run.Run(runId=self.run_id),
            job=facet_v2.parent_run.Job(namespace=origin.namespace, name=origin.name),
        )
        run = Run(saying.run.run_id, facets={"parent": parent} | _engine() | _error(saying.fault))
        job = self._job(naming.job_of(origin.name, saying.run.place), "TABLE")
        event = self._event(saying.kind, saying.at, run, job)
        event.inputs = [self._input(table)]
        event.outputs = [self._output(saying)]
        return event

    def aborted(self, run_id: str, job: str, at: float) -> RunEvent:
        """A run of a process that was killed."""
        return self._event("ABORT", at, Run(run_id), Job(self._origin.namespace, job))

    def _event(self, kind: Kind, at: float, run: Run, job: Job) -> RunEvent:
        moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
        return RunEvent(eventTime=moment, eventType=_STATES[kind], run=run, job=job)

    def _job(self, name: str, kind: Literal["REPLICATOR", "TABLE"]) -> Job:
        emission = facet_v2.job_type_job.EmissionPattern(
            eventTrigger="EVENT_BASED" if self._origin.once else "PERIODIC", eventContentMode="ACCUMULATIVE"
        )
        job_type = facet_v2.job_type_job.JobTypeJobFacet(
            processingType="BATCH" if self._origin.once else "STREAMING",
            integration=_INTEGRATION,
            jobType=kind,
            emissionPattern=emission,
        )
        facets: dict[str, facet_v2.JobFacet] = {"jobType": job_type}
        if self._origin.owners:
            owner = facet_v2.ownership_job.Owner
            owners = [owner(name=name, type=type) for name, type in self._origin.owners]
            facets["ownership"] = facet_v2.ownership_job.OwnershipJobFacet(owners=owners)
        return Job(self._origin.namespace, name, facets)

    def _input(self, table: SeenTable) -> InputDataset:
        spec, schema = self._origin.spec.source, table.source
        name = dataset_names.of_source(spec, schema.schema_name, schema.table_name)
        facets: dict[str, facet_v2.DatasetFacet] = {
            "schema": _schema((column.name, column.source_type) for column in schema.columns),
            "dataSource": _data_source(name, dataset_names.uri_of_source(spec)),
        }
        return InputDataset(name.namespace, name.name, facets=facets)

    def _output(self, saying: Saying) -> OutputDataset:
        spec, table = self._origin.spec.target, saying.table
        name = naming.of_copy(spec, *table.place)
        facets: dict[str, facet_v2.DatasetFacet] = {
            "schema": _schema((column.name, column.type) for column in table.target.columns),
            "dataSource": _data_source(name, dataset_names.uri_of_target(spec)),
            "columnLineage": self._columns(table),
        }
        if not spec.is_database:
            layer = facet_v2.storage_dataset.StorageDatasetFacet(storageLayer=spec.type, fileFormat="parquet")
            facets["storage"] = layer
        link = naming.in_catalog(spec, *table.place)
        if link is not None:
            identifier = facet_v2.symlinks_dataset.Identifier(namespace=link.namespace, name=link.name, type="TABLE")
            facets["symlinks"] = facet_v2.symlinks_dataset.SymlinksDatasetFacet(identifiers=[identifier])
        if table.version is not None:
            version = str(table.version)
            facets["version"] = facet_v2.dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=version)
        if self._origin.owners:
            owner = facet_v2.ownership_dataset.Owner
            owners = [owner(name=name, type=type) for name, type in self._origin.owners]
            facets["ownership"] = facet_v2.ownership_dataset.OwnershipDatasetFacet(owners=owners)
        if saying.change is not None:
            change = facet_v2.lifecycle_state_change_dataset
            facets["lifecycleStateChange"] = change.LifecycleStateChangeDatasetFacet(
                lifecycleStateChange=change.LifecycleStateChange(saying.change)
            )
        statistics: dict[str, facet_v2.OutputDatasetFacet] = {}
        if saying.kind != "START":
            made = facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
            files = saying.written
            size, count = (None, None) if files is None else (files.size, files.count)
            statistics["outputStatistics"] = made(rowCount=saying.rows, size=size, fileCount=count)
        return OutputDataset(name.namespace, name.name, statistics, facets=facets)

    def _columns(self, table: SeenTable) -> facet_v2.column_lineage_dataset.ColumnLineageDatasetFacet:
        """Columns are found by their ids: the target may have a column under an older name, or another one."""
        schema = table.source
        origin = dataset_names.of_source(self._origin.spec.source, schema.schema_name, schema.table_name)
        options = patterns.options_of(self._origin.spec.options, schema.schema_name, schema.table_name)
        names = {column.id: column.name for column in schema.columns}
        fields = {
            column.name: facet_v2.column_lineage_dataset.Fields(
                inputFields=[_field(origin, names[column.id], *_transformations(names[column.id], column, options))]
            )
            for column in table.target.columns
            if column.id in names
        }
        deciding = [_field(origin, name, _transformation("INDIRECT", "FILTER")) for name in _filtering(schema)]
        return facet_v2.column_lineage_dataset.ColumnLineageDatasetFacet(fields=fields, dataset=deciding)


def _filtering(schema: TableSchema) -> list[str]:
    return sorted(filter_columns(schema))


def _transformations(
    source: str, column: Column, options: TableOptions | None
) -> Iterator[facet_v2.column_lineage_dataset.Transformation]:
    """The changes to the values of the column `source` in a column of the target."""
    renamed = "" if column.name == source else f"renamed from {source}"
    if column.mask is not None:
        how = column.mask.partition(" ")[0]
        yield _transformation("DIRECT", "TRANSFORMATION", _text(f"masked: {how}", renamed), masking=True)
    elif as_types.requested(options, source) is not None:
        yield _transformation("DIRECT", "TRANSFORMATION", _text(f"as {as_types.named(column.type)}", renamed))
    else:
        yield _transformation("DIRECT", "IDENTITY", renamed)


def _text(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _transformation(
    type: Literal["DIRECT", "INDIRECT"], subtype: str, description: str = "", *, masking: bool = False
) -> facet_v2.column_lineage_dataset.Transformation:
    made = facet_v2.column_lineage_dataset.Transformation
    return made(type=type, subtype=subtype, description=description, masking=masking)


def _field(
    origin: DatasetName, name: str, *transformations: facet_v2.column_lineage_dataset.Transformation
) -> facet_v2.column_lineage_dataset.InputField:
    made = facet_v2.column_lineage_dataset.InputField
    return made(namespace=origin.namespace, name=origin.name, field=name, transformations=list(transformations))


def _schema(columns: Iterator[tuple[str, str]]) -> facet_v2.schema_dataset.SchemaDatasetFacet:
    field = facet_v2.schema_dataset.SchemaDatasetFacetFields
    fields = [field(name=name, type=type, ordinal_position=at) for at, (name, type) in enumerate(columns, 1)]
    return facet_v2.schema_dataset.SchemaDatasetFacet(fields=fields)


def _data_source(name: DatasetName, uri: str) -> facet_v2.datasource_dataset.DatasourceDatasetFacet:
    return facet_v2.datasource_dataset.DatasourceDatasetFacet(name=name.namespace, uri=uri)


def _engine() -> dict[str, facet_v2.RunFacet]:
    engine = facet_v2.processing_engine_run.ProcessingEngineRunFacet
    return {"processing_engine": engine(version=__version__, name="Tailrace", openlineageAdapterVersion=__version__)}


def _error(fault: Fault | None) -> dict[str, facet_v2.RunFacet]:
    if fault is None:
        return {}
    message = f"{fault.name}: {fault.message}" + (f". Fix: {fault.fix}" if fault.fix else "")
    return {"errorMessage": facet_v2.error_message_run.ErrorMessageRunFacet(message, programmingLanguage="PYTHON")}
