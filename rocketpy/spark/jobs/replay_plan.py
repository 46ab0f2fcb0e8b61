"""The plan of a replay and what of it is done: `plan.json` and a file for each finished step, in the ledger.

The plan is made once. A run that goes on with a ledger does what the plan says and no step says done, whatever has been
added to the archive since.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import attrs

from rocketpy.errors import ConfigError, StoreError
from rocketpy.message.names import SYSTEM_TOPICS
from rocketpy.store.files import translated

from .archive_log import ArchivedFile, files_of, manifests_of

VERSION = 1
HASHES = 1 << 64  # sums of hashes wrap


@attrs.frozen
class Wanted:
    """Which archived messages are sent, and where to."""

    topics: dict[str, str]  # archived topic to the topic that gets its messages; empty: all but system topics
    into: str | None = None  # the topic that gets the messages of all topics that are not in `topics`
    from_ms: int | None = None  # stored at or after
    to_ms: int | None = None  # stored before
    keys: frozenset[str] = frozenset()  # messages with one of them; empty: all
    where: str | None = None  # SQL92, on properties and the columns of replay_conditions.py

    def target_of(self, topic: str) -> str | None:
        """None: its messages are not sent."""
        if self.topics:
            return self.topics.get(topic)
        is_system = topic in SYSTEM_TOPICS or topic.startswith(("%RETRY%", "%DLQ%"))
        return None if is_system else self.into or topic


@attrs.frozen
class Part:
    """Some queues of an archived topic. Their files are sent one after the other, so the order of a queue is kept."""

    number: int
    topic: str
    broker: str
    target: str
    shard: int
    shards: int  # a part has the queues whose id % shards is `shard`
    files: list[str]  # below the archive


@attrs.frozen
class Sent:
    """What was sent of one source queue: a number of messages, and the sum of their hashes."""

    count: int
    hashes: int

    def __add__(self, other: Sent) -> Sent:
        return Sent(self.count + other.count, (self.hashes + other.hashes) % HASHES)


@attrs.frozen
class Step:
    """One file of a part, all of whose messages are stored."""

    queues: dict[str, Sent]  # by source queue id
    stored: list[tuple[str, str, int, int, int]]  # target topic, broker, queue id, first and last queue offset


def plan_parts(archive: Path, wanted: Wanted, parallel: int) -> list[Part]:
    """The parts of an archive as it is now, about `parallel` for each topic.

    Raises:
        StoreError: it cannot be read. ConfigError: it has no such messages.
    """
    parts: list[Part] = []
    for broker, manifests in manifests_of(archive).items():
        topics: dict[str, list[ArchivedFile]] = {}
        for file in files_of(manifests):
            topics.setdefault(unquote(file.path.split("/")[0].removeprefix("topic=")), []).append(file)
        for topic, files in sorted(topics.items()):
            target = wanted.target_of(topic)
            if target is None:
                continue
            shards = max(1, min(parallel, len({queue for file in files for queue in file.queues})))
            paths = [file.path for file in files]
            for shard in range(shards):
                parts.append(Part(len(parts), topic, broker, target, shard, shards, paths))
    if not parts:
        raise ConfigError(f"{archive} has none of these topics")
    return parts


@attrs.define
class Ledger:
    """The directory of a replay. One process has it open; workers write steps."""

    directory: Path
    identity: str = ""
    parts: list[Part] = attrs.field(factory=list)

    @classmethod
    @contextmanager
    def opened(cls, directory: Path, settings: Mapping[str, Any], plan: Any) -> Iterator[Ledger]:
        """Lock the ledger, and read its plan, or make one with `plan()`.

        Raises:
            StoreError: another run is busy, or the plan cannot be read. ConfigError: it was made with other settings.
        """
        with translated(directory, "write"):
            directory.mkdir(parents=True, exist_ok=True)
        with (directory / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(f"{directory}: another run is using this ledger") from None
            path, ledger = directory / "plan.json", cls(directory)
            if not path.exists():
                parts = [attrs.asdict(part) for part in plan()]
                document = {"version": VERSION, "identity": uuid.uuid4().hex, "settings": settings, "parts": parts}
                _write(path, document)
            found = _read(path)
            if found.get("version") != VERSION or found.get("settings") != json.loads(json.dumps(settings)):
                raise ConfigError(
                    f"{directory} is the ledger of a replay with other settings: name a new one (--ledger)"
                )
            ledger.identity = found["identity"]
            ledger.parts = [Part(**part) for part in found["parts"]]
            yield ledger

    def steps(self) -> Iterator[tuple[Part, Step]]:
        """All finished steps."""
        for part in self.parts:
            for index in range(len(part.files)):
                if (step := read_step(self.directory, part, index)) is not None:
                    yield part, step


def read_step(ledger: Path, part: Part, index: int) -> Step | None:
    """What the step of the part's file has sent; None if it is to be done."""
    path = _step_path(ledger, part, index)
    if not path.exists():
        return None
    found = _read(path)
    queues = {queue: Sent(count, hashes) for queue, (count, hashes) in found["queues"].items()}
    return Step(queues, [tuple(one) for one in found["stored"]])


def write_step(ledger: Path, part: Part, index: int, step: Step) -> None:
    queues = {queue: [sent.count, sent.hashes] for queue, sent in step.queues.items()}
    _write(_step_path(ledger, part, index), {"queues": queues, "stored": step.stored})


def stored_ranges(steps: Iterable[tuple[Part, Step]]) -> list[tuple[str, str, int, int, int]]:
    """One range for each target queue, from the first to the last offset of its messages."""
    ranges: dict[tuple[str, str, int], tuple[int, int]] = {}
    for _, step in steps:
        for topic, broker, queue_id, first, last in step.stored:
            low, high = ranges.get((topic, broker, queue_id), (first, last))
            ranges[topic, broker, queue_id] = min(low, first), max(high, last)
    return [(*queue, low, high) for queue, (low, high) in sorted(ranges.items())]


def _step_path(ledger: Path, part: Part, index: int) -> Path:
    return ledger / f"{part.number:05d}-{index:06d}.json"


def _write(path: Path, document: Mapping[str, Any]) -> None:
    unnamed = path.with_name(f"{path.name}.{os.getpid()}")
    with translated(path, "write"):
        with unnamed.open("w", encoding="utf-8") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        unnamed.replace(path)


def _read(path: Path) -> dict[str, Any]:
    with translated(path, "read"):
        text = path.read_text(encoding="utf-8")
    try:
        found: dict[str, Any] = json.loads(text)
        return found
    except ValueError as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
