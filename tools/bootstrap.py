"""Sets the project up on a fresh machine: `.venv`, PostgreSQL, Spark's jars and classes, the S3 server; Kubernetes.

Called by `make setup` with the system's Python (standard library only). What is built from Go (the S3 server,
Kubernetes) takes minutes and serves only tests and the one-node cluster: it is made when it is named, as
`make integration` does. `demo-…` names only what a demo needs. Every part is skipped when it is there already, is made
in a temporary folder and then renamed, so an interrupted run leaves nothing half done, and a lock file keeps two runs
apart. What it downloads goes to `tailrace.spark.artifacts.cache_dir()`; the machine's own settings of pip, Maven and Go
decide where from.
"""

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "spark_app"), str(ROOT / "tools")]
sys.dont_write_bytecode = True

import toolchain  # noqa: E402  (the path is set above: nothing is installed yet)

if old := toolchain.python_missing():
    sys.exit(f"setup failed: this machine lacks\n  - {old}")

import maven  # noqa: E402  (as above)
import mysql_packages  # noqa: E402  # as above
import servers  # noqa: E402  # as above
from cluster import debian, images, places  # noqa: E402  # as above
from cluster.build import FLAGS, build_programs  # noqa: E402  # as above
from cluster.build import environment as go_environment  # noqa: E402  # as above
from cluster.signs_of_life import signs_of_life  # noqa: E402  # as above
from tailrace.spark import artifacts  # noqa: E402  # as above

VENV = ROOT / ".venv"
STAMP = VENV / ".tailrace-setup"
"""Holds the digest of what the environment was made from."""
DUCKDB_PACKAGES = ("", "-extension-avro", "-extension-delta", "-extension-iceberg")
DUCKDB_EXTENSIONS, DUCKDB_PLATFORM = ("duckdb-extension-spatial", "duckdb-extension-icu"), "linux_amd64"
LAST_LINES = 30
"""Lines of a failed command's output that are shown."""


class SetupFailed(Exception):
    """A tool is missing or a step failed; the message says which and what to do."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = ", ".join(DEFAULT)
    parser.add_argument("parts", nargs="*", help=f"of: {', '.join((*PARTS, *GROUPS))} (default: {default})")
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - {*PARTS, *GROUPS}
    try:
        if unknown:
            raise SetupFailed(f"unknown part {', '.join(sorted(unknown))}; use {', '.join((*PARTS, *GROUPS))}")
        parts = [part for name in arguments.parts or DEFAULT for part in GROUPS.get(name, (name,))]
        check_tools(parts)
        announce(parts)
        # Go keeps all cores at work and needs nothing of the rest, which waits for the network half of its time.
        chains = [[p for p in parts if p not in toolchain.GO], [p for p in parts if p in toolchain.GO]]
        with ThreadPoolExecutor() as pool:
            return max(pool.map(make_all, chains))
    except SetupFailed as error:
        return failed(error)


def make_all(parts: list[str]) -> int:
    """Makes the parts in their order; those that only wait at the same time. Returns an exit code: a failure is
    reported at once, while other parts are still being made."""
    try:
        for _, together in groupby(parts, key=lambda name: "" if name in FETCHED else name):
            with ThreadPoolExecutor() as pool:
                list(pool.map(make, together))
    except (SetupFailed, maven.FetchFailed) as error:
        return failed(error)
    return 0


def failed(error: Exception) -> int:
    print(f"setup failed: {error}", file=sys.stderr, flush=True)
    return 1


def make(name: str) -> None:
    """One part, unless it is there, with a line that says which it was and how long it took, and one for each half
    minute that it takes."""
    started = time.monotonic()
    with signs_of_life(f"making {name}", lambda text: print(f"setup: {text}", flush=True)):
        outcome = "made" if PARTS[name]() else "was there"
    print(f"setup: {name} {outcome} ({time.monotonic() - started:.1f} s)", flush=True)


def slow() -> dict[str, tuple[Path, str]]:
    """Parts that take minutes: their folder, and what is said before they are made. For two cores of their own."""
    return {
        "s3": (servers.versitygw_path().parent, "the S3 test server, built from Go: 1 to 2 minutes"),
        "mysql": (servers.mysql_dir("mysql-9"), "MySQL and MariaDB out of packages: 1 to 2 minutes"),
        "kubernetes": (
            places.kubernetes_dir(),
            "Kubernetes, built from Go: 5 to 9 minutes, 1 if Go has built it before",
        ),
        "helm": (places.helm_dir(), "Helm, built from Go: 1 to 2 minutes"),
        "node": (places.node_tools_dir(), "containerd and buildah out of packages: less than 1 minute"),
    }


def announce(parts: list[str]) -> None:
    """Say before the first of them is made what is missing, and how long it takes."""
    for part, (folder, what) in slow().items():
        if part in parts and not artifacts.is_ready(folder):
            print(f"setup: {part} is missing: {what}", flush=True)


def check_tools(parts: list[str]) -> None:
    """Say at once, and in full, what the machine lacks."""
    built = [part for part in parts if part in toolchain.GO and not artifacts.is_ready(slow()[part][0])]
    go = [toolchain.go_missing(part) for part in built]
    missing = [text for text in (toolchain.java_missing(), *go) if text is not None]
    if missing:
        raise SetupFailed("this machine lacks\n  - " + "\n  - ".join(missing))


def make_venv(extra: str) -> bool:
    """`.venv` with the exact versions of constraints.txt and the project itself, editable, with one of its extras."""
    files = b"".join((ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt"))
    packages = [str(path) for path in (*ROOT.glob("spark_app/*/__init__.py"), *ROOT.glob("operator/*/__init__.py"))]
    wanted = hashlib.sha256(files + "\n".join(sorted(packages)).encode()).hexdigest()
    enough = {f"{wanted} {name}" for name in (extra, "dev")}  # dev holds all others
    if VENV.is_symlink() or (STAMP.exists() and STAMP.read_text() in enough):
        return False  # a linked environment belongs to somebody else
    with locked(ROOT / ".venv.lock"):
        if not (VENV / "bin" / "python").exists():
            run([sys.executable, "-m", "venv", str(VENV)])
        python = str(VENV / "bin" / "python")
        constraints = ["-c", str(ROOT / "constraints.txt")]
        # The build backend comes from constraints.txt too: without isolation nothing unpinned is fetched.
        run([python, "-m", "pip", "install", "-q", *constraints, "setuptools", "uv"])
        wheels = spark_wheel(python)
        install_all = [str(VENV / "bin" / "uv"), "pip", "install", "-q", "--python", python, *constraints]
        run([*install_all, "--no-build-isolation", "-e", f"{ROOT}[{extra}]"], uv_environment(python, wheels))
        STAMP.write_text(f"{wanted} {extra}")
    return True


def spark_wheel(python: str) -> Path:
    """A folder with PySpark's wheel. Only its source is published: built again for each environment, that is a minute
    and, where an index forbids caching, 2 GB more of uv's cache every time."""
    version = re.search(r"^pyspark==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    if version is None:
        raise SetupFailed("constraints.txt does not name the version of pyspark")
    wanted = f"pyspark=={version.group(1)}"
    folder = artifacts.cache_dir() / f"wheel-{wanted.replace('==', '-')}"
    # Its jars are compressed already: doing it again takes longer than all the rest.
    stored = "--config-settings=--build-option=--compression=stored"
    build = [python, "-m", "pip", "wheel", "-q", "--no-cache-dir", "--no-deps", "--no-build-isolation", stored, wanted]
    install(folder, lambda into: run([*build, "-w", str(into)]))
    return folder


UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}


def uv_environment(python: str, wheels: Path) -> dict[str, str]:
    """uv (several times quicker than pip) reads none of pip's settings: hand over where packages come from. `wheels`:
    one more folder with some."""
    listed = subprocess.run([python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    found = from_pip(listed.stdout) | dict(os.environ)  # what is set for uv itself wins
    links = [link for link in (found.get("UV_FIND_LINKS"), str(wheels)) if link]
    return found | {"UV_FIND_LINKS": ",".join(links)}


def from_pip(listed: str) -> dict[str, str]:
    """uv's variables for the settings that `pip config list` shows; the environment's come last there and win."""
    found = {}
    for option, value in re.findall(r"^(?:global|install|:env:)\.([a-z-]+)='(.*)'$", listed, re.MULTILINE):
        if option in UV_NAMES:
            separator = "," if option == "find-links" else " "
            found[UV_NAMES[option]] = separator.join(value.replace("\\n", " ").split())
    return found


def make_postgres(*majors: int) -> bool:
    """PostgreSQL servers of these versions."""
    made = []
    for major in majors:
        version = servers.POSTGRES_VERSIONS[major]
        made.append(install(servers.postgres_dir(major), partial(unpack_postgres, version)))
    return any(made)


def unpack_postgres(version: str, folder: Path) -> None:
    """The artifact is a jar that holds one tar.xz."""
    with scratch_dir() as scratch:
        maven.fetch([f"{servers.POSTGRES_COORDINATE}:{version}"], scratch, scratch, pyspark_jars())
        jar = next(scratch.glob("embedded-postgres-binaries-*.jar"))
        with zipfile.ZipFile(jar) as archive:
            member = next(name for name in archive.namelist() if name.endswith(".txz"))
            archive.extract(member, scratch)
        run(["tar", "-xJf", str(scratch / member), "-C", str(folder)])


def make_mysql(*names: str) -> bool:
    """MySQL and MariaDB servers, for tests and a demo."""
    try:
        made = [install(servers.mysql_dir(name), partial(mysql_packages.unpack, name, fetch_jars)) for name in names]
    except mysql_packages.NoServer as error:
        raise SetupFailed(str(error)) from error
    return any(made)


def make_jars(*names: str) -> bool:
    """Jar sets of Spark sessions."""
    made = []
    for name in names:
        made.append(install(artifacts.jar_set_dir(name), partial(fetch_jars, artifacts.JAR_SETS[name])))
    return any(made)


def fetch_jars(coordinates: tuple[str, ...], folder: Path) -> None:
    with scratch_dir() as scratch:
        maven.fetch(coordinates, folder, scratch, pyspark_jars())


def make_classes() -> bool:
    """The archive of classes with which Spark's JVM starts sooner."""
    command = [str(VENV / "bin" / "python"), "-m", "tailrace.spark.class_archive"]
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "spark_app"))
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SetupFailed(f"`{' '.join(command)}` ended with {done.returncode}")
    return done.stdout.rstrip().endswith("created")


def make_s3() -> bool:
    """The S3 server of the tests, built from its Go module."""

    def build(folder: Path) -> None:
        module = f"{servers.VERSITYGW_MODULE}@{servers.VERSITYGW_VERSION}"
        run(["go", "install", *FLAGS, module], go_environment(GOBIN=str(folder)))

    return install(servers.versitygw_path().parent, build)


def make_azurite() -> bool:
    """Azure's emulator of the long tests, from npm; nothing is run of what its packages want to run."""

    def fetch(folder: Path) -> None:
        package = f"azurite@{servers.AZURITE_VERSION}"
        run(["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", package])

    return install(servers.azurite_dir(), fetch)


def make_bqemulator() -> bool:
    """BigQuery's emulator, whose packages are others than ours; its DuckDB finds its extensions in its home."""

    def fetch(folder: Path) -> None:
        run([sys.executable, "-m", "venv", str(folder)])
        duckdb = [f"{name}=={servers.BQEMULATOR_DUCKDB}" for name in ("duckdb", *DUCKDB_EXTENSIONS)]
        names = [f"bqemulator=={servers.BQEMULATOR_VERSION}", *duckdb, "numpy"]
        run([str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *names])
        for extension in folder.glob("lib/python3*/site-packages/duckdb_extension_*/extensions/*/*.duckdb_extension"):
            into = folder / ".duckdb" / "extensions" / extension.parent.name / DUCKDB_PLATFORM
            into.mkdir(parents=True, exist_ok=True)
            shutil.copy(extension, into)

    return install(servers.bqemulator_dir(), fetch)


def make_fakesnow() -> bool:
    """Snowflake's emulator, which stands on an older client than ours."""

    def fetch(folder: Path) -> None:
        run([sys.executable, "-m", "venv", str(folder)])
        client = f"snowflake-connector-python=={servers.FAKESNOW_CLIENT}"
        names = [f"fakesnow[server]=={servers.FAKESNOW_VERSION}", f"duckdb=={servers.FAKESNOW_DUCKDB}", client]
        run([str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *names])

    return install(servers.fakesnow_dir(), fetch)


def make_duckdb_readers() -> bool:
    """DuckDB's extensions for Delta and Iceberg, for the long tests: packages of an older DuckDB than ours."""

    def fetch(folder: Path) -> None:
        run([sys.executable, "-m", "venv", str(folder)])
        names = [f"duckdb{name}=={servers.DUCKDB_READERS_VERSION}" for name in DUCKDB_PACKAGES]
        run([str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *names, "pyarrow"])

    return install(servers.duckdb_readers_dir(), fetch)


def make_kubernetes() -> bool:
    """The programs of a one-node cluster, built from their Go modules."""
    return install(places.kubernetes_dir(), lambda folder: build_programs(folder, run))


def make_helm() -> bool:
    """Helm, built from its Go module; the linker writes the version, which `go install` leaves out."""
    flags = f"-s -w -X {places.HELM_MODULE}/internal/version.version={places.HELM_VERSION}"
    package = f"{places.HELM_MODULE}/cmd/helm@{places.HELM_VERSION}"

    def build(folder: Path) -> None:
        run(["go", "install", *FLAGS, "-ldflags", flags, package], go_environment(GOBIN=str(folder)))

    return install(places.helm_dir(), build)


def make_node() -> bool:
    """containerd and what else a node and its images need, out of Debian's packages."""
    try:
        return install(places.node_tools_dir(), debian.unpack)
    except debian.NoPackages as error:
        raise SetupFailed(str(error)) from error


def make_browser() -> bool:
    """The browser in which tests look at the console, out of Debian's packages."""
    if shutil.which("chromium"):
        return False
    if os.geteuid() != 0:
        raise SetupFailed("chromium is missing, and only root can install it: apt-get install chromium")
    run(["apt-get", "update", "-q"])
    run(["apt-get", "install", "-qy", "--no-install-recommends", "chromium"])
    return True


def make_images() -> bool:
    """The images of operator and driver, for a cluster of one's own; `KUBECONFIG` names another one, which has them."""
    missing = [name for name in ("operator", "spark") if images.is_missing(name)]
    if os.environ.get("KUBECONFIG") or os.geteuid() != 0 or not missing:
        return False
    print(f"setup: building the images {', '.join(missing)}: 2 to 5 minutes", flush=True)
    try:
        for name in missing:
            images.build(name)
    except RuntimeError as error:
        raise SetupFailed(str(error)) from error
    return True


PARTS: dict[str, Callable[[], bool]] = {
    "venv": partial(make_venv, "dev"),
    "venv-demo": partial(make_venv, "demo"),
    "venv-demo-mysql": partial(make_venv, "demo,mysql"),
    "postgres": partial(make_postgres, *servers.POSTGRES_VERSIONS),
    "postgres-newest": partial(make_postgres, max(servers.POSTGRES_VERSIONS)),
    "mysql": partial(make_mysql, *mysql_packages.RELEASES),
    "mysql-newest": partial(make_mysql, "mysql-9"),
    "jars": partial(make_jars, *artifacts.JAR_SETS),
    "jars-lake": partial(make_jars, "lake"),
    "classes": make_classes,
    "s3": make_s3,
    "azurite": make_azurite,
    "bqemulator": make_bqemulator,
    "fakesnow": make_fakesnow,
    "duckdb-readers": make_duckdb_readers,
    "kubernetes": make_kubernetes,
    "node": make_node,
    "browser": make_browser,
    "helm": make_helm,
    "images": make_images,
}
FETCHED = {"postgres", "postgres-newest", "jars", "jars-lake", "node"}
"""Mostly waiting and unpacking: those that follow each other are made at the same time."""
DEFAULT = ("venv", "postgres", "jars", "classes")
GROUPS = {
    "demo-postgresql": ("venv-demo", "postgres-newest", "jars-lake"),
    "demo-mysql": ("venv-demo-mysql", "mysql-newest", "jars-lake"),
    "cluster": ("venv-demo", "postgres-newest", "jars", "node", "images", "kubernetes", "helm"),
}
"""The demo starts Spark once: to make the archive of classes takes longer than it saves. The cluster's images make
their own."""


def install(target: Path, fill: Callable[[Path], None]) -> bool:
    """Fill a temporary folder beside `target`, mark it ready, give it its name. False: it was there."""
    if artifacts.is_ready(target):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.parent / f".{target.name}.lock"):
        if artifacts.is_ready(target):  # another run finished it while this one waited
            return False
        shutil.rmtree(target, ignore_errors=True)
        with scratch_dir(target.parent) as temporary:
            made = temporary / target.name
            made.mkdir(mode=0o755)
            fill(made)
            (made / artifacts.READY).touch()
            made.rename(target)
    return True


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file; it is released with the process, however that ends."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def scratch_dir(parent: Path | None = None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=".setup-", dir=parent) as name:
        yield Path(name)


def pyspark_jars() -> Path:
    """PySpark's own jars: they hold Ivy."""
    found = sorted((VENV / "lib").glob("python3*/site-packages/pyspark/jars"))
    if not found:
        raise SetupFailed(f"no pyspark in {VENV}; run `make setup` (part venv comes first)")
    return found[0]


def run(command: list[str], environment: dict[str, str] | None = None, folder: Path | None = None) -> None:
    """Quietly: Go alone names hundreds of modules that it downloads. Of a failure the end is shown."""
    done = subprocess.run(
        command, env=environment, cwd=folder, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        said = "\n".join(done.stdout.splitlines()[-LAST_LINES:])
        raise SetupFailed(f"`{' '.join(command)}` ended with {done.returncode}:\n{said}")


if __name__ == "__main__":
    sys.exit(main())
