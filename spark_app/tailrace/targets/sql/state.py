"""Records of the copies in a database: Tailrace's own tables of the schema `_tailrace`, in the transaction of the rows.

    logs     a row per change log: the record that all tables of its group hold
    tables   a row per copy: its place, its owner, its applied state, the schema version that its columns have
    chunks   a row per chunk that is staged
    keys_of_chunks  its keys, as the pieces of an Arrow stream
    handovers  a row per change log whose copies are copies no more (`tailrace cutover`)
    handed_over  a row per table that programs have of it; who deletes it lets the table be taken over again
    loading, loads  see `sql.loaded`

A row is changed by comparison with what was read before: a driver that has been overtaken changes nothing.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tailrace.batch.applied import AppliedState
from tailrace.changelog.records.terms import RecordNumber, TableSchema
from tailrace.errors import Retry
from tailrace.targets.sql.session import Place, TargetSession
from tailrace.targets.stored_state import applied_state, document

SCHEMA = "_tailrace"
TABLES = {
    "logs": ("log_id {name} NOT NULL, record bigint NOT NULL", "log_id"),
    "tables": (
        "place_schema {name} NOT NULL, place_name {name} NOT NULL, hidden boolean NOT NULL,"
        " log_id {name} NOT NULL, table_id bigint NOT NULL, relation bigint NOT NULL, member boolean NOT NULL,"
        " record bigint NOT NULL, state {text} NOT NULL, columns {text} NOT NULL",
        "place_schema, place_name, hidden",
    ),
    "chunks": (
        "path {name} NOT NULL, log_id {name} NOT NULL, table_id bigint NOT NULL, row_count bigint NOT NULL",
        "path",
    ),
    "keys_of_chunks": ("path {name} NOT NULL, piece bigint NOT NULL, row_keys {binary} NOT NULL", "path, piece"),
    "handovers": ("log_id {name} NOT NULL, report {text} NOT NULL", "log_id"),
    "handed_over": (
        "place_schema {name} NOT NULL, place_name {name} NOT NULL, log_id {name} NOT NULL",
        "place_schema, place_name, log_id",
    ),
}
"""Columns and key of each."""
LOADS = {
    "loading": (
        "relation bigint NOT NULL, form {name} NOT NULL, snapshot_id {text} NOT NULL, is_open boolean NOT NULL",
        "relation",
    ),
    "loads": (
        "path {name} NOT NULL, relation bigint NOT NULL, transaction_id {name} NOT NULL, row_count bigint NOT NULL,"
        " applied boolean NOT NULL",
        "path",
    ),
}
"""Further ones, where copies can have their keys later."""


@dataclass(frozen=True)
class StoredCopy:
    """A copy as its row says."""

    place: Place
    """The place where readers find the table."""
    hidden: bool
    """It is a new copy beside the table that readers see."""
    relation: int
    """`TargetSession.relation` of the table that Tailrace made."""
    member: bool
    """It belongs to the group of its change log."""
    stored: str
    """The state's text, by which a change is compared."""
    applied: AppliedState
    schema: TableSchema
    """The schema version that its columns have."""

    @property
    def where(self) -> Place:
        """The place of the table itself."""
        return (SCHEMA, copy_name(self.applied)) if self.hidden else self.place


def copy_name(applied: AppliedState) -> str:
    """The name of a copy that readers do not see."""
    return f"copy_{applied.log_id[:8]}_{applied.table_id}_{applied.generation}"


def tables(session: TargetSession) -> dict[str, tuple[str, str]]:
    """Tailrace's own tables in this database: columns and key of each."""
    return TABLES if session.late_keys is None else {**TABLES, **LOADS}


def prepare(session: TargetSession) -> None:
    """Create what is missing."""
    if is_prepared(session):
        return
    with session.transaction():
        session.alone()
        session.create_schema(SCHEMA)
        for name, (columns, key) in tables(session).items():
            defined = columns.format(name=session.name, text=session.text, binary=session.binary)
            defined += f", PRIMARY KEY ({key})" if session.enforces_keys else ""
            session.run(f"CREATE TABLE IF NOT EXISTS {SCHEMA}.{name} ({defined})")


def is_prepared(session: TargetSession) -> bool:
    """True if Tailrace has tables of its own there."""
    return all(session.relation((SCHEMA, name)) is not None for name in tables(session))


def has_copies(session: TargetSession) -> bool:
    """True if there may be records of copies, of an earlier version as well."""
    return session.relation((SCHEMA, "tables")) is not None


def has_copies_of(session: TargetSession, log_id: str) -> bool:
    """True if the change log has written into this database."""
    statement = f"SELECT 1 FROM {SCHEMA}.tables WHERE log_id = %s LIMIT 1"
    return has_copies(session) and bool(session.rows(statement, log_id))


def text_of(applied: AppliedState) -> str:
    return json.dumps({**document(applied), "holes": sorted(applied.holes)}, separators=(",", ":"))


_COLUMNS = "place_schema, place_name, hidden, relation, member, record, state, columns"


def copies_at(session: TargetSession, place: Place) -> dict[bool, StoredCopy]:
    """The copies of a place: that which readers see (False), and the one beside it (True)."""
    return _whose_table_is_there(session, _records_at(session, place))


def _records_at(session: TargetSession, place: Place) -> list[StoredCopy]:
    """Records of a place; where no key forbids it, several of one copy: an overtaken driver's beside the newer."""
    statement = f"SELECT {_COLUMNS}, log_id FROM {SCHEMA}.tables WHERE place_schema = %s AND place_name = %s"
    return [_copy(session, row) for row in session.rows(statement, *place)]


def _whose_table_is_there(session: TargetSession, records: Iterable[StoredCopy]) -> dict[bool, StoredCopy]:
    """Choose of several records of one copy that of the table which is there: of the latest generation, if several
    are, or if none is. An overtaken driver's table may have come late."""
    found: dict[bool, StoredCopy] = {}
    latest_first = sorted(records, key=lambda copy: copy.applied.generation, reverse=True)
    for hidden in (False, True):
        of_it = [copy for copy in latest_first if copy.hidden == hidden]
        there = (copy for copy in of_it if len(of_it) == 1 or session.relation(copy.where) == copy.relation)
        if of_it:
            found[hidden] = next(there, of_it[0])
    return found


def _copy(session: TargetSession, row: tuple[object, ...]) -> StoredCopy:
    schema, name, hidden, relation, member, record, stored, columns, log_id = row
    document = json.loads(str(stored))
    applied = applied_state(document, document["holes"], f"{schema}.{name}")
    known = max(applied.applied_record, int(str(record)))
    if member:
        known = max(known, record_of(session, str(log_id)))
    return StoredCopy(
        (str(schema), str(name)),
        bool(hidden),
        int(str(relation)),
        bool(member),
        str(stored),
        replace(applied, applied_record=RecordNumber(known)),
        TableSchema.model_validate_json(str(columns)),
    )


def record_of(session: TargetSession, log_id: str) -> RecordNumber:
    """The record that the tables of the log's group hold; 0: it has none yet."""
    found = session.rows(f"SELECT record FROM {SCHEMA}.logs WHERE log_id = %s", log_id)
    return RecordNumber(int(found[0][0]) if found else 0)


def add(session: TargetSession, copy: StoredCopy) -> None:
    values = (*copy.place, copy.hidden, copy.applied.log_id, copy.applied.table_id, copy.relation, copy.member)
    session.run(
        f"INSERT INTO {SCHEMA}.tables (place_schema, place_name, hidden, log_id, table_id, relation, member, record,"
        " state, columns) VALUES (%s, %s, %s, %s, %s, %s, %s, 0, %s, %s)",
        *values,
        copy.stored,
        copy.schema.model_dump_json(),
    )


def remove(session: TargetSession, copy: StoredCopy) -> None:
    """Another record of the place stays: a statement may arrive late."""
    mine = "place_schema = %s AND place_name = %s AND hidden = %s AND relation = %s"
    session.run(f"DELETE FROM {SCHEMA}.tables WHERE {mine}", *copy.place, copy.hidden, copy.relation)
    for name in LOADS if session.late_keys is not None else ():
        session.run(f"DELETE FROM {SCHEMA}.{name} WHERE relation = %s", copy.relation)


def put(session: TargetSession, before: StoredCopy, after: StoredCopy) -> None:
    """Change a copy's row, as it was read. `Retry`: another driver has changed it since."""
    columns = () if after.schema == before.schema else (after.schema.model_dump_json(),)  # long, and rarely another
    changed = session.run_one(
        f"{SCHEMA}.tables",
        f"state = %s, member = %s, record = 0{', columns = %s' if columns else ''}",
        "place_schema = %s AND place_name = %s AND hidden = %s AND relation = %s AND state = %s",
        after.stored,
        after.member,
        *columns,
        *before.place,
        before.hidden,
        before.relation,
        before.stored,
    )
    if not changed:
        raise _overtaken(before)


def check(session: TargetSession, copy: StoredCopy) -> None:
    """`Retry`: another driver has changed the copy's row since it was read."""
    mine = "place_schema = %s AND place_name = %s AND hidden = %s AND relation = %s"
    statement = f"SELECT state FROM {SCHEMA}.tables WHERE {mine}"
    if session.rows(statement, *copy.place, copy.hidden, copy.relation) != [(copy.stored,)]:
        raise _overtaken(copy)


def _overtaken(copy: StoredCopy) -> Retry:
    return Retry(f"another driver has changed the state of {'.'.join(copy.place)} in the target")


def settled_copies(session: TargetSession, place: Place, admit: Callable[[], None]) -> dict[bool, StoredCopy]:
    """Finish what a driver has left that put a new copy in its place and died before it said so, and remove records
    that came late; then `copies_at`."""
    records = _records_at(session, place)
    settled = [session.settle(copy.where, copy.relation, copy.stored) for copy in records]
    if any(settled):
        records = _records_at(session, place)
    found = _whose_table_is_there(session, records)
    if len(found) < len(records):
        admit()  # a driver that is overtaken from here on has not read the newer one's records
        for late in (copy for copy in records if copy is not found[copy.hidden]):
            remove(session, late)
    new = found.get(True)
    if new is None or session.relation(place) != new.relation:
        return found
    session.replace(place, new.where, admit)
    publish(session, new, new.relation)
    return copies_at(session, place)


def publish(session: TargetSession, copy: StoredCopy, relation: int) -> None:
    """The row of a copy that readers see now becomes that of its place."""
    session.run(
        f"DELETE FROM {SCHEMA}.tables"
        " WHERE place_schema = %s AND place_name = %s AND hidden = FALSE AND relation <> %s",
        *copy.place,
        relation,
    )
    for name in LOADS if session.late_keys is not None else ():
        session.run(f"DELETE FROM {SCHEMA}.{name} WHERE relation NOT IN (SELECT relation FROM {SCHEMA}.tables)")
    changed = session.run_one(
        f"{SCHEMA}.tables",
        "hidden = FALSE, relation = %s",
        "place_schema = %s AND place_name = %s AND hidden = TRUE AND relation = %s AND state = %s",
        relation,
        *copy.place,
        copy.relation,
        copy.stored,
    )
    if not changed:
        raise _overtaken(copy)


def leave_group(session: TargetSession, place: Place) -> None:
    """Say of the copy that readers see that it is not level. Called where statements that define tables commit by
    themselves, before a new copy takes its place: that is as it was while it was filled, until its batch has ended."""
    shown = "place_schema = %s AND place_name = %s AND hidden = FALSE AND member = TRUE"
    for (log_id,) in session.rows(f"SELECT log_id FROM {SCHEMA}.tables WHERE {shown}", *place):
        record = record_of(session, str(log_id))
        changed = "member = FALSE, record = GREATEST(record, %s)"
        session.run_one(f"{SCHEMA}.tables", changed, f"{shown} AND log_id = %s", record, *place, log_id)


@dataclass
class Group:
    """The tables of one change log that are level, as this driver knows them."""

    log_id: str
    record: RecordNumber
    members: frozenset[int]

    @classmethod
    def read(cls, session: TargetSession, log_id: str) -> "Group":
        found = session.rows(
            f"SELECT table_id FROM {SCHEMA}.tables WHERE log_id = %s AND member = TRUE AND hidden = FALSE", log_id
        )
        return cls(log_id, record_of(session, log_id), frozenset(int(row[0]) for row in found))

    def move(self, session: TargetSession, record: RecordNumber, tables: frozenset[int]) -> "Group":
        """The group's record after a commit, and its tables: one that leaves keeps what it holds by itself. `Retry`:
        another driver has moved it since."""
        if record < self.record:
            raise Retry("another driver has moved the target's tables")
        self._change(session, self.members - tables, member=False)
        self._change(session, tables - self.members, member=True)
        if self.record == record:
            return Group(self.log_id, record, tables)
        if not self.record:
            there = f"SELECT 1 FROM {SCHEMA}.logs WHERE log_id = %s"
            session.run(
                f"INSERT INTO {SCHEMA}.logs (log_id, record) SELECT %s, 0 FROM (SELECT 1 AS one) o"
                f" WHERE NOT EXISTS ({there})",
                self.log_id,
                self.log_id,
            )
        mine = "log_id = %s AND record = %s"
        if not session.run_one(f"{SCHEMA}.logs", "record = %s", mine, record, self.log_id, self.record):
            raise Retry("another driver has moved the target's tables")
        return Group(self.log_id, record, tables)

    def _change(self, session: TargetSession, tables: Iterable[int], member: bool) -> None:
        own = "" if member else ", record = GREATEST(record, %s)"
        records = () if member else (self.record,)
        for table_id in sorted(tables):
            session.run(
                f"UPDATE {SCHEMA}.tables SET member = %s{own}"
                " WHERE log_id = %s AND table_id = %s AND hidden = FALSE AND member <> %s",
                member,
                *records,
                self.log_id,
                table_id,
                member,
            )
