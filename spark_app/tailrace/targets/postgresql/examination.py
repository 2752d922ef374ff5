"""Obstacles to copies in a PostgreSQL database, found before anything is made: rights, tables in the way, and what
people have added to copies. Called by `PgTarget`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tailrace.changelog.records.terms import TableSchema
from tailrace.targets.api import Obstacle
from tailrace.targets.postgresql.session import PgTargetSession
from tailrace.targets.sql import state
from tailrace.targets.sql.obstacles import Owner, in_the_way, limits, not_ours, owners
from tailrace.targets.sql.session import Place, table

KINDS = {"v": "VIEW", "m": "MATERIALIZED VIEW", "S": "SEQUENCE", "f": "FOREIGN TABLE", "i": "INDEX", "c": "TYPE"}
"""Objects that share their names with tables."""
SETTABLE_FROM = 150000
"""The first version with GRANT SET ON PARAMETER."""
RIGHTS = "SELECT, INSERT, UPDATE, DELETE"
"""Rights on copies and on Tailrace's own tables, which their owner has unless somebody took them away."""
_LACKS = f"EXISTS (SELECT FROM unnest(string_to_array('{RIGHTS}', ', ')) r WHERE NOT has_table_privilege(c.oid, r))"
_THERE = f"""
SELECT p.place_schema, p.place_name, c.oid::int8, c.relkind::text, pg_has_role(c.relowner, 'USAGE'),
       {_LACKS}
  FROM unnest(%s::text[], %s::text[]) AS p (place_schema, place_name)
  JOIN pg_namespace n ON n.nspname = p.place_schema
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.place_name
"""
_SCHEMAS = """
SELECT nspname, has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE')
  FROM pg_namespace WHERE nspname = ANY (%s)
"""
_STATE = """
SELECT pg_get_userbyid(nspowner), pg_has_role(nspowner, 'USAGE') FROM pg_namespace
 WHERE nspname = %s AND NOT (has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE'))
"""
_STATE_OWNERS = """
SELECT relname, pg_get_userbyid(relowner) FROM pg_class
 WHERE relnamespace = to_regnamespace(%s) AND relname = ANY (%s) AND NOT pg_has_role(relowner, 'USAGE') ORDER BY 1
"""
_STATE_TABLES = f"""
SELECT 1 FROM pg_class c WHERE relnamespace = to_regnamespace(%s) AND relname = ANY (%s) AND {_LACKS} LIMIT 1
"""
_CONSTRAINTS = """
SELECT conrelid::int8, CASE contype WHEN 'f' THEN 'acts' ELSE 'limits' END, 'constraint ' || quote_ident(conname),
       'ALTER TABLE ' || conrelid::regclass::text || ' DROP CONSTRAINT ' || quote_ident(conname)
  FROM pg_constraint WHERE conrelid = ANY (%s::oid[]) AND contype IN ('f', 'u', 'c', 'x')
UNION ALL
SELECT indrelid::int8, 'limits', 'unique index ' || quote_ident(relname), 'DROP INDEX ' || indexrelid::regclass::text
  FROM pg_index JOIN pg_class ON oid = indexrelid
 WHERE indrelid = ANY (%s::oid[]) AND indisunique AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)
UNION ALL
SELECT tgrelid::int8, CASE WHEN tgenabled IN ('A', 'R') THEN 'always' ELSE 'acts' END,
       'trigger ' || quote_ident(tgname), 'DROP TRIGGER ' || quote_ident(tgname) || ' ON ' || tgrelid::regclass::text
  FROM pg_trigger WHERE tgrelid = ANY (%s::oid[]) AND NOT tgisinternal AND tgenabled <> 'D'
 ORDER BY 1, 2, 3
"""


@dataclass(frozen=True)
class TargetExamination:
    """One look at the target, over one session."""

    session: PgTargetSession
    role: str
    log_id: str | None
    """The change log's; None: there is none yet."""
    adopts: bool
    """Tables that are there are taken over, if they fit."""

    def obstacles(self, places: Sequence[tuple[TableSchema, Place]]) -> Iterator[Obstacle]:
        """`places`: where the copies of these tables are, or are to be made."""
        closed = self._closed_state()
        yield from [] if closed is None else [closed]
        yield from self._closed({place[0] for _, place in places})
        if closed is not None:
            return  # which of the tables are copies cannot be told
        own = owners(self.session)
        names = [[place[part] for _, place in places] for part in (0, 1)]
        there = {(row[0], row[1]): row[2:] for row in self.session.rows(_THERE, *names)}
        copies: dict[int, str] = {}
        for schema, place in places:
            if place in there:
                oid, kind, may, lacks = there[place]
                told = int(oid), str(kind), bool(may), bool(lacks)
                found = list(self._there(schema, place, own.get(place), told))
                yield from found
                if not found:
                    copies[int(oid)] = schema.name
        yield from self._added(copies)

    def _closed_state(self) -> Obstacle | None:
        """Tells of rights that this role lacks in Tailrace's own schema."""
        quote, own = self.session.quote, list(state.tables(self.session))
        closed, role = self.session.rows(_STATE, state.SCHEMA), quote(self.role)
        if closed and not closed[0][1]:
            owner = str(closed[0][0])
            grant = f"GRANT {quote(owner)} TO {role}"
            message = f"schema {state.SCHEMA} of the target belongs to {owner}, whose rights {self.role} does not have"
            return Obstacle("fail", message, f"Run `{grant}`, or connect as {owner} (target.username).")
        if foreign := self.session.rows(_STATE_OWNERS, state.SCHEMA, own):
            tables = [f"{state.SCHEMA}.{name}" for name, _ in foreign]
            roles = sorted({str(owner) for _, owner in foreign})
            message = f"{', '.join(tables)} of the target: the owner is {' or '.join(roles)}"
            message += f", whose rights {self.role} does not have"
            changes = "; ".join(f"ALTER TABLE {name} OWNER TO {role}" for name in tables)
            grant = f"GRANT {', '.join(map(quote, roles))} TO {role}"
            return Obstacle("fail", message, f"Run `{changes}`, or `{grant}`.")
        if closed or self.session.rows(_STATE_TABLES, state.SCHEMA, own):
            message = f"{self.role} lacks rights on schema {state.SCHEMA} of the target, or on tables in it"
            grants = f"GRANT USAGE, CREATE ON SCHEMA {state.SCHEMA} TO {role}"
            grants += f"; GRANT {RIGHTS} ON ALL TABLES IN SCHEMA {state.SCHEMA} TO {role}"
            return Obstacle("fail", message, f"Run `{grants}`.")
        return None

    def _closed(self, wanted: set[str]) -> Iterator[Obstacle]:
        found = {str(name): bool(may) for name, may in self.session.rows(_SCHEMAS, sorted(wanted))}
        role = self.session.quote(self.role)
        for name in sorted(name for name, may in found.items() if not may):
            grant = f"GRANT USAGE, CREATE ON SCHEMA {self.session.quote(name)} TO {role}"
            message = f"{self.role} may not create tables in schema {name}, which already exists"
            yield Obstacle("fail", message, f"Run `{grant}`.")
        ((database, may),) = self.session.rows(
            "SELECT current_database(), has_database_privilege(current_database(), 'CREATE')"
        )
        if not may and wanted - found.keys():
            names = ", ".join(sorted(wanted - found.keys()))
            grant = f"GRANT CREATE ON DATABASE {self.session.quote(database)} TO {role}"
            yield Obstacle("fail", f"{self.role} may not create schema {names} of the target", f"Run `{grant}`.")

    def _there(
        self, schema: TableSchema, place: Place, owner: Owner | None, found: tuple[int, str, bool, bool]
    ) -> Iterator[Obstacle]:
        (oid, kind, may, lacks) = found
        if owner is None and kind in KINDS:
            yield not_ours(self.session, schema, place, KINDS[kind])
        elif owner != (self.log_id, oid):
            yield from in_the_way(self.session, schema, place, owner, self.log_id, adopts=self.adopts)
        elif not may:
            change = f"ALTER TABLE {table(self.session, place)} OWNER TO {self.session.quote(self.role)}"
            message = f"{self.role} does not own its copy {'.'.join(place)}"
            yield Obstacle("fail", message, f"Run `{change}`.", schema.name)
        elif lacks:
            grant = f"GRANT {RIGHTS} ON {table(self.session, place)} TO {self.session.quote(self.role)}"
            message = f"{self.role} lacks rights on its copy {'.'.join(place)}"
            yield Obstacle("fail", message, f"Run `{grant}`.", schema.name)

    def _added(self, copies: dict[int, str]) -> Iterator[Obstacle]:
        """Constraints and triggers that copies are made without."""
        oids = list(copies)
        found: dict[tuple[int, str], list[tuple[str, str]]] = {}
        for oid, effect, what, drop in self.session.rows(_CONSTRAINTS, oids, oids, oids):
            if effect != "acts" or not self.session.replica:
                found.setdefault((int(oid), str(effect)), []).append((str(what), str(drop)))
        for (oid, effect), all_of_them in found.items():
            what = ", ".join(what for what, _ in all_of_them)
            drops = "; ".join(drop for _, drop in all_of_them)
            yield Obstacle("warn", *self._told(effect, what, drops), copies[oid])

    def _told(self, effect: str, what: str, drops: str) -> tuple[str, str]:
        if effect == "limits":
            return limits(what, drops)
        if effect == "always":
            fix = f"Run `{drops}`, or ignore this if it is meant to be so."
            return f"the copy has {what}, which runs for what Tailrace writes as well", fix
        allow = f"GRANT SET ON PARAMETER session_replication_role TO {self.session.quote(self.role)}"
        ((version,),) = self.session.rows("SELECT current_setting('server_version_num')::int")
        fix = f"Run `{allow}`, or `{drops}`." if version >= SETTABLE_FROM else f"Run `{drops}`, or use a superuser."
        return f"the copy has {what}, which {self.role} may not switch off for its sessions", fix
