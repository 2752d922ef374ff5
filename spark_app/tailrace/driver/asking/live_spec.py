"""The spec that the driver uses, and its replacement while the driver runs.

    HTTP thread ── offer() ──> LiveSpec <── next(), take(), settle() ── main loop

The parts ask `spec` whenever they use a field of `LIVE_FIELDS`. All other fields are read at the driver's start, so a
spec that differs in one of them is refused. A container that starts again in the same pod may find an older manifest
mounted than the one it worked by, so that one is kept in the run directory (`newest`).
"""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tailrace.contract.change import effect
from tailrace.contract.driver import SpecAnswer, SpecBody
from tailrace.contract.resources import Replicator, ReplicatorSpec
from tailrace.driver.process.run_dir import writing
from tailrace.errors import InvalidManifest, Retry, TailraceError

PATIENCE = 20.0
"""Seconds that a change may take before its client must ask again."""


@dataclass
class Offer:
    """A spec that the driver is asked to use."""

    replicator: Replicator
    settled: threading.Event = field(default_factory=threading.Event)
    error: TailraceError | None = None
    """The reason why it cannot be used, once it is settled; None: it is used."""


class LiveSpec:
    """Thread-safe. `accepts` is False until the main loop runs."""

    def __init__(self, replicator: Replicator) -> None:
        self._replicator = self._before = replicator
        self._generation = replicator.metadata.generation
        self._lock = threading.Lock()
        self._offer: Offer | None = None
        self.accepts = False

    @property
    def replicator(self) -> Replicator:
        return self._replicator

    @property
    def spec(self) -> ReplicatorSpec:
        return self._replicator.spec

    @property
    def generation(self) -> int | None:
        """The generation of the newest spec that all parts use."""
        return self._generation

    def offer(self, body: SpecBody, patience: float = PATIENCE) -> SpecAnswer:
        """Returns once the driver uses it. `InvalidManifest`: it differs in a field that only a restart changes.
        `Retry`: not yet; it stays offered unless another one follows."""
        if not self.accepts:
            raise Retry("the driver is still starting", "Ask again in a few seconds.")
        with self._lock:
            changed = tuple(differences(self.spec, body.spec))
            fixed = [name for name in changed if effect(name) not in ("live", "operator")]
            if fixed:
                raise InvalidManifest(
                    f"{', '.join(fixed)} cannot be changed while the driver runs", "Restart it to change this."
                )
            metadata = self._replicator.metadata.model_copy(update={"generation": body.generation})
            requested = self._replicator.model_copy(update={"metadata": metadata, "spec": body.spec})
            if requested == self._replicator:
                self._withdraw()
                return SpecAnswer(changed=())
            if self._offer is None or self._offer.replicator != requested:
                self._offer = Offer(requested)
            offer = self._offer
        if not offer.settled.wait(patience):
            raise Retry(
                "the new spec takes effect once the chunks that are being read are finished",
                "Wait, or restart the driver (`restartNonce`), which ends them.",
            )
        if offer.error is not None:
            raise offer.error
        return SpecAnswer(changed=changed)

    def _withdraw(self) -> None:
        """Withdraws the waiting spec."""
        offer, self._offer = self._offer, None
        if offer is not None:
            offer.error = Retry("the spec was changed back meanwhile", "Ask again.")
            offer.settled.set()

    def next(self) -> Offer | None:
        """The next offered spec."""
        return self._offer

    def take(self, offer: Offer) -> bool:
        """`spec` is the offered one from now on. False: it was withdrawn, or another one has taken its place."""
        with self._lock:
            if self._offer is not offer:
                return False
            self._offer, self._replicator, self._before = None, offer.replicator, self._replicator
            return True

    def settle(self, offer: Offer, error: TailraceError | None = None) -> None:
        """All parts now use the spec that was taken; with an `error`, they continue with the one before."""
        with self._lock:
            if error is None:
                self._generation = offer.replicator.metadata.generation
            else:
                self._replicator = self._before
        offer.error = error
        offer.settled.set()


def differences(before: ReplicatorSpec, after: ReplicatorSpec) -> Iterator[str]:
    """Fields with different values, as users write them: `tables.include`, `retention.time`, `options`."""
    old, new = (spec.model_dump(mode="json", by_alias=True) for spec in (before, after))
    for name in new:
        yield from _within(name, old[name], new[name])


def _within(name: str, old: Any, new: Any) -> Iterator[str]:
    if old == new:
        return
    before, after = ({} if value is None else value for value in (old, new))  # a block that only one of them has
    if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        yield name
        return
    inner = [f for key in {**before, **after} for f in _within(f"{name}.{key}", before.get(key), after.get(key))]
    yield from inner or [name]


def of_capture(spec: ReplicatorSpec) -> tuple[object, ...]:
    """The fields that capture reads at its start."""
    policies = spec.on_schema_change, spec.on_table_drop
    times = spec.freshness, spec.retry.time, spec.retention
    return spec.tables, spec.options, *policies, spec.snapshot.initial, *times


def of_chunks(spec: ReplicatorSpec) -> tuple[object, ...]:
    """The fields that decide the form of a chunk: no chunk may be under way while they change."""
    return spec.tables, spec.options


def keep(folder: Path, replicator: Replicator) -> bool:
    """Stores the manifest for capture, and for `newest`. False: the same one is stored already."""
    copy = path(folder)
    document = replicator.model_dump_json(by_alias=True, exclude_none=True, exclude_unset=True)
    with writing(folder):
        if copy.exists() and copy.read_text("utf-8") == document:
            return False
        beside = copy.with_suffix(".new")
        beside.write_text(document, "utf-8")
        beside.replace(copy)
    return True


def newest(folder: Path, mounted: Replicator) -> Replicator:
    """The mounted manifest, or the one that the last driver of this run directory worked by if that is a newer
    generation of the same object."""
    try:
        kept = Replicator.model_validate_json(path(folder).read_text("utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError):
        return mounted
    here, there = mounted.metadata, kept.metadata
    if here.uid is None or here.uid != there.uid or here.generation is None or there.generation is None:
        return mounted
    return kept if there.generation > here.generation else mounted


def kept(folder: Path) -> Replicator:
    """The manifest that the driver of this run directory uses, or the last one used."""
    try:
        return Replicator.model_validate_json(path(folder).read_text("utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        raise InvalidManifest(
            f"no driver of this version has run in {folder}, so there is no manifest to compare with",
            "Name the one that it was started with: --old FILE, or add its --run-dir.",
        ) from error


def path(folder: Path) -> Path:
    """The path of the manifest that capture reads."""
    return folder / "replicator.json"
