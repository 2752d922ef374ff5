"""A simulated source table: transactions whose commit record is in the log some time before others can see them."""

from dataclasses import dataclass, field

from tailrace.batch.rule import UNCHANGED, Op, Values
from tailrace.sources.postgresql.visibility import PgSnapshot

State = dict[int, Values]
"""Key to (x, t, u): `x` is in every log row, `t` and `u` only where they were set (two TOAST columns)."""
LogRow = tuple[Op, int | None, Values]


@dataclass(eq=False)
class Transaction:
    xid: int
    slot: int
    writes: dict[int, Values | None] = field(default_factory=dict)
    rows: list[LogRow] = field(default_factory=list)
    truncates: bool = False
    logged: bool = False

    def onto(self, state: State) -> State:
        after = {} if self.truncates else dict(state)
        for key, values in self.writes.items():
            after.pop(key, None)
            if values is not None:
                after[key] = values
        return after


class Source:
    def __init__(self, rows: State, keys: int) -> None:
        self.visible = dict(rows)
        self.keys = keys
        self.log: list[Transaction] = []
        self.active: dict[int, Transaction] = {}
        self.sessions: dict[int, Transaction] = {}
        self.locks: dict[int, int] = {}
        self.truncating: int | None = None
        self.readers: set[object] = set()
        """Chunks that hold the table lock which any SELECT takes."""
        self.next_xid = 101
        self.completed = 100
        self.value = 0

    def snapshot(self) -> PgSnapshot:
        xmax = self.completed + 1
        running = frozenset(xid for xid in self.active if xid < xmax)
        return PgSnapshot(min(running, default=xmax), xmax, running)

    def logged_state(self, start: State, logged: int) -> State:
        """The state in log order: `start`, then the transactions of the log's first `logged`."""
        for transaction in self.log[:logged]:
            start = transaction.onto(start)
        return start

    def _row(self, transaction: Transaction | None, key: int) -> Values | None:
        if transaction is not None and key in transaction.writes:
            return transaction.writes[key]
        return None if transaction is not None and transaction.truncates else self.visible.get(key)

    def _free(self, transaction: Transaction | None, key: int) -> bool:
        mine = transaction.xid if transaction else None
        return self.locks.get(key, mine) == mine

    def _begin(self, slot: int) -> Transaction:
        if slot not in self.sessions:
            self.sessions[slot] = self.active[self.next_xid] = Transaction(self.next_xid, slot)
            self.next_xid += 1
        return self.sessions[slot]

    def _fresh(self, old: Values | None, columns: str) -> tuple[Values, Values]:
        """The new row and what the log carries of it when `columns` are set."""
        self.value += 1
        fresh: Values = (f"x{self.value}", f"t{self.value}", f"u{self.value}")
        if old is None:
            return fresh, fresh
        carried = tuple(new if name in columns else UNCHANGED for name, new in zip("xtu", fresh, strict=True))
        row = tuple(o if new is UNCHANGED else new for new, o in zip(carried, old, strict=True))
        return row, carried

    def write(self, slot: int, kind: str, key: int, other: int, columns: str) -> None:
        """One statement of a session: `put`, `delete`, `move` or `truncate`; nothing when it would wait or fail."""
        transaction = self.sessions.get(slot)
        blocked = self.truncating is not None and (transaction is None or self.truncating != transaction.xid)
        if blocked or (transaction is not None and transaction.logged):
            return
        if kind == "truncate":
            self._truncate(slot, transaction)
        elif self._free(transaction, key):
            old = self._row(transaction, key)
            if kind == "put":
                self._put(slot, key, old, columns)
            elif kind == "delete" and old is not None:
                self._note(slot, key, None, ("D", key, ()))
            elif kind == "move" and old is not None:
                self._move(slot, transaction, key, other, columns)

    def _note(self, slot: int, key: int, values: Values | None, *rows: LogRow) -> None:
        transaction = self._begin(slot)
        self.locks[key] = transaction.xid
        transaction.writes[key] = values
        transaction.rows.extend(rows)

    def _put(self, slot: int, key: int, old: Values | None, columns: str) -> None:
        row, carried = self._fresh(old, columns)
        self._note(slot, key, row, ("I" if old is None else "U", key, carried))

    def _move(self, slot: int, transaction: Transaction | None, key: int, other: int, columns: str) -> None:
        ring = [(other + step) % self.keys for step in range(self.keys)]
        places = (k for k in ring if k != key and self._free(transaction, k) and self._row(transaction, k) is None)
        place = next(places, None)
        if place is not None:
            row, carried = self._fresh(self._row(transaction, key), columns)
            self._note(slot, key, None, ("D", key, ()))
            self._note(slot, place, row, ("M", place, carried))

    def _truncate(self, slot: int, transaction: Transaction | None) -> None:
        mine = transaction.xid if transaction else None
        waits = self.readers or any(xid != mine for xid in self.locks.values())
        if not waits and not (transaction and transaction.rows):
            transaction = self._begin(slot)
            transaction.truncates = True
            self.truncating = transaction.xid
            transaction.rows.append(("T", None, ()))

    def _pick(self, number: int, logged: bool) -> Transaction | None:
        found = [t for t in self.active.values() if t.logged == logged]
        return found[number % len(found)] if found else None

    def commit(self, number: int) -> None:
        """The commit record is in the log; nobody sees the rows yet."""
        transaction = self._pick(number, logged=False)
        if transaction is not None:
            transaction.logged = True
            self.log.append(transaction)

    def show(self, number: int) -> None:
        """The rows of a logged transaction become visible, its locks are free."""
        transaction = self._pick(number, logged=True)
        if transaction is not None:
            self.visible = transaction.onto(self.visible)
            self._end(transaction)

    def abort(self, number: int) -> None:
        transaction = self._pick(number, logged=False)
        if transaction is not None:
            self._end(transaction)

    def _end(self, transaction: Transaction) -> None:
        del self.active[transaction.xid], self.sessions[transaction.slot]
        self.completed = max(self.completed, transaction.xid)
        self.locks = {key: xid for key, xid in self.locks.items() if xid != transaction.xid}
        if self.truncating == transaction.xid:
            self.truncating = None
