"""The applied state as both formats store it, a JSON object; each adds what it needs besides. Pure.

format            of this object; another one is refused by number
logId             the change log that fills the table
appliedSequence   the last change that the table holds
appliedRecord     the last journal record whose chunks it holds
schemaVersion     of the source table's schema that the table has
tableId           of the source table
generation        the journal record with which that table's rows began
gap               the record after which something is missing that only a complete snapshot brings; mostly absent
holes             keys whose rows are withheld; or `holesFile`, where they are
"""

from collections.abc import Iterable, Mapping
from typing import Any

from tailrace.batch.applied import AppliedState
from tailrace.changelog.records.terms import Key, RecordNumber, Seq
from tailrace.errors import TargetRefused

FORMAT = 3
"""1: Delta and Iceberg had words of their own, and no number. 2: holes had texts of PostgreSQL and of Arrow."""


def document(applied: AppliedState) -> dict[str, Any]:
    """All but the holes."""
    found = {
        "format": FORMAT,
        "logId": applied.log_id,
        "appliedSequence": applied.applied_seq,
        "appliedRecord": applied.applied_record,
        "schemaVersion": applied.schema_version,
        "tableId": applied.table_id,
        "generation": applied.generation,
        "gap": applied.gap,
    }
    return {name: value for name, value in found.items() if value is not None}


def applied_state(stored: Mapping[str, Any], holes: Iterable[Iterable[str]], table: str) -> AppliedState:
    """The reverse. `TargetRefused`: of another format. ValueError, KeyError or TypeError: it is none at all."""
    version = stored.get("format", 1)
    if version != FORMAT:
        raise TargetRefused(
            f"{table} holds Tailrace's state in format {version}, this is format {FORMAT}",
            "Use the version of Tailrace that wrote it, or choose another target.location; or, if nobody else reads or"
            " writes the table, move it away: it is then read again.",
        )
    keys: frozenset[Key] = frozenset(tuple(key) for key in holes)
    return AppliedState(
        log_id=str(stored["logId"]),
        applied_seq=Seq(int(stored["appliedSequence"])),
        applied_record=RecordNumber(int(stored["appliedRecord"])),
        holes=keys,
        schema_version=int(stored["schemaVersion"]),
        table_id=int(stored["tableId"]),
        gap=stored.get("gap"),
        generation=RecordNumber(int(stored["generation"])),
    )
