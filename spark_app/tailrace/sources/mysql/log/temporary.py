"""The temporary tables of sessions, as far as the log shows: a row change of one as text concerns no captured table.

Asked by the stream. Forgetting is always safe (the statement then stops tables), so everything is forgotten that is not
certain: with the file in which a table was made (a server that starts again restarts the numbers of its sessions), and
with any statement on tables that is not understood.
"""

from collections.abc import Collection

from sqlglot import exp

from tailrace.sources.mysql.log.events import Query
from tailrace.sources.mysql.log.statements import Name, bare, folded, name_in, parsed_surely


class TemporaryTables:
    def __init__(self) -> None:
        self._of: dict[int, set[Name]] = {}
        """The tables by the session's number."""

    def of(self, query: Query, captured: Collection[Name]) -> Collection[Name]:
        """Those that the statement can mean. None of the name of a captured table: the session may have dropped it
        without a word in the log."""
        if not query.of_session:
            return ()
        taken = set(map(folded, captured))
        return [name for name in self._of.get(query.session, ()) if folded(name) not in taken]

    def forget(self) -> None:
        self._of.clear()

    def saw(self, query: Query) -> None:
        """After the statement was looked at."""
        text = bare(query.text)
        if text[:6].upper().startswith(("CREATE", "DROP", "ALTER", "RENAME", "/")):
            self._follow(query.session, parsed_surely(text), query.schema)

    def _follow(self, session: int, parsed: exp.Expr | None, schema: str) -> None:
        if isinstance(parsed, exp.Create) and parsed.find(exp.TemporaryProperty):
            made = parsed.this.find(exp.Table)
            if made is not None:
                self._of.setdefault(session, set()).add(name_in(made, schema))
        elif isinstance(parsed, exp.Drop):
            for gone in parsed.find_all(exp.Table):
                self._of.get(session, set()).discard(name_in(gone, schema))
        else:
            self._of.pop(session, None)
