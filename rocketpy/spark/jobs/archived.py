"""The files of an archive as its manifests name them: what readers of an archive go by.

A listing of the directory is not the same: after a run that was killed while it moved files, rows are there twice or
not yet. Manifests name each row once.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

from rocketpy.errors import ConfigError, StoreError

from ..columns import nearest
from .archive_log import PENDING, ArchivedFile, directory_of, files_of, manifest_paths, manifests_of, read_manifest

NAMED_MAX = 20  # topics in an error


def topic_of(file: ArchivedFile) -> str:
    return unquote(file.path.split("/", 1)[0].removeprefix("topic="))


def files_by_topic(archive: Path, topics: Iterable[str] = ()) -> dict[str, dict[str, list[ArchivedFile]]]:
    """The files of each broker by topic, in the order of the log.

    Args:
        topics: those that are wanted; all if there is none.
    Raises:
        ConfigError: the archive lacks one of these topics. StoreError: manifests are missing or cannot be read.
    """
    found: dict[str, dict[str, list[ArchivedFile]]] = {}
    for broker, manifests in manifests_of(archive).items():
        of_broker = found.setdefault(broker, {})
        for file in files_of(manifests):
            of_broker.setdefault(topic_of(file), []).append(file)
    known = sorted({topic for of_broker in found.values() for topic in of_broker})
    wanted = set(topics)
    if unknown := sorted(wanted - set(known)):
        others = ", ".join(known[:NAMED_MAX]) + (", ..." if len(known) > NAMED_MAX else "")
        hint = nearest(unknown[0], known) or "."
        raise ConfigError(f"{archive} has no topic {unknown[0]}{hint} It has {others or 'none'}")
    if not wanted:
        return found
    return {
        broker: {topic: files for topic, files in of_broker.items() if topic in wanted}
        for broker, of_broker in found.items()
    }


def place_of(archive: Path, broker: str, path: str) -> tuple[Path, Path]:
    """The directory that a file's path is below, and where the file is now: a run that was killed after its manifest,
    the last one, leaves files where it wrote them.

    Raises:
        StoreError: it is in neither place.
    """
    if (archive / path).exists():
        return archive, archive / path
    directory = directory_of(archive, broker)
    paths = manifest_paths(directory)
    for file in read_manifest(paths[-1]).files if paths else ():
        base = directory / PENDING / file.attempt
        if file.path == path and (base / path).exists():
            return base, base / path
    reason = "it was removed, or --compact has merged it meanwhile"
    raise StoreError(f"{archive / path} is in a manifest of broker {broker}, but is gone: {reason}")
