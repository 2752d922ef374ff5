"""The commands of the command line. Each takes the parsed options and returns the exit code."""

import argparse
import json
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from tailrace.cli import cut_text, cutover_text, request_options, snapshot_choice, verification_text
from tailrace.cli.client import DriverClient
from tailrace.contract import faults
from tailrace.contract.base import A_MINUTE
from tailrace.contract.cutover import SHORTEST_WITHIN
from tailrace.contract.driver import CutList, RetainedLog, SnapshotBody, SpecBody, VerificationReport
from tailrace.contract.manifest import Manifest, load
from tailrace.contract.resources import DeletionPolicy, ReplicatorSpec, SnapshotRequest
from tailrace.contract.snapshot_request import EVERY_TABLE
from tailrace.contract.status import Status
from tailrace.contract.units import seconds, size_text, zoned_time
from tailrace.driver.asking import live_spec
from tailrace.driver.asking.equality import Unfinished, require_equal
from tailrace.driver.process.run_dir import NotRunning, RunFolder
from tailrace.driver.telling import display
from tailrace.errors import CutOver, InvalidManifest, TailraceError, privacy
from tailrace.logs import visible
from tailrace.snapshot.planner import request_id
from tailrace.storage.secret_files import SECRETS_VARIABLE

log = logging.getLogger(__name__)
DROP_PAUSE = 5.0
"""Seconds between two attempts of `drop --wait` and `release --wait`."""
REPAIR = "Add --repair to read these rows again."
REPAIRED = "They have been read again: verify again, without --repair, to see that they are equal."


def manifest_of(options: argparse.Namespace) -> Manifest:
    """All files together."""
    parts = [load(path) for path in options.file]
    models = [model for part in parts for model in (*part.replicators, *part.requests)]
    return Manifest.of(models, ", ".join(map(str, options.file)))


def name_of(options: argparse.Namespace, manifest: Manifest) -> str:
    """The Replicator's name: given, the only one in the files, or the one that the requests are for."""
    if options.name is not None:
        return str(options.name)
    requested = {r.spec.replicator for r in manifest.requests}
    if not manifest.replicators and len(requested) == 1:
        return requested.pop()
    return manifest.replicator().metadata.name


def _client(options: argparse.Namespace) -> DriverClient:
    return _client_of(options, manifest_of(options))


def _client_of(options: argparse.Namespace, manifest: Manifest) -> DriverClient:
    name = name_of(options, manifest)
    meant = [r.spec.storage.location for r in manifest.replicators if r.metadata.name == name]
    return DriverClient.of(RunFolder.of(name, options.run_dir), meant[0] if meant else None)


def secrets_folder() -> Path | None:
    """The folder in which Secrets are mounted, inside a pod; None elsewhere."""
    named = os.environ.get(SECRETS_VARIABLE)
    return Path(named) if named is not None else None


def run(options: argparse.Namespace) -> int:
    manifest = manifest_of(options)
    replicator = manifest.replicator(options.name)
    if options.once:
        _check_once(replicator.spec)
    _check_requests(manifest)
    stop_at = None
    if options.stop_at is not None:
        from tailrace.cli import staying  # brings the storage

        stop_at = staying.record(replicator, options.stop_at, options.once)
    _check_signals(options)
    host, _, port = options.listen.rpartition(":")
    if not port.isdigit() or int(port) > 65535 or host.startswith("["):
        raise InvalidManifest(f"--listen {options.listen} is not HOST:PORT", "Write 127.0.0.1:8080.")
    from tailrace.driver import driver, launch  # pyspark takes seconds to import: what is wrong above is told before

    settings = launch.DriverSettings(
        replicator=replicator,
        requests=manifest.requests_of(replicator.metadata.name),
        folder=RunFolder.of(replicator.metadata.name, options.run_dir),
        once=options.once,
        json=options.json,
        host=host or "127.0.0.1",
        port=int(port),
        token_file=options.token_file,
        secrets=secrets_folder(),
        resync=options.resync,
        stop_at=stop_at,
        signals=options.signals,
        reread=lambda: manifest_of(options).replicator(options.name),
        log_format=options.log_format,
        log_level=options.log_level,
    )
    return driver.run(settings)


def _check_signals(options: argparse.Namespace) -> None:
    if options.signals is None:
        return
    if secrets_folder() is not None:
        raise InvalidManifest("--signals cannot be used in Kubernetes", "Create a SnapshotRequest.")
    if options.once:
        raise InvalidManifest(
            "--signals needs a process that keeps running, --once ends", "Put a SnapshotRequest into the manifest."
        )
    if options.signals.is_dir() or not options.signals.absolute().parent.is_dir():
        raise InvalidManifest(f"--signals {options.signals} is no file in an existing folder", "Correct the path.")


def _check_once(spec: ReplicatorSpec) -> None:
    if spec.suspend:
        raise InvalidManifest(
            "spec.suspend is true, so --once would copy nothing", "Set it to false, or run without --once."
        )
    if spec.apply.suspend:
        raise InvalidManifest(
            "spec.apply.suspend is true, so --once could never end", "Set it to false, or run without --once."
        )


def _check_requests(manifest: Manifest) -> None:
    """A request that names no Replicator of the files would never be taken, and a rewind must not wait for a start."""
    known = [r.metadata.name for r in manifest.replicators]
    for request in manifest.requests:
        if request.spec.replicator not in known:
            raise InvalidManifest(
                f"SnapshotRequest {request.metadata.name!r}: spec.replicator is {request.spec.replicator!r}, the files"
                f" hold {', '.join(known)}",
                "Correct spec.replicator.",
            )
        if request.spec.rewind is not None:
            raise InvalidManifest(
                f"SnapshotRequest {request.metadata.name!r}: mode Rewind is for Kubernetes",
                "Remove it from the files, and run `tailrace rewind`.",
            )


def status(options: argparse.Namespace) -> int:
    manifest = manifest_of(options)
    try:
        document = _client_of(options, manifest).status()
    except NotRunning as error:
        from tailrace.cli import cutover_done  # brings the database client

        ended = cutover_done.lines_of(manifest, name_of(options, manifest), secrets_folder())
        if not ended:
            raise
        if options.json:
            why = f"{error.message}, and a cutover has ended the replication"
            raise NotRunning(why, CutOver.usual_fix) from error
        print("\n".join(map(visible, ended)))
        return 0
    if options.json:
        print(document.model_dump_json(by_alias=True))
    else:
        display.console().print(display.render(document))
    return 0


def diff(options: argparse.Namespace) -> int:
    """Exits with 0 whether something changes or not: 1 and 2 mean what they mean for every command."""
    from tailrace.cli import difference  # brings the database client, where tables are concerned

    new = manifest_of(options).replicator(options.name)
    if options.old is not None:
        old = load(options.old).replicator(new.metadata.name)
    else:
        old = live_spec.kept(RunFolder.of(new.metadata.name, options.run_dir).path)
    found = difference.compare(old, new, secrets_folder())
    if options.json:
        print(json.dumps(found.document()))
    else:
        print("\n".join(found.lines()))
    return 0


def reload(options: argparse.Namespace) -> int:
    manifest = manifest_of(options)
    spec = manifest.replicator(options.name).spec
    if spec.suspend:
        raise InvalidManifest("spec.suspend is true", "To suspend outside Kubernetes, stop `tailrace run`.")
    answer = _client_of(options, manifest).change_spec(SpecBody(spec=spec))
    print(f"in effect: {', '.join(answer.changed)}" if answer.changed else "nothing changed")
    return 0


FLAGS = ("where", "keys", "chunk_rows", "parallelism", "id")
"""Options that are used with --tables; requests in a file contain them."""


def snapshot(options: argparse.Namespace) -> int:
    lost = [f"--{name.replace('_', '-')}" for name in FLAGS if getattr(options, name) is not None]
    if options.tables is None and lost:
        raise InvalidManifest(f"{', '.join(lost)}: no effect without --tables", "Add --tables.")
    manifest = manifest_of(options)
    name = name_of(options, manifest)
    if options.tables is None:
        requests = manifest.requests_of(name)
    else:
        requests = (request_options.of_rows(options, name, "tailrace"),)
    if not requests:
        raise InvalidManifest(f"the files hold no SnapshotRequest for {name}", "Add one, or use --tables.")
    client = _client_of(options, manifest)
    for request in requests:
        answer = client.request(request_id(request), SnapshotBody(name=request.metadata.name, spec=request.spec))
        print(f"{answer.id}: accepted, reads {visible(', '.join(answer.tables))}; `tailrace status` shows its progress")
    return 0


REPORT_PAUSE, PROGRESS_SECONDS = 0.5, 10.0


def verify(options: argparse.Namespace) -> int:
    manifest = manifest_of(options)
    name, mode = name_of(options, manifest), "Repair" if options.repair else "Verify"
    request = request_options.of_rows(options, name, "tailrace", mode=mode, sample=options.sample)
    found = _report(_client_of(options, manifest), request)
    if options.json:
        print(found.model_dump_json(by_alias=True))
    else:
        print("\n".join(map(visible, verification_text.lines(found))))
    require_equal(found, REPAIRED if options.repair else REPAIR)
    return 0


def _report(client: DriverClient, request: SnapshotRequest) -> VerificationReport:
    answer = client.request(request_id(request), SnapshotBody(name=request.metadata.name, spec=request.spec))
    found, told = client.report(answer.id), time.monotonic()
    while not found.over:
        time.sleep(REPORT_PAUSE)
        found = client.report(answer.id)
        if time.monotonic() > told + PROGRESS_SECONDS:
            told = time.monotonic()
            done, rows = sum(t.finished for t in found.tables), sum(t.compared.rows for t in found.tables)
            log.info("%d of %d tables compared, %d rows so far", done, len(found.tables), rows)
    return found


@dataclass
class _Running:
    """The running driver, for a cutover; one that was completed before does without."""

    options: argparse.Namespace
    manifest: Manifest
    name: str

    @cached_property
    def client(self) -> DriverClient:
        return _client_of(self.options, self.manifest)

    def status(self) -> Status:
        return self.client.status()

    def verify(self, tables: Sequence[str]) -> None:
        request = request_options.of_tables(self.options, self.name, tables, "tailrace", mode="Verify")
        found = _report(self.client, request)
        for line in map(visible, verification_text.lines(found)):
            log.info("%s", line)
        require_equal(found, REPAIR)


def cutover(options: argparse.Namespace) -> int:
    from tailrace.driver.asking.cutover import Cutover, CutoverOptions  # brings the database client
    from tailrace.places import Places

    if seconds(options.verified_within) < SHORTEST_WITHIN:
        raise InvalidManifest(
            f"--verified-within is {options.verified_within}: {A_MINUTE}", "Write 1h, or leave it out."
        )
    manifest = manifest_of(options)
    replicator = manifest.replicator(options.name)
    privacy.configure(replicator.spec.show_values)
    chosen = CutoverOptions(
        seconds(options.timeout),
        options.writers_stopped,
        options.check,
        options.accept_missing,
        seconds(options.verified_within),
    )
    running = _Running(options, manifest, replicator.metadata.name)
    places = Places(replicator.spec, "tailrace cutover", secrets_folder())
    report = Cutover(replicator, places, running, chosen, lambda line: log.info("%s", visible(line))).run()
    if options.json:
        print("{}" if report is None else report.model_dump_json(by_alias=True))
    elif report is None:
        print("ready for the cutover")
    else:
        print("\n".join(map(visible, cutover_text.lines(report, options.file))))
    return 0


def cut(options: argparse.Namespace) -> int:
    client, patience = _client(options), seconds(options.wait)
    if options.drop:
        if options.cut is None:
            raise InvalidManifest("--drop needs the name of a cut", "`tailrace cuts` shows the names.")
        client.drop_cut(options.cut)
        print(f"{options.cut}: dropped")
        return 0
    made = client.make_cut(options.cut or time.strftime("%Y%m%d_%H%M%S", time.gmtime()))
    until = time.monotonic() + patience
    while made.waits and time.monotonic() < until:
        time.sleep(REPORT_PAUSE)
        made = next((one for one in client.cuts() if one.name == made.name), made)
    if options.json:
        print(made.model_dump_json(by_alias=True))
    else:
        print("\n".join(map(visible, cut_text.lines(made))))
    lacking = [table.name for table in made.tables if table.why is not None]
    if not made.complete and lacking:
        fix = f"`tailrace cuts` says when they are; to drop the cut: tailrace cut -f <manifest> --drop {made.name}"
        raise Unfinished(f"cut {made.name} lacks {', '.join(lacking)}", fix)
    return 0


def cuts(options: argparse.Namespace) -> int:
    found = _client(options).cuts()
    if options.json:
        print(CutList(cuts=found).model_dump_json(by_alias=True))
    else:
        print("\n".join(map(visible, cut_text.listing(found))))
    return 0


def rewind(options: argparse.Namespace) -> int:
    from tailrace.driver.asking import rewind as rewinding  # brings pyspark
    from tailrace.driver.asking.rewind_notes import RewindNotes
    from tailrace.places import Places

    moment = rewinding.WantedCut(options.to_cut, _moment(options.to_time), options.to_record)
    replicator = manifest_of(options).replicator(options.name)
    folder = RunFolder.of(replicator.metadata.name, options.run_dir)
    folder.take()  # a running driver would bring the tables forward again at once
    places, notes = Places(replicator.spec, "tailrace rewind", secrets_folder()), RewindNotes(folder.path)
    moved = False
    try:
        with rewinding.session_of(places, folder.path) as spark:
            for done in rewinding.rewind(replicator, places, spark, moment, options.tables):
                if isinstance(done, rewinding.Rewound):
                    moved = moved or not done.already
                    what = "already there" if done.already else f"back at version {done.version}"
                    print(visible(f"  {done.table}: {what}"), flush=True)
                else:
                    notes.begun(done)
                    print(f"cut {done.cut}, record {done.record}:", flush=True)
        notes.done(moved)
    finally:
        folder.release()
    print("the next start replays the change log from there")
    return 0


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    found = zoned_time(text)
    if found is None:
        raise InvalidManifest(f"--to-time {text} is no time with a zone", "Write 2026-11-28T12:00:00Z.")
    return found


def resync(options: argparse.Namespace) -> int:
    """Like a snapshot, of the running process; `--all` also where none can run, because the position is lost."""
    manifest = manifest_of(options)
    name = name_of(options, manifest)
    if options.all and options.tables is not None:
        raise InvalidManifest("--all covers every table, --tables names some", "Leave one of them out.")
    if not options.all and options.tables is None:
        raise InvalidManifest("resync needs --tables or --all", "Add one of them.")
    request = request_options.of_tables(options, name, options.tables or [EVERY_TABLE], "tailrace", resync=True)
    try:
        client = _client_of(options, manifest)
        answer = client.request(request_id(request), SnapshotBody(name=request.metadata.name, spec=request.spec))
    except NotRunning:
        if not options.all:
            raise
        return _resync_at_start(options, manifest, request)
    print(
        f"{answer.id}: accepted, starts over {visible(', '.join(answer.tables))}; `tailrace status` shows its progress"
    )
    return 0


def _resync_at_start(options: argparse.Namespace, manifest: Manifest, request: SnapshotRequest) -> int:
    from tailrace.capture.admission import check_manifest  # brings the clients of database and storage
    from tailrace.capture.renewal import Renewal
    from tailrace.changelog.journal import JournalReader
    from tailrace.places import Places

    replicator = manifest.replicator(options.name)
    storage = Places(replicator.spec).storage
    state = JournalReader.open(storage).state
    if state.origin is None:
        raise InvalidManifest(
            f"there is no change log at {storage.root}",
            "Correct storage.location, in Kubernetes too before the Replicator is created; a first start reads every"
            " table anyway.",
        )
    if not state.released:
        check_manifest(replicator, storage.root, state.owner)
    name = request.metadata.name
    if state.has_done(name):
        raise InvalidManifest(f"the change log has done resync {name!r} already", "Give another --id, or none.")
    spec = request.spec
    made = Renewal(id=name, request=name, chunk_rows=spec.chunk_rows, parallelism=spec.parallelism)
    made.write(storage)
    ours = ", ".join(state.origin.made)
    does = f"re-creates {ours}, even if it is healthy, and " if ours else ""
    print(f"{made.id}: recorded; the next start {does}reads every table again")
    return 0


def change_snapshot(options: argparse.Namespace) -> int:
    """pause, resume, stop."""
    client = _client(options)
    chosen = snapshot_choice.choose(client.status().snapshots, options.snapshot, options.verb)
    if chosen.state not in snapshot_choice.UNDER_WAY:
        print(f"{chosen.id}: nothing to stop, it has ended: {chosen.state}")
        return 0
    if options.verb == "stop":
        client.stop(chosen.id)
    else:
        client.suspend(chosen.id, options.verb == "pause")
    print(f"{chosen.id}: {options.verb} done")
    return 0


def drop(options: argparse.Namespace) -> int:
    return _leave(options, "Delete" if options.data else "Retain")


def release(options: argparse.Namespace) -> int:
    return _leave(options, "Orphan")


def _leave(options: argparse.Namespace, policy: DeletionPolicy) -> int:
    from tailrace.removal import drop as dropping  # brings the database client
    from tailrace.sources.api import RemovalStep

    replicator = manifest_of(options).replicator(options.name)
    folder = RunFolder.of(replicator.metadata.name, options.run_dir)
    folder.take()  # the slot of a Replicator that runs here is in use
    until = time.monotonic() + seconds(options.wait)
    steps: list[RemovalStep] = []
    try:
        while True:
            try:
                for step in dropping.leave(replicator, secrets_folder(), folder.path, policy):
                    print(visible(str(step)), flush=True)
                    steps.append(step)
                break
            except InvalidManifest:
                raise
            except TailraceError as error:  # refusals too: rights, passwords and Secrets may be repaired meanwhile
                if time.monotonic() + DROP_PAUSE > until:
                    raise
                log.warning("%s; trying again in %.0f s", error, DROP_PAUSE)
                time.sleep(DROP_PAUSE)
    finally:
        folder.release()
    faults.leave_report(dropping.report_of(replicator, steps, complete=True))
    return 0


def retained(options: argparse.Namespace) -> int:
    from tailrace.cli.retained import retained_bytes  # brings the database client

    replicator = manifest_of(options).replicator(options.name)
    found = RetainedLog(bytes=retained_bytes(replicator, secrets_folder()), at=time.time())
    faults.leave_retained(found)
    if options.json:
        print(json.dumps({"retainedBytes": found.bytes}))
        return 0
    size = "no log" if found.bytes is None else f"{size_text(found.bytes)} of log"
    print(f"the source keeps {size} for {replicator.metadata.name}")
    return 0


def console(options: argparse.Namespace) -> int:
    from tailrace.cli.console import serve  # brings the web server
    from tailrace.cli.console.local import LocalReplicator

    watched = [
        LocalReplicator(replicator, path, options.run_dir, several=len(manifest.replicators) > 1)
        for path, manifest in ((path, load(path)) for path in options.file)
        for replicator in manifest.replicators
        if options.name in (None, replicator.metadata.name)
    ]
    return serve.run(watched, options.listen, options.token_file, actions=options.allow_actions)


def doctor(options: argparse.Namespace) -> int:
    from tailrace.cli import assessment
    from tailrace.driver.asking.doctor import examine  # brings the database client, which `status` does without
    from tailrace.places import Places

    replicator = manifest_of(options).replicator(options.name)
    privacy.configure(replicator.spec.show_values)
    report = examine(replicator, Places(replicator.spec, "tailrace doctor", secrets_folder()))
    if options.json:
        print(json.dumps(assessment.document(report)))
        return report.exit_code
    for line in (*report.lines, *assessment.lines(report)):
        print(line)
    print("ready" if report.exit_code == 0 else "not ready")
    return report.exit_code
