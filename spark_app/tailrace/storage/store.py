"""The one storage layer: local folders and object stores (S3-compatible, GCS, Azure) with exclusive creation.

The change log, chunk readers and the lake targets' file access all go through a `Storage`. Paths are relative to its
root, or absolute URIs of the same scheme. Errors of the libraries end here: `NotFound`, `AlreadyExists`,
`StorageRefused` (requires manual action), `OutcomeUnknown` (a write that may have happened), `Retry` (anything else).
"""

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.fs as pafs
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store
from typing_extensions import override

from tailrace.contract.resources import StorageLocation
from tailrace.errors import (
    MAKE_ROOM,
    InvalidManifest,
    OutcomeUnknown,
    Retry,
    StorageFull,
    TailraceError,
    Where,
    foreign,
    met_at,
)
from tailrace.storage import local
from tailrace.storage.access import Access, StorageRefused, obstore_options, resolve
from tailrace.storage.files import PART_SIZE, PARTS_AT_ONCE, LocalOutput, Output, RemoteInput, RemoteOutput

CONNECT_TIMEOUT = "5s"
ANSWER_SECONDS = 60
"""A request without an answer, or an answer that stands still, for longer has failed."""
SLOWEST = 128 << 10
"""Bytes a second: an upload may take longer by what its size takes at this rate, or a large one would never succeed on
a slow line. (The client knows no idle timeout for what it sends.)"""
LONGEST_ANSWER = "24h"
SMALL = 20
"""Uploads of up to 2^20 bytes share a client, then those of each power of two."""
RETRY_SECONDS = 20.0
"""Seconds for which one request to an object store is repeated after server and connection errors before the caller
gets an error."""
BULK = 1000
"""Objects that one request deletes at most."""
_REFUSED = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, exceptions.UnknownConfigurationKeyError)


_MACHINE_CREDENTIALS = ("169.254.169.254", "metadata.google.internal")
"""Services of a cloud's machines that the clients ask for credentials if they were given none."""
_POD_TEMPLATE = "in Kubernetes: `podTemplate` of driver and executors"
_GIVEN = f"No credentials were found: set {{}} in the environment ({_POD_TEMPLATE}), or use a workload identity."
_NO_CREDENTIALS = {
    "s3": "No credentials were found: set `credentials` in the manifest, or AWS_… in the environment.",
    "gs": _GIVEN.format("GOOGLE_SERVICE_ACCOUNT"),
    "az": _GIVEN.format("AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"),
}
"""Fixes by scheme: a manifest has credentials for S3 only."""
_CORRECT = {
    "s3": "Correct them; what the manifest lacks comes from the environment (AWS_…).",
    "gs": f"Correct GOOGLE_… in the environment ({_POD_TEMPLATE}).",
    "az": f"Correct AZURE_… in the environment ({_POD_TEMPLATE}).",
}
"""Fixes by scheme where what was given cannot be used."""
_NO_ROOT = {"NoSuchBucket": "bucket", "ContainerNotFound": "container"}
"""Codes in a store's answer (S3 and GCS, Azure) and what is missing: not an object, but the place of all of them."""
_UNCONFIGURED = "must be specified"
"""Text of object_store about a setting that it needs and was not given."""
LASTING = (errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP)
"""Errors that a retry does not heal: a file system that is mounted read-only, a path that cannot exist."""


class NotFound(TailraceError):
    """No object has this name."""


class AlreadyExists(TailraceError):
    """Exclusive creation found the name taken."""


class Storage:
    """A place with a root. Picklable: executors open their own connections."""

    def __init__(self, access: Access, retry_seconds: float = RETRY_SECONDS, part: Where = "storage") -> None:
        """`part`: whose place it is, the change log's or the target's; its errors say so."""
        self.access = access
        self.part = part
        self.retry_seconds = retry_seconds
        self._uploads: dict[int, Any] = {}
        """Clients by the power of two of the sizes that they send."""

    @classmethod
    def open(
        cls,
        config: StorageLocation,
        environment: Mapping[str, str] | None = None,
        retry_seconds: float = RETRY_SECONDS,
        part: Where = "storage",
    ) -> "Storage":
        """`environment` (default: the process's) names the folder of mounted Secrets, see `storage.access`."""
        with met_at(part):
            access = resolve(config, os.environ if environment is None else environment)
        return cls(access, retry_seconds, part)

    @override
    def __reduce__(self) -> tuple[type["Storage"], tuple[Access, float, Where]]:
        return Storage, (self.access, self.retry_seconds, self.part)

    @override
    def __repr__(self) -> str:
        return f"Storage({self.root})"

    @property
    def root(self) -> str:
        return self.access.root

    @property
    def local(self) -> bool:
        return self.access.scheme == "file"

    def uri(self, path: str) -> str:
        """The absolute URI of a path: literal, without percent codes."""
        return path if "://" in path else f"{self.root}/{path}"

    def create(self, path: str, data: bytes) -> None:
        """Create the object or raise `AlreadyExists`; on success it is durable."""
        with self.errors(path, writing=True):
            if self.local:
                local.write(self._name(path), data, exclusive=True)
            else:
                store = self._upload_store(len(data))
                obstore.put(store, self._key(path), data, mode="create", use_multipart=False)

    def require_exclusive(self, path: str) -> None:
        """`StorageRefused` unless the store keeps its word that what exists is not created again: some that speak S3
        ignore the condition, and two writers would then both own a record. `path`: a name that is not used."""
        self.put(path, b"first")
        try:
            self.create(path, b"second")
        except AlreadyExists:
            return
        finally:
            self.delete(path)
        with met_at(self.part):
            raise StorageRefused(
                f"{self.root} overwrites an existing object (it ignores If-None-Match)",
                "Use an object store that supports conditional writes.",
            )

    def put(self, path: str, data: bytes) -> None:
        """Create or replace the object; on success it is durable."""
        with self.errors(path, writing=True):
            if self.local:
                local.write(self._name(path), data, exclusive=False)
            else:
                obstore.put(self._upload_store(len(data)), self._key(path), data)

    def get(self, path: str) -> bytes:
        with self.errors(path):
            if self.local:
                with open(self._name(path), "rb", buffering=0) as file:
                    return file.readall()
            return bytes(obstore.get(self._store, self._key(path)).bytes())

    def size(self, path: str) -> int:
        """Bytes of the object, or `NotFound`."""
        with self.errors(path):
            if self.local:
                return os.stat(self._name(path)).st_size  # noqa: PTH116  # as in `local.write`
            return int(obstore.head(self._store, self._key(path))["size"])

    def exists(self, path: str) -> bool:
        try:
            self.size(path)
        except NotFound:
            return False
        return True

    def delete(self, path: str) -> None:
        """Remove the object; one that is not there is no error."""
        with self.errors(path):
            if self.local:
                with suppress(FileNotFoundError):
                    os.unlink(self._name(path))  # noqa: PTH108  # as in `local.write`
                return
            try:
                obstore.delete(self._store, self._key(path))
            except FileNotFoundError:
                return

    def delete_many(self, paths: Sequence[str]) -> None:
        """Remove the objects in any order, many with one request where the store can; missing ones are no error."""
        for start in range(0, len(paths), BULK):
            some = paths[start : start + BULK]
            try:
                if self.access.scheme == "s3":
                    with self.errors(some[0]):
                        obstore.delete(self._store, [self._key(path) for path in some])
                    continue
            except NotFound:
                pass  # the store is one that minds
            for path in some:
                self.delete(path)

    def prune(self, prefix: str) -> None:
        """Remove what an emptied local folder leaves: the folder. An object store has none."""
        if self.local:
            local.prune(Path(self.access.prefix), prefix.rstrip("/"))

    def prune_root(self) -> None:
        """Remove the root itself, if it is a local folder and empty."""
        if self.local:
            with suppress(OSError):  # not empty, not there, or a volume that is mounted
                Path(self.access.prefix).rmdir()

    def unfinished(self, prefix: str) -> Sequence[str]:
        """Files that killed writers left under a local folder; an object store has none that can be seen."""
        return local.unfinished(Path(self.access.prefix), prefix) if self.local else ()

    def delete_unfinished(self, prefix: str) -> None:
        """Remove files below a local folder that never got their name, however young: all of it is to go."""
        if self.local:
            with self.errors(prefix):
                for path in local.unfinished(Path(self.access.prefix), prefix, younger=True):
                    self._file(path).unlink(missing_ok=True)

    def list(self, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        """(path, bytes) of every object whose path begins with `prefix` and comes after `after`, in order of paths.
        Never in a hot path."""
        with self.errors(prefix):
            if self.local:
                yield from local.walk(Path(self.access.prefix), prefix, after)
                return
            # obstore lists whole path segments only: ask for the folder, filter the rest here.
            folder = self._key(prefix.rpartition("/")[0]).rstrip("/")
            skip = len(self.access.prefix) + 1 if self.access.prefix else 0
            pages = obstore.list(self._store, folder or None, offset=self._key(after) if after else None)
            found = [(m["path"][skip:], m["size"]) for page in pages for m in page]
            yield from sorted(entry for entry in found if entry[0].startswith(prefix))

    def aged(self, folder: str) -> Iterator[tuple[str, float]]:
        """(absolute URI, time of its last change in seconds since the Unix epoch) of every finished object below this
        folder, in no order. Never in a hot path."""
        uri = self.uri(folder).rstrip("/")
        with self.errors(folder):
            if self.local:
                for path, changed in local.aged(self._file(folder)):
                    yield f"{uri}/{path}", changed
                return
            key = self._key(uri)
            for page in obstore.list(self._store, key):
                yield from ((uri + meta["path"][len(key) :], meta["last_modified"].timestamp()) for meta in page)

    def open_input(self, path: str) -> pa.NativeFile:
        """A file for `pyarrow.parquet`: mapped if local, ranged reads if remote."""
        with self.errors(path):
            if self.local:
                return pa.memory_map(str(self._file(path)))
            if self.access.scheme == "s3":
                bucket, key = self._bucket_and_key(path)
                return self._arrow.open_input_file(f"{bucket}/{key}")
            return pa.PythonFile(RemoteInput(self._store, self._key(path), partial(self.errors, path)), mode="r")

    @contextmanager
    def open_output(self, path: str) -> Iterator[Output]:
        """Write an object in parts: it appears whole and durable when the block ends, or not at all if it raises."""
        errors = partial(self.errors, path, writing=True)
        output: Output
        with errors():
            if self.local:
                output = LocalOutput(self._file(path), errors)
            else:
                output = RemoteOutput(self._upload_store(PARTS_AT_ONCE * PART_SIZE), self._key(path), errors)
        try:
            yield output
        except BaseException:
            output.abort()
            raise
        with errors():
            output.finish()

    def _file(self, path: str) -> Path:
        return Path(self._name(path))

    def _name(self, path: str) -> str:
        """The local file's."""
        if "://" not in path:
            return f"{self.access.prefix}/{path}"
        if not path.startswith("file://"):
            raise InvalidManifest(
                f"{path} is not a local file, and {self.root} is", "Keep both in one kind of storage."
            )
        return path.removeprefix("file://")  # literal, see `storage.access.place`

    def _bucket_and_key(self, path: str) -> tuple[str, str]:
        if "://" not in path:
            return self.access.bucket, f"{self.access.prefix}/{path}".strip("/")
        scheme, _, rest = path.partition("://")
        bucket, _, key = rest.partition("/")
        if scheme.rstrip("a") != self.access.scheme.rstrip("a"):
            raise InvalidManifest(f"{path} and {self.root} are different kinds of storage", "Keep both in one.")
        return bucket, key

    def _key(self, path: str) -> str:
        bucket, key = self._bucket_and_key(path)
        if bucket != self.access.bucket:
            raise InvalidManifest(f"{path} is in another bucket than {self.root}", "Keep both in one bucket.")
        return key

    @cached_property
    def _store(self) -> Any:
        """The store for everything but uploads: an answer of any size may continue while it makes progress."""
        return self._client({"timeout": LONGEST_ANSWER, "read_timeout": f"{ANSWER_SECONDS}s"})

    def _upload_store(self, size: int) -> Any:
        """The store for uploads of so many bytes, of which the client sends several parts at once."""
        power = max(SMALL, (size - 1).bit_length())
        if power not in self._uploads:
            self._uploads[power] = self._client({"timeout": f"{ANSWER_SECONDS + (1 << power) // SLOWEST}s"})
        return self._uploads[power]

    def _client(self, timeouts: Mapping[str, str]) -> Any:
        options: dict[str, Any] = {
            "connect_timeout": CONNECT_TIMEOUT,
            **timeouts,
            "allow_http": self.access.plain_http,
        }
        common: dict[str, Any] = {
            "client_options": options,
            "retry_config": {"max_retries": 10, "retry_timeout": timedelta(seconds=self.retry_seconds)},
        }
        if self.access.scheme == "s3":
            settings: dict[str, Any] = {**common, **obstore_options(self.access)}
            return S3Store(self.access.bucket, **settings)
        if self.access.scheme == "gs":
            return GCSStore(self.access.bucket, **common)
        return AzureStore(self.access.bucket, **common)

    @cached_property
    def _arrow(self) -> pafs.S3FileSystem:
        access = self.access
        return pafs.S3FileSystem(
            access_key=access.access_key,
            secret_key=access.secret_key,
            session_token=access.session_token,
            region=access.region or ("us-east-1" if access.endpoint else None),
            endpoint_override=access.endpoint,
            scheme="http" if access.plain_http else "https",
            force_virtual_addressing=access.endpoint is not None and not access.path_style,
        )

    def errors(self, path: str, writing: bool = False) -> AbstractContextManager[None]:
        """Turn foreign exceptions into ours. A write that failed otherwise than by refusal may have happened."""
        return _Errors(self, path, writing)

    def translate(self, error: BaseException, path: str, writing: bool) -> None:
        """Raise what the exception is to us: itself, if it is none of theirs."""
        with met_at(self.part), self._as_ours(path, writing):
            raise error

    @contextmanager
    def _as_ours(self, path: str, writing: bool) -> Iterator[None]:
        where = self.uri(path)
        try:
            yield
        except (FileExistsError, exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
            raise AlreadyExists(f"{where} exists") from error
        except (PermissionError, *_REFUSED) as error:
            raise StorageRefused(
                f"{where}: access denied ({_first_line(error)})", "Check credentials and rights."
            ) from error
        except (NotADirectoryError, IsADirectoryError) as error:
            raise StorageRefused(
                f"{where}: {_first_line(error)}", "Choose a location that nothing else uses."
            ) from error
        except (FileNotFoundError, exceptions.NotFoundError) as error:
            if gone := next((what for code, what in _NO_ROOT.items() if code in str(error)), None):
                raise StorageRefused(f"{where}: the {gone} does not exist", "Create it.") from error
            raise NotFound(f"{where} does not exist") from error
        except (OSError, exceptions.BaseError) as error:
            if _UNCONFIGURED in str(error):
                raise _unusable(where, error) from error
            if "ACCESS_DENIED" in str(error):  # by pyarrow, which has no class for it
                raise StorageRefused(f"{where}: {_first_line(error)}", "Check credentials and rights.") from error
            if isinstance(error, OSError) and error.errno in LASTING:
                raise StorageRefused(f"{where}: {_first_line(error)}", "Correct the location.") from error
            if isinstance(error, OSError) and error.errno in foreign.FULL:
                raise StorageFull(f"{where}: {_first_line(error)}", MAKE_ROOM) from error
            kind = OutcomeUnknown if writing else Retry
            asked = any(service in str(error) for service in _MACHINE_CREDENTIALS)
            fix = _NO_CREDENTIALS.get(self.access.scheme, "") if asked else ""
            raise kind.of_place(f"{where}: {_first_line(error)}", fix) from error
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            # object_store's way to say that it can make no request of what it was given; what the manifest gives has
            # been looked at by then.
            raise _unusable(where, error) from error


@dataclass(frozen=True)
class _Errors:
    """A block that touches storage. No generator: nearly all blocks end well, and each commit has a dozen."""

    storage: Storage
    path: str
    writing: bool

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.storage.translate(error, self.path, self.writing)


def _unusable(where: str, error: BaseException) -> StorageRefused:
    return StorageRefused(
        f"{where}: endpoint, region, credentials and bucket do not fit together ({_first_line(error)})",
        _CORRECT.get(where.partition("://")[0], ""),
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
