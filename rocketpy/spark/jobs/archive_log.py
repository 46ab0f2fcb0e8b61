"""The commit log of an archive: `_rocketpy/BROKER/00000001.json` and so on, a manifest of each run of job archive.

A manifest is created under its final name in one step, so it is there as a whole or not at all: this is the commit.
Spark does not look into directories whose names begin with `_`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath

import attrs

from rocketpy.atomic_file import make_directory, sync_directory
from rocketpy.errors import ConfigError, StoreError
from rocketpy.store.files import translated
from rocketpy.store.replaced_file import durably_created

from ..offsets import Firsts, firsts_of, tree_of_firsts
from .running import locked

VERSION = 1
Positions = dict[str, dict[str, int]]
"""Topic, queue id, and the offset up to which the queue is archived."""
PENDING = "pending"  # directory of files that are not yet where readers look
BROKER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,126}")


@attrs.frozen
class ArchivedFile:
    """One Parquet file: its path below the archive, and the first and last queue offset of each queue in it.

    `attempt` is the directory below `pending` that a worker has written it to. Each attempt at a task has its own:
    Spark may run a task twice at once, or one of a run that was killed may still be writing, and neither may change a
    file that a manifest names.
    """

    path: str
    rows: int
    bytes: int
    queues: dict[str, list[int]]
    attempt: str = ""


@attrs.frozen
class Manifest:
    """The files that a run has archived, with the records from the phy offset `begin` up to `end`.

    A compaction has `begin` equal to `end`: its files have the rows of the files in `removed`. Files in `bad` are of
    the side table (archive.py); they have no queues. The archive of topics has `positions` instead of phy offsets, and
    the first messages of its topics (first_messages.py), which manifests of older releases lack.
    """

    begin: int
    end: int
    files: list[ArchivedFile]
    removed: list[str] = attrs.field(factory=list)
    bad: list[ArchivedFile] = attrs.field(factory=list)
    positions: Positions = attrs.field(factory=dict)
    firsts: Firsts = attrs.field(factory=dict)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def all_files(self) -> list[ArchivedFile]:
        """Return all files, including the side table's."""
        return [*self.files, *self.bad]

    def encode(self) -> bytes:
        """Return the text of the manifest's file."""
        fields = attrs.asdict(self, filter=attrs.filters.exclude("firsts"))
        return json.dumps({"version": VERSION, **fields, "firsts": tree_of_firsts(self.firsts)}).encode()


@attrs.define
class ArchiveLog:
    """The manifests of one broker's archive. One process has it open."""

    target: Path
    directory: Path
    number: int = 0  # of the last manifest
    end: int | None = None  # phy offset up to which the log is archived
    positions: Positions = attrs.field(factory=dict)  # of the archive of topics
    firsts: Firsts = attrs.field(factory=dict)  # of its topics

    @property
    def pending(self) -> Path:
        """The directory in which workers write the files of this run."""
        return self.directory / PENDING

    @classmethod
    @contextmanager
    def opened(cls, target: Path, broker: str) -> Iterator[ArchiveLog]:
        """Lock the log, complete the last run, and remove what a run without manifest has left.

        Raises:
            StoreError: another process has it open, or a manifest cannot be read.
            ConfigError: the name does not suit a file.
        """
        if not BROKER.fullmatch(broker):
            raise ConfigError(f'broker name "{broker}" has characters that do not suit a file name')
        log = cls(target, directory_of(target, broker))
        log.pending.mkdir(parents=True, exist_ok=True)
        with locked(log.directory / "lock", f"{target}: another run archives broker {broker}"):
            last = log._read_last()
            if last is not None:
                log.end, log.positions, log.firsts = last.end, last.positions, last.firsts
                log._publish(last)
            # A task of a job that Spark has given up may still write there. Its files have no manifest.
            shutil.rmtree(log.pending, ignore_errors=True)
            log.pending.mkdir(exist_ok=True)
            yield log

    def commit(self, manifest: Manifest) -> Manifest:
        """Make a run's files part of the archive. Without positions or first messages the last manifest's stay."""
        positions, firsts = manifest.positions or self.positions, manifest.firsts or self.firsts
        manifest = attrs.evolve(manifest, positions=positions, firsts=firsts)
        path = self.directory / f"{self.number + 1:08}.json"
        with durably_created(path) as file:
            file.write(manifest.encode())
        self.number, self.end, self.positions, self.firsts = self.number + 1, manifest.end, positions, firsts
        self._publish(manifest)
        return manifest

    def _publish(self, manifest: Manifest) -> None:
        """Move the files of a manifest to where readers look; skip files that were moved before.

        The directories are synced at return, so a later run has at most the last manifest to complete.
        """
        added = [(self.pending / file.attempt / file.path, self.target / file.path) for file in manifest.all_files]
        removed = [self.target / path for path in manifest.removed]
        with translated(self.target, "write"):
            for source, place in added:
                if source.exists():
                    make_directory(place.parent)
                    source.replace(place)
                elif not place.exists():
                    raise StoreError(f"{place} is in manifest {self.number}, but is gone")
            for place in removed:
                place.unlink(missing_ok=True)
            directories = {path.parent for path in (*(place for _, place in added), *removed)}
            for directory in filter(Path.exists, directories):
                sync_directory(directory)

    def _read_last(self) -> Manifest | None:
        paths = manifest_paths(self.directory)
        if not paths:
            return None
        self.number = int(paths[-1].stem)
        return read_manifest(paths[-1])


def directory_of(target: Path, broker: str) -> Path:
    """Return the directory of a broker's manifests."""
    return target / "_rocketpy" / broker


def manifest_paths(directory: Path) -> list[Path]:
    """The manifests in the directory of a broker, in order."""
    return sorted(path for path in directory.glob("*.json") if path.stem.isdecimal())


def read_manifest(path: Path) -> Manifest:
    """One manifest. Raises StoreError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found.pop("version") != VERSION:
            raise StoreError(f"{path} is of another version: use the rocketpy that wrote it, or a newer one")
        files, bad = ([ArchivedFile(**file) for file in found.get(name, [])] for name in ("files", "bad"))
        removed, positions, firsts = found.get("removed", []), found.get("positions", {}), found.get("firsts", {})
        _refuse_places_outside([*files, *bad], removed)
        return Manifest(found["begin"], found["end"], files, removed, bad, positions, firsts_of(firsts))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error


def _refuse_places_outside(files: Iterable[ArchivedFile], removed: Iterable[str]) -> None:
    """Raise ValueError if a file to move or remove is outside of the archive: others may write to its directory."""
    for path in (*(file.path for file in files), *removed):
        if not path or PurePath(path).is_absolute() or ".." in PurePath(path).parts:
            raise ValueError(f'"{path}" is no path below the archive')
    for attempt in (file.attempt for file in files):
        if attempt == ".." or PurePath(attempt).name != attempt:
            raise ValueError(f'"{attempt}" is no directory of an attempt')


def files_of(manifests: Iterable[Manifest]) -> list[ArchivedFile]:
    """The files that are there after these manifests, in the order of the log; days of one piece in their order."""
    files: dict[str, ArchivedFile] = {}
    for manifest in manifests:
        files.update({file.path: file for file in manifest.files})
        for path in manifest.removed:
            files.pop(path, None)
    return sorted(files.values(), key=lambda file: (file.path.rsplit("-", 1)[1], file.path))


def brokers_of(target: Path) -> dict[str, list[Path]]:
    """The brokers of an archive, and the paths of their manifests, in order; none if it is not there."""
    directories = sorted(path for path in (target / "_rocketpy").glob("*") if path.is_dir())
    return {directory.name: manifest_paths(directory) for directory in directories}


def manifests_of(target: Path) -> dict[str, list[Manifest]]:
    """All manifests of an archive by broker, in order.

    Raises:
        StoreError: there is none, or one cannot be read.
    """
    found = {broker: [read_manifest(path) for path in paths] for broker, paths in brokers_of(target).items()}
    if not any(found.values()):
        raise StoreError(
            f"{target} is no archive: it has no manifests in _rocketpy (rocketpy pipeline archive makes one)"
        )
    return found
