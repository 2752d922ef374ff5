"""Puts the stream's messages into transactions: the part of capture between the connection and the decoder.

    idle --Begin--> in a transaction --rows--> … --Commit--> idle          (whole transactions, in commit order)
    idle --Stream Start--> in a stream --rows, with xids--> --Stream Stop--> idle      (pieces, undecided)
    idle --Stream Commit--> replayed as a transaction;  --Stream Abort--> forgotten

An illegal message in a state is a `Stop`. Rows end up in a `MessageBlock`; when it is full, or a record is due,
`Blocks` takes it. Memory stays bounded: finished transactions leave first, then the open one goes to segments piece by
piece.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Protocol

from tailrace.changelog.records.terms import Position
from tailrace.sources.log.blocks import BlockBuilder
from tailrace.sources.postgresql.log import fast_path, pgoutput
from tailrace.sources.postgresql.log.blocks import MessageBlock
from tailrace.sources.postgresql.log.spill import Spill, StreamedTransaction

MARKER_PREFIX = "tailrace"
"""Prefix of our own logical messages."""
_OURS = MARKER_PREFIX.encode()


MANY_RELATIONS = 1000
"""Announcements that need no clean-up: a source may make and drop tables, or partitions, for years."""


class Blocks(Protocol):
    """The consumer of the blocks; `decode.Decoding`."""

    def rows(self, block: MessageBlock) -> None:
        """Decode the block's rows; they belong to the record being built."""

    def cut(self, position: Position, rows: bool = True) -> None:
        """Like `tailrace.sources.api.Sink.cut`; a position says all."""


class Mode(Enum):
    IDLE = "idle"
    TRANSACTION = "in a transaction"
    STREAM = "in a stream"


class Relations:
    """Which Relation message is in effect, in the order of the blocks.

    The server counts what it announced per stream: a stream's announcement counts for everybody once it commits, unless
    a newer one was made since. `regular` holds announcements outside undecided streams, with their arrival number.
    """

    def __init__(self) -> None:
        self._effective: dict[int, bytes] = {}
        self._regular: dict[int, tuple[int, bytes]] = {}
        self._arrivals = 0
        self._many = MANY_RELATIONS
        """Announcements kept before the next clean-up."""

    def arrival(self) -> int:
        self._arrivals += 1
        return self._arrivals

    def announce(self, message: bytes, block: MessageBlock) -> None:
        """Outside of streams."""
        relation_id = _relation_id(message)
        self._regular[relation_id] = (self.arrival(), message)
        self._apply(relation_id, message, block)

    def replay(self, message: bytes, arrival: int, replayed: dict[int, tuple[int, bytes]], block: MessageBlock) -> None:
        """Replays a message of a stream that has committed; `replayed` collects them for `end_replay`."""
        relation_id = _relation_id(message)
        replayed[relation_id] = (arrival, message)
        self._apply(relation_id, message, block)

    def end_replay(self, replayed: dict[int, tuple[int, bytes]], block: MessageBlock) -> None:
        for relation_id, (arrival, message) in replayed.items():
            regular = self._regular.get(relation_id)
            if regular is None or regular[0] <= arrival:
                self._regular[relation_id] = (arrival, message)
            elif self._effective.get(relation_id) != regular[1]:
                self._apply(relation_id, regular[1], block)

    @property
    def crowded(self) -> bool:
        """It is time to `forget`: there are many, twice as many as there were left the last time."""
        return len(self._regular) > self._many

    def forget(self, oldest: int | None) -> None:
        """Clean up: only what is newer than some announcement of an undecided stream can still win over it. `oldest`:
        the first of these; None: there is none."""
        kept = {i: (at, m) for i, (at, m) in self._regular.items() if oldest is not None and at > oldest}
        self._regular, self._many = kept, MANY_RELATIONS + 2 * len(kept)
        self._effective = {i: m for i, m in self._effective.items() if i in kept}

    def __len__(self) -> int:
        return len(self._regular)

    def _apply(self, relation_id: int, message: bytes, block: MessageBlock) -> None:
        """Even if it was in effect already: a partition that was attached again is described again, and what goes to
        it follows."""
        self._effective[relation_id] = message
        block.add(message)


def _relation_id(message: bytes) -> int:
    return int.from_bytes(message[1:5], "big")


def _between_relations(batch: list[bytes]) -> Iterator[list[bytes] | bytes]:
    """The batch in order: Relation messages one by one, what stands between them as lists."""
    start = 0
    for at in [at for at, message in enumerate(batch) if message[0] == pgoutput.RELATION]:
        yield batch[start:at]
        yield batch[at]
        start = at + 1
    yield batch[start:] if start else batch


class Assembler:
    """Feed it the payloads of XLogData messages in order."""

    def __init__(self, sink: Blocks, spill: Spill, extend_xid: Callable[[int], int], block_limit: int) -> None:
        self._spill = spill
        self._extend_xid = extend_xid
        self._relations = Relations()
        self._mode = Mode.IDLE
        self.builder = BlockBuilder(MessageBlock(), block_limit, sink.rows, lambda rows: sink.cut(self.position, rows))
        self._streamed: StreamedTransaction | None = None
        """The transaction of the stream that is open now."""
        self.position = Position(0)
        """Behind the last finished transaction; 0: none yet."""
        self.markers: list[bytes] = []
        """Contents of our own transactional messages whose transaction is finished; the reader takes them away."""
        self._open_markers: list[bytes] = []

    def feed_many(self, messages: list[bytes]) -> None:
        """Does the work of `feed` for each, at a lower cost."""
        at = 0
        for run in fast_path.runs(messages):
            self._feed_each(messages[at : run.first])
            if not self._take(run):
                self._feed_each(messages[run.first : run.behind])
            at = run.behind
        self._feed_each(messages[at:])

    def _feed_each(self, messages: list[bytes]) -> None:
        for message in messages:
            self.feed(message)

    def _take(self, run: fast_path.Run) -> bool:
        """Whole transactions, if none is open, and the block has room for their rows."""
        builder, before = self.builder, len(self.builder.block.items)
        if self._mode is not Mode.IDLE or builder.divided or self._open_markers or self._relations.crowded:
            return False
        if not builder.block.extend(run.rows, builder.limit):
            return False
        builder.block.marks += run.marks(before, self._extend_xid)
        builder.close()
        self.position = max(self.position, Position(run.end_lsn))
        return True

    def feed(self, message: bytes) -> None:
        kind = message[0]
        if kind in pgoutput.ROWS:
            if self._mode is Mode.TRANSACTION:
                self.builder.add(message)
            elif self._streamed is not None:
                self._streamed.add(message, len(message))
            else:
                raise self._illegal(kind)
        else:
            self._other(kind, message)

    def _other(self, kind: int, message: bytes) -> None:
        match kind:
            case pgoutput.BEGIN:
                self._expect(Mode.IDLE, kind)
                begin = pgoutput.begin(message)
                self._begin(begin.xid, begin.commit_ts)
            case pgoutput.COMMIT:
                self._expect(Mode.TRANSACTION, kind)
                self._finish(Position(pgoutput.commit(message).end_lsn))
            case pgoutput.STREAM_START:
                self._expect(Mode.IDLE, kind)
                self._mode = Mode.STREAM
                self._streamed = self._spill.transaction(pgoutput.stream_start(message))
            case pgoutput.STREAM_STOP:
                self._expect(Mode.STREAM, kind)
                self._mode, self._streamed = Mode.IDLE, None
            case pgoutput.STREAM_ABORT:
                self._expect(Mode.IDLE, kind)
                self._spill.abort(*pgoutput.stream_abort(message))
            case pgoutput.STREAM_COMMIT:
                self._expect(Mode.IDLE, kind)
                self._replay(pgoutput.stream_commit(message))
            case _:
                self._detail(kind, message)

    def _detail(self, kind: int, message: bytes) -> None:
        """Handles a message that can stand inside a transaction or a stream."""
        match kind:
            case pgoutput.RELATION | pgoutput.TRUNCATE if self._streamed is not None:
                if kind == pgoutput.RELATION:
                    self._streamed.relation_arrivals.append(self._relations.arrival())
                self._streamed.add(message, len(message))
            case pgoutput.RELATION:
                self._relations.announce(message, self.builder.block)
            case pgoutput.TRUNCATE:
                self._expect(Mode.TRANSACTION, kind)
                self.builder.add(message)
            case pgoutput.MESSAGE if self._mode is not Mode.STREAM:  # ours are never in a stream
                self._logical(pgoutput.logical_message(message))
            case pgoutput.MESSAGE | pgoutput.TYPE | pgoutput.ORIGIN:
                pass  # names of types come from the catalog; where a change was first made does not matter
            case _:
                raise pgoutput.unknown(kind)

    def _logical(self, message: pgoutput.LogicalMessage) -> None:
        if not message.transactional:
            # Sent as soon as it is decoded: every commit before it has been sent.
            if self._mode is Mode.IDLE:
                self.observe(Position(message.lsn))
        elif message.prefix == _OURS:
            self._open_markers.append(message.content)

    def observe(self, position: Position) -> None:
        """The server says it has sent every commit before `position`; only to be called when idle."""
        if self._mode is Mode.IDLE:
            self.position = max(self.position, position)

    def _replay(self, commit: pgoutput.Commit) -> None:
        assert commit.xid is not None
        streamed = self._spill.take(commit.xid)
        arrivals = iter(streamed.relation_arrivals)
        replayed: dict[int, tuple[int, bytes]] = {}
        self._begin(commit.xid, commit.commit_ts)
        for batch in streamed.replay():
            for piece in _between_relations(batch):
                if isinstance(piece, bytes):
                    self._relations.replay(piece, next(arrivals), replayed, self.builder.block)
                elif not self.builder.block.extend(piece, self.builder.limit):
                    for message in piece:
                        self.builder.add(message)
        self._relations.end_replay(replayed, self.builder.block)
        streamed.discard()
        self._finish(Position(commit.end_lsn))

    def _begin(self, xid: int, commit_ts: int) -> None:
        self._mode = Mode.TRANSACTION
        self.builder.begin(self._extend_xid(xid), commit_ts)

    def _finish(self, end_lsn: Position) -> None:
        self._mode = Mode.IDLE
        if self._relations.crowded:
            self._relations.forget(self._spill.oldest_arrival)
        self.position = max(self.position, end_lsn)
        self.builder.close()
        self.markers += self._open_markers
        self._open_markers.clear()
        if self.builder.divided or self.builder.full:
            self.builder.cut()

    def _expect(self, mode: Mode, kind: int) -> None:
        if self._mode is not mode:
            raise self._illegal(kind)

    def _illegal(self, kind: int) -> pgoutput.UnknownMessage:
        return pgoutput.UnknownMessage(f"a message {chr(kind)!r} while {self._mode.value}")
