"""The replay point of a chunk: from which sequence the log must be applied again over the chunk's rows.

The rule is in docs/dev/design.md#the-chunk-rule.

Capture calls all of it when it registers a chunk, with what the chunk's snapshot contains and the transactions that the
journal still holds: the greater of `replay_point` and what follows `contained_through` counts. Pure.
"""

from collections.abc import Iterator
from itertools import chain, pairwise

import numpy as np

from tailrace.changelog.records.terms import RecordNumber, Seq, SeqRanges
from tailrace.changelog.state import TableLog, TransactionLog
from tailrace.sources.visibility import Visibility


def replay_point(snapshot: Visibility, transactions: TransactionLog, next_seq: Seq) -> Seq:
    """First sequence of the first logged transaction that the snapshot does not see; none: the next sequence.

    `transactions` is all that the journal holds, in log order, not only what came since a restart. Later transactions
    that the snapshot does see are replayed as well: that is right (a key's visible changes are a prefix of its
    history), only slower.
    """
    for ids, first_seqs in transactions.pieces():
        missing = ~snapshot.sees(ids)
        if missing.any():
            return Seq(int(first_seqs[int(missing.argmax())]))
    return next_seq


def contained_after(snapshot: Visibility, transactions: TransactionLog, point: Seq, last_seq: Seq) -> SeqRanges:
    """Sequences from the replay point on of transactions that the snapshot does see: rows without a key are counted, so
    none of them may be applied again. Not many: a transaction becomes visible soon after its place in the log.
    `last_seq`: of the journal, which holds all that the snapshot sees."""
    ranges: list[tuple[Seq, Seq]] = []
    for first, last in _contained(snapshot, transactions, point, last_seq):
        if ranges and ranges[-1][1] == first - 1:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((max(first, point), last))
    return tuple(ranges)


def _contained(
    snapshot: Visibility, transactions: TransactionLog, point: Seq, last_seq: Seq
) -> Iterator[tuple[Seq, Seq]]:
    """First and last sequence of each transaction that the snapshot sees and that does not end before the point."""
    for piece, later in pairwise(chain(transactions.pieces(), (None,))):
        assert piece is not None
        ids, firsts = piece
        lasts = np.append(firsts[1:], last_seq + 1 if later is None else later[1][0]) - 1
        chosen = (lasts >= point) & (lasts >= firsts) & snapshot.sees(ids)
        yield from zip(firsts[chosen].tolist(), lasts[chosen].tolist(), strict=True)


def contained_through(table: TableLog, version: int, planned: RecordNumber) -> Seq:
    """The last sequence up to which a chunk sees every change of its table, because it saw a change of the schema.

    An ALTER waits for the table's writers and a chunk for the ALTER; so a chunk that has a version's columns, or whose
    snapshot was planned after that version was recorded, sees what came before the version. Such rows must not be
    replayed: the ALTER changed them without row events (`ADD COLUMN … DEFAULT`), and the chunk has them as they became.
    So it is with rows that foreign keys have reached: the chunk is past the edge that came with the event.
    """
    versions = [s.after_seq for s in table.schemas if s.record < planned]
    forms = {s.table.version: {(c.id, c.name) for c in s.table.columns} for s in table.schemas}
    own = next((s.after_seq for s in table.schemas if forms[s.table.version] == forms.get(version)), Seq(0))
    return max([own, table.cascaded_seq, *versions])
