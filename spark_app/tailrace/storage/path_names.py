"""Names of schemas and tables as parts of paths: one path for each, and the same bytes for every library that reads it.

Used wherever a name becomes a folder: tables of both formats, identifiers of a folder catalog, segments of the change
log. ASCII letters, digits, `_`, `-` and inner dots stay as they are, so a plain name is its own path. Every other byte
of the UTF-8 name is `!` and two hexadecimal digits. Not `%`: some readers decode it (URIs, Delta's own log), others do
not (Hadoop, S3), and they would look in two places. `!` is a plain character to URIs, Hadoop, S3, globs and Windows.
`decode` turns a path back, but for names that are too long: those end with a digest.

Case is kept: on a file system that ignores it (none of those that Tailrace is tested on), `Orders` and `orders` meet in
one folder. Of two that are captured since the same record the second is refused; one that comes later takes the place,
as a table does that was dropped and made again, and the first is stopped.
"""

import hashlib
import re

_PLAIN = re.compile(rb"[A-Za-z0-9_.-]")
ESCAPE = "!"
_ESCAPED = re.compile(rf"{ESCAPE}([0-9a-f]{{2}})")
_RESERVED = {"_delta_log"}
"""A folder of this name would make a Delta table of the one that holds it."""


LONGEST = 200
"""Characters of a part; file systems take 255. A name of 63 bytes has 189 at most; but MySQL's 64 characters, or the 63
of a database in a single-byte encoding, may take three bytes each, nine characters here."""


def encode(name: str) -> str:
    """The name as one part of a path."""
    data = name.encode()
    last = len(data) - 1
    part = "".join(
        chr(byte) if _stands(bytes([byte]), at in (0, last), at == 0 and name in _RESERVED) else f"{ESCAPE}{byte:02x}"
        for at, byte in enumerate(data)
    )
    if len(part) <= LONGEST:
        return part
    digest = f"{ESCAPE}-{hashlib.blake2b(data, digest_size=16).hexdigest()}"
    return re.sub(rf"{ESCAPE}.?$", "", part[: LONGEST - len(digest)]) + digest


def _stands(char: bytes, outer: bool, reserved: bool) -> bool:
    """A dot at the beginning hides a folder, one at the end is lost on Windows, and alone they lead elsewhere."""
    return not reserved and _PLAIN.fullmatch(char) is not None and not (outer and char == b".")


def decode(part: str) -> str:
    """The name that `encode` made this of; ValueError if it made none of it, or cut it."""
    name = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), part).encode("latin-1").decode(errors="replace")
    if encode(name) != part:
        raise ValueError(f"{part!r} is not an encoded name")
    return name


def table_folder(schema_name: str, table_name: str) -> str:
    """`<schema>/<table>`: the place of a table below the target's location."""
    return f"{encode(schema_name)}/{encode(table_name)}"
