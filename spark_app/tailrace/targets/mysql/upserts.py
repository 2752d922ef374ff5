"""Rows written over those of the same key, by `INSERT ... ON DUPLICATE KEY UPDATE`. Called by `sql.batch`.

The statement changes whichever row has the same values under any unique index. So it is used only while the copy's key
is the only one and tells apart what the source's key does. That is looked up in each transaction, behind a lock on the
table's definition: people add indexes at any time.
"""

import re
from dataclasses import dataclass, field

import pyarrow as pa

from tailrace.changelog.records.terms import TableSchema
from tailrace.targets.mysql import fit
from tailrace.targets.mysql.literals import unlabelled_values
from tailrace.targets.mysql.loading import Loading
from tailrace.targets.sql.session import Definitions, TargetSession

NEW = "_tailrace_new"
"""The alias of a statement's row."""
UNIQUE = ("  PRIMARY KEY", "  UNIQUE KEY")
"""The beginning of a definition's lines about indexes that allow a value once."""
MOST_KNOWN = 1000
"""Definitions whose keys are remembered."""
_PRIMARY = re.compile(r"  PRIMARY KEY \((`(?:[^`]|``)+`(?:,`(?:[^`]|``)+`)*)\)(?: USING BTREE)?,?")
"""The whole values of columns, and not their beginnings."""
_NAME = re.compile(r"`(?:[^`]|``)+`")
_COUNTER = re.compile(r" AUTO_INCREMENT=\d+")


@dataclass(frozen=True)
class MysqlUpserts:
    """See `targets.sql.session.Upserts`."""

    session: TargetSession
    loading: Loading
    named: bool
    """The server can give a statement's row a name (MySQL), and warns of the other way."""
    _told_apart: dict[tuple[str, ...], bool] = field(default_factory=dict)
    """True if a table's key is of the types that it has in a new copy; by its definition and these types."""

    def fit(self, table: str, schema: TableSchema, rows: pa.Table) -> bool:
        if unlabelled_values(rows, [self.session.type_of(schema, column) for column in schema.columns]):
            return False  # these are loaded by INSERT IGNORE, which would hide other faults
        # As a change of rows does, it keeps the definition as it is until the transaction's end.
        self.session.rows(f"SELECT 1 FROM {table} WHERE FALSE FOR UPDATE")
        ((_, text, *_),) = self.session.rows(f"SHOW CREATE TABLE {table}")
        unique = [line for line in str(text).splitlines() if line.startswith(UNIQUE)]
        key = _PRIMARY.fullmatch(unique[0]) if len(unique) == 1 else None
        kinds = {c.name: self.session.type_of(schema, c) for c in schema.key_columns}
        names = {self.session.quote(name) for name in kinds}
        return key is not None and set(_NAME.findall(key[1])) == names and self._tells_apart(table, text, kinds)

    def _tells_apart(self, table: str, text: str, kinds: dict[str, str]) -> bool:
        """Returns False where two keys of the source might be one for the copy."""
        known = (_COUNTER.sub("", text), *kinds.values())
        if known not in self._told_apart:
            if len(self._told_apart) == MOST_KNOWN:
                self._told_apart.clear()
            self._told_apart[known] = fit.tells_apart(self.session, table, kinds)
        return self._told_apart[known]

    def load(self, table: str, columns: Definitions, rows: pa.Table) -> None:
        value, alias = (f"{NEW}.%s", f" AS {NEW}") if self.named else ("VALUES(%s)", "")
        # The key as well: it may have been written otherwise, in letters that are the same for its collation.
        assigned = ", ".join(f"{name} = {value.replace('%s', name)}" for name, _ in columns)
        self.loading.load(table, columns, [rows], f"{alias} ON DUPLICATE KEY UPDATE {assigned}")
