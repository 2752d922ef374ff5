"""Moves a test server's transaction counter near a wraparound, or into a later epoch, without billions of transactions.

The embedded PostgreSQL comes without `pg_resetwal`, so this does the part that is needed: after a clean shutdown the
next transaction id stands in two places, the control file and the WAL's last checkpoint record, each under a CRC-32C.
"""

import shutil
import struct
from pathlib import Path

from support.postgres import PostgresServer

CONTROL_CHECKPOINT = 32
"""Offsets in global/pg_control, the same in PostgreSQL 14 to 18: the checkpoint's LSN, then its copy."""
CONTROL_COPY = 40
NEXT_XID = 24
"""Offsets in a CheckPoint structure."""
OLDEST_XID = 44
RECORD_HEADER = 24
RECORD_CRC = 20
DATA_HEADER = 2
SEGMENT_BYTES = 16 * 1024 * 1024
PAGE_BYTES = 8192
XACTS_PER_SEGMENT = PAGE_BYTES * 4 * 32
"""Two bits per transaction, 32 pages per pg_xact file."""
OLDEST_BEHIND = 1_000_000
"""How far behind the oldest id is said to be; every row is frozen, so any value below 2^31 is true."""


def move_transaction_counter(server: PostgresServer, epoch: int, xid: int) -> None:
    """The next transaction gets about `epoch` * 2^32 + `xid`. Restarts the server; slots must not exist yet."""
    server.start({"autovacuum": False})
    _freeze_everything(server)
    for _ in range(3):
        server.stop()
        if _rewrite(server.data_dir, epoch << 32 | xid, (xid - OLDEST_BEHIND) % 2**32):
            break
        server.start()  # the record crossed a page; the next shutdown writes another one elsewhere
    _make_status_file(server.data_dir, xid)
    server.start()


def _freeze_everything(server: PostgresServer) -> None:
    """Old ids would seem to lie in the future, and their rows would vanish."""
    server.execute("ALTER DATABASE template0 ALLOW_CONNECTIONS true")
    databases = [row[0] for row in server.execute("SELECT datname FROM pg_database")]
    for name in databases:
        server.execute("VACUUM FREEZE", dbname=name)
    server.execute("ALTER DATABASE template0 ALLOW_CONNECTIONS false")
    server.execute("VACUUM FREEZE pg_database")


def _rewrite(data_dir: Path, next_xid: int, oldest_xid: int) -> bool:
    control_path = data_dir / "global" / "pg_control"
    control = bytearray(control_path.read_bytes())
    crc_at = next(at for at in range(200, 400, 4) if crc32c(control[:at]) == struct.unpack_from("<I", control, at)[0])
    (lsn,) = struct.unpack_from("<Q", control, CONTROL_CHECKPOINT)
    (timeline,) = struct.unpack_from("<I", control, CONTROL_COPY + 8)
    segment = data_dir / "pg_wal" / f"{timeline:08X}{lsn >> 32:08X}{(lsn & 0xFFFFFFFF) // SEGMENT_BYTES:08X}"
    at = lsn % SEGMENT_BYTES
    wal = bytearray(segment.read_bytes())
    (length,) = struct.unpack_from("<I", wal, at)
    if at % PAGE_BYTES + length > PAGE_BYTES:
        return False
    _set_ids(wal, at + RECORD_HEADER + DATA_HEADER, next_xid, oldest_xid)
    crc = crc32c(wal[at + RECORD_HEADER : at + length] + wal[at : at + RECORD_CRC])
    struct.pack_into("<I", wal, at + RECORD_CRC, crc)
    _set_ids(control, CONTROL_COPY, next_xid, oldest_xid)
    struct.pack_into("<I", control, crc_at, crc32c(control[:crc_at]))
    segment.write_bytes(wal)
    control_path.write_bytes(control)
    return True


def _set_ids(buffer: bytearray, checkpoint: int, next_xid: int, oldest_xid: int) -> None:
    struct.pack_into("<Q", buffer, checkpoint + NEXT_XID, next_xid)
    struct.pack_into("<I", buffer, checkpoint + OLDEST_XID, oldest_xid)


def _make_status_file(data_dir: Path, xid: int) -> None:
    """The server reads the commit status page of its next id at start."""
    path = data_dir / "pg_xact" / f"{xid // XACTS_PER_SEGMENT:04X}"
    if not path.exists():
        path.write_bytes(bytes(32 * PAGE_BYTES))
        path.chmod(0o600)
        owner = data_dir.stat()
        shutil.chown(path, owner.st_uid, owner.st_gid)


def crc32c(data: bytes | bytearray) -> int:
    """CRC-32C (Castagnoli), as PostgreSQL stores it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _table_entry(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


_TABLE = [_table_entry(value) for value in range(256)]
