"""Access to a place: one resolver of `StorageLocation`s for obstore, Arrow and Hadoop.

`resolve` reads the credentials; the functions below turn the result into what each library wants. A result travels to
executors inside pickles, so it holds the key itself; its text never shows it.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import unquote

from tailrace.contract.resources import Credentials, StorageLocation
from tailrace.errors import InvalidManifest, Stop
from tailrace.storage import secret_files

KEY_NAMES = ("accessKeyId", "secretAccessKey")
OPTIONAL_NAMES = ("sessionToken",)


class StorageRefused(Stop):
    """The object store or file system refuses access: credentials, rights, or the bucket does not exist."""

    exit_code = 10


@dataclass(frozen=True)
class Access:
    """A resolved place. `bucket` is empty for local folders; `prefix` has no slash at its ends (local: absolute)."""

    scheme: str
    bucket: str
    prefix: str
    endpoint: str | None = None
    region: str | None = None
    path_style: bool = False
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    @property
    def root(self) -> str:
        """Absolute URI without a trailing slash, its path literal: Hadoop, S3 and `Storage` decode nothing."""
        if self.scheme == "file":
            return f"file://{self.prefix}"
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    @property
    def plain_http(self) -> bool:
        return self.endpoint is not None and self.endpoint.startswith("http://")


FORBIDDEN = re.compile(r"[\x00-\x1f\x7f#?*\\\[\]{}]")
"""Characters that some reader takes for something else than a part of a path: query, fragment, pattern, separator."""


def place(location: str) -> tuple[str, str, str]:
    """Scheme, bucket (empty for folders) and path of a location: the one reading of it. A `file:` location is a URI,
    so its percent codes are decoded, once; an object store's keys are what stands there. Local paths are normalised."""
    scheme, _, rest = location.partition("://")
    decoded = unquote(rest, errors="surrogateescape") if scheme == "file" else rest
    found = FORBIDDEN.search(rest) or FORBIDDEN.search(decoded)
    if found is not None:
        raise InvalidManifest(
            f"location {location!r} holds {found[0]!r}, which some readers do not accept in a path",
            "Choose a location without control characters and without any of # ? * \\ [ ] { }.",
        )
    if not decoded.isascii() and any("\udc80" <= char <= "\udcff" for char in decoded):
        raise InvalidManifest(f"location {location!r} is not UTF-8 once decoded", "Write the path's UTF-8 bytes.")
    if scheme == "file":
        return scheme, "", os.path.normpath("/" + decoded.lstrip("/")).rstrip("/")
    bucket, _, prefix = decoded.partition("/")
    prefix = prefix.strip("/")
    if not bucket or {"", ".", ".."} & set(prefix.split("/") if prefix else ()):
        raise InvalidManifest(
            f"location {location!r} has an empty path segment or one of dots",
            "Remove such segments from bucket and prefix.",
        )
    return scheme, bucket, prefix


def resolve(config: StorageLocation, environment: Mapping[str, str]) -> Access:
    """Read the credentials that `config` names. No credentials: the libraries look in the environment themselves."""
    scheme, bucket, prefix = place(config.location)
    if scheme == "file":
        return Access(scheme="file", bucket="", prefix=prefix)
    if scheme != "s3" and (config.credentials is not None or config.endpoint is not None):
        raise InvalidManifest(
            f"location {config.location!r} takes neither credentials nor endpoint",
            "Remove them: access to this store comes from the environment.",
        )
    _check_bucket(config, bucket)
    _check_endpoint(config, bucket)
    if config.region is not None and not _REGION.fullmatch(config.region):
        raise InvalidManifest(
            f"region {config.region!r} is not the name of a region",
            "Write it like the provider, for example eu-central-1.",
        )
    keys = {} if config.credentials is None else _read_keys(config.credentials, environment)
    return Access(
        scheme=scheme,
        bucket=bucket,
        prefix=prefix,
        endpoint=None if config.endpoint is None else config.endpoint.rstrip("/"),
        region=config.region,
        path_style=config.path_style,
        access_key=keys.get("accessKeyId"),
        secret_key=keys.get("secretAccessKey"),
        session_token=keys.get("sessionToken"),
    )


_LABEL = r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_ENDPOINT = re.compile(
    rf"https?://(?P<host>{_LABEL}(\.{_LABEL})*\.?|\[[0-9a-fA-F:.]+\])(:(?P<port>\d{{1,5}}))?(/[\w.~/-]*)?", re.A
)
_NUMBER = re.compile(r"(0x[0-9a-f]*|\d+)\.?", re.IGNORECASE)
"""Clients take a host whose last part is a number for an address."""
_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")
_HOST_BUCKET = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_REGION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_SENDABLE = re.compile(r"[!-~]*")


def _check_bucket(config: StorageLocation, bucket: str) -> None:
    """Clients put what stands here into a host name or a path without a look: they panic, or meet another bucket."""
    if "@" in bucket:  # what stands before it may be a password
        raise InvalidManifest(
            f"location names the bucket with a user name before it: …@{bucket.rpartition('@')[2]}",
            "Remove what stands before the @; keys go into the file or Secret that credentials names.",
        )
    if not _BUCKET.fullmatch(bucket):
        raise InvalidManifest(
            f"location {config.location!r} names the bucket {bucket!r}, which is not a valid bucket name",
            "Correct it: letters, digits, dots, hyphens and underscores.",
        )
    in_host = config.location.startswith("s3://") and not config.path_style
    if in_host and not (_HOST_BUCKET.fullmatch(bucket) and len(bucket) <= 63):
        raise InvalidManifest(
            f"location {config.location!r} names the bucket {bucket!r}, which cannot be part of a host name",
            "Set pathStyle: true, if the service takes the bucket in the path, or correct the name.",
        )


def _check_endpoint(config: StorageLocation, bucket: str) -> None:
    if config.endpoint is None:
        return
    found = _ENDPOINT.fullmatch(config.endpoint)
    address = None if found is None else _address(found["host"])
    if found is None or address is None or not 0 < int(found["port"] or 1) < 65_536:
        # What stands before an @ is a password.
        said = repr(config.endpoint) if "@" not in config.endpoint else "with a user name"
        raise InvalidManifest(f"endpoint {said} is not a URL of a service", "Write https://host[:port].")
    if address and not config.path_style:
        raise InvalidManifest(
            f"endpoint {config.endpoint!r} is an IP address, before which the bucket {bucket!r} cannot go",
            "Set pathStyle: true, or give the service's host name.",
        )


def _address(host: str) -> bool | None:
    """True if the host is an IP address; None: it is an invalid one."""
    named = not host.startswith("[") and not _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2])
    if named:
        return False
    try:
        ip_address(host.strip("[]").rstrip("."))
    except ValueError:
        return None
    return True


def _read_keys(credentials: Credentials, environment: Mapping[str, str]) -> dict[str, str]:
    found = secret_files.read(credentials, KEY_NAMES + OPTIONAL_NAMES, environment, StorageRefused)
    said = f"credentials of {credentials.file or f'Secret {credentials.secret_name}'}"
    missing = [name for name in KEY_NAMES if not found.get(name)]
    if missing:
        raise StorageRefused(f"{said} lack {' and '.join(missing)}", f"Give {' and '.join(KEY_NAMES)}.")
    odd = [name for name, value in found.items() if not _SENDABLE.fullmatch(value)]
    if odd:
        raise StorageRefused(
            f"{said}: {' and '.join(odd)} holds a space or a character that is not ASCII",
            "Write the key as the provider gave it.",
        )
    return found


def obstore_options(access: Access) -> dict[str, str]:
    """obstore's configuration of an S3-compatible store."""
    options = {"virtual_hosted_style_request": "false" if access.path_style else "true", **_s3_names(access)}
    if access.endpoint is not None and not access.path_style:
        scheme, _, host = access.endpoint.partition("://")
        options["endpoint"] = f"{scheme}://{access.bucket}.{host}"
    return options


def _s3_names(access: Access) -> dict[str, str]:
    values = {
        "endpoint": access.endpoint,
        "region": access.region or ("us-east-1" if access.endpoint else None),
        "access_key_id": access.access_key,
        "secret_access_key": access.secret_key,
        "session_token": access.session_token,
    }
    return {name: value for name, value in values.items() if value is not None}


def hadoop_options(config: StorageLocation, environment: Mapping[str, str]) -> dict[str, str]:
    """Hadoop's options for this bucket alone (`fs.s3a.bucket.…`), so that two places may differ. Empty if local.
    `config`: of a target's tables, which are on `file` or `s3`."""
    access = resolve(config, environment)
    if access.scheme == "file":
        return {}
    own = f"fs.s3a.bucket.{access.bucket}"
    values = {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        f"{own}.endpoint": access.endpoint,
        f"{own}.endpoint.region": access.region or ("us-east-1" if access.endpoint else None),
        f"{own}.path.style.access": "true" if access.path_style else None,
        f"{own}.connection.ssl.enabled": "false" if access.plain_http else None,
        f"{own}.access.key": access.access_key,
        f"{own}.secret.key": access.secret_key,
        f"{own}.session.token": access.session_token,
        f"{own}.aws.credentials.provider": _hadoop_provider(access),
    }
    return {name: value for name, value in values.items() if value is not None}


def _hadoop_provider(access: Access) -> str | None:
    if access.access_key is None:
        return None
    kind = "TemporaryAWSCredentialsProvider" if access.session_token else "SimpleAWSCredentialsProvider"
    return f"org.apache.hadoop.fs.s3a.{kind}"
