"""The plan of a replay and what of it is done: `plan.json`, and two files for each finished step, in the ledger.

Of step 2 of part 7, `00007-000002.crc` has the CRC of each message in the order of its rows, and `00007-000002.json`
their number and where they are stored; it is written last.

The plan is made once. A run that goes on with a ledger does what the plan says and no step says done, whatever has been
added to the archive since.
"""

from __future__ import annotations

import json
import uuid
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from rocketpy.errors import ConfigError, StoreError
from rocketpy.message.names import SYSTEM_TOPICS
from rocketpy.store.files import translated
from rocketpy.store.replaced_file import durably_replaced

from ..archived import files_by_topic
from ..running import locked

VERSION = 2
StepId = tuple[int, int]
"""The numbers of a part, and of a file of it."""
Begins = list[tuple[str, str, int, int]]
"""Topic, broker, queue id, and the queue's end before anything was sent."""


@attrs.frozen
class Wanted:
    """Which archived messages are sent, and where to."""

    topics: dict[str, str]  # archived topic to the topic that gets its messages; empty: all but system topics
    into: str | None = None  # the topic that gets the messages of all topics that are not in `topics`
    from_ms: int | None = None  # stored at or after
    to_ms: int | None = None  # stored before
    keys: frozenset[str] = frozenset()  # messages with one of them; empty: all
    where: str | None = None  # SQL92, on properties and the columns of conditions.py

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
class Step:
    """One file of a part, all of whose messages are stored."""

    rows: int
    stored: list[tuple[str, str, int, int]]  # target topic, broker, queue id, last queue offset
    refused: int = 0  # messages that no client may send; they are no rows


def crc_of(body: bytes, offset: int) -> int:
    """Of a message and its place in its source queue."""
    return zlib.crc32(body, zlib.crc32(b"%d" % offset))


def plan_parts(archive: Path, wanted: Wanted, parallel: int) -> list[Part]:
    """The parts of an archive as it is now, about `parallel` for each topic.

    Raises:
        StoreError: it cannot be read. ConfigError: it lacks one of the topics, or has nothing to send.
    """
    parts: list[Part] = []
    for broker, topics in files_by_topic(archive, wanted.topics).items():
        for topic, files in sorted(topics.items()):
            target = wanted.target_of(topic)
            if target is None:
                continue
            shards = max(1, min(parallel, len({queue for file in files for queue in file.queues})))
            paths = [file.path for file in files]
            for shard in range(shards):
                parts.append(Part(len(parts), topic, broker, target, shard, shards, paths))
    if not parts:
        raise ConfigError(f"{archive} has only system topics: name them with --topic to send them")
    return parts


@attrs.define
class Ledger:
    """The directory of a replay. One process has it open; workers write steps."""

    directory: Path
    identity: str = ""
    parts: list[Part] = attrs.field(factory=list)
    begins: Begins = attrs.field(factory=list)

    @classmethod
    @contextmanager
    def opened(
        cls, directory: Path, settings: Mapping[str, Any], plan: Callable[[], tuple[list[Part], Begins]]
    ) -> Iterator[Ledger]:
        """Lock the ledger, and read its plan, or make one with `plan()`.

        Raises:
            StoreError: another run is busy, or the plan cannot be read. ConfigError: it was made with other settings.
        """
        with translated(directory, "write"):
            directory.mkdir(parents=True, exist_ok=True)
        with locked(directory / "lock", f"{directory}: another run is using this ledger"):
            path = directory / "plan.json"
            if not path.exists():
                parts, begins = plan()
                document = {"version": VERSION, "identity": uuid.uuid4().hex, "settings": settings}
                _write_json(path, document | {"parts": [attrs.asdict(part) for part in parts], "begins": begins})
            yield cls._read(directory, path, settings)

    @classmethod
    def _read(cls, directory: Path, path: Path, settings: Mapping[str, Any]) -> Ledger:
        found = _read_json(path)
        if found.get("version") != VERSION:
            raise StoreError(f"{path} is of another version: finish it with the rocketpy that wrote it, or remove it")
        if found.get("settings") != json.loads(json.dumps(settings)):
            raise ConfigError(f"{directory} is the ledger of a replay with other settings: name a new one (--ledger)")
        with _understood(path):
            parts = [Part(**part) for part in found["parts"]]
            return cls(directory, found["identity"], parts, [tuple(one) for one in found["begins"]])

    def steps(self) -> Iterator[tuple[StepId, Step]]:
        """All finished steps."""
        for part in self.parts:
            for index in range(len(part.files)):
                if (step := read_step(self.directory, (part.number, index))) is not None:
                    yield (part.number, index), step


def read_step(ledger: Path, identity: StepId) -> Step | None:
    """Return the ledger's record of a finished step; None if the step is still to be done."""
    path = _step_path(ledger, identity, "json")
    if not path.exists():
        return None
    found = _read_json(path)
    with _understood(path):
        return Step(found["rows"], [tuple(one) for one in found["stored"]], found.get("refused", 0))


def read_crcs(ledger: Path, identity: StepId) -> array[int]:
    """The CRC of each message of a finished step. Raises StoreError."""
    path, crcs = _step_path(ledger, identity, "crc"), array("I")
    with translated(path, "read"), _understood(path):
        crcs.frombytes(path.read_bytes())
    return crcs


def write_step(ledger: Path, identity: StepId, crcs: array[int], step: Step) -> None:
    """Both files are on the disk when this returns."""
    _write(_step_path(ledger, identity, "crc"), crcs.tobytes())
    _write_json(_step_path(ledger, identity, "json"), attrs.asdict(step))


def _step_path(ledger: Path, identity: StepId, kind: str) -> Path:
    return ledger / f"{identity[0]:05d}-{identity[1]:06d}.{kind}"


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    _write(path, json.dumps(document).encode())


def _write(path: Path, content: bytes) -> None:
    with durably_replaced(path) as file:
        file.write(content)


def _read_json(path: Path) -> dict[str, Any]:
    with translated(path, "read"), _understood(path):
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("it is no JSON object")
        return found


@contextmanager
def _understood(path: Path) -> Iterator[None]:
    """Turn an error about a file's content into a StoreError that names the file."""
    try:
        yield
    except (ValueError, LookupError, TypeError) as error:
        raise StoreError(f"{path} cannot be read: {error}; a new replay needs a new --ledger") from error
