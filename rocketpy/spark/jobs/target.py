"""The directory of a streaming job: it belongs to one query, which every run goes on with, and holds its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from rocketpy.atomic_file import make_directory
from rocketpy.errors import ConfigError, StoreError
from rocketpy.store.files import translated
from rocketpy.store.replaced_file import durably_replaced

from .running import locked

CHECKPOINT, LOCK = "checkpoint", "lock"


CONNECTION = frozenset({"name_server", "connection"})
"""Attributes of what is asked that may change from run to run, and are not written down: they may hold secrets."""


def asked_of(wanted: Any) -> dict[str, Any]:
    """Return the attributes of an attrs object except its connection to brokers."""
    return attrs.asdict(wanted, filter=lambda field, _: field.name not in CONNECTION)


@contextmanager
def claimed(target: Path, name: str, asked: Mapping[str, Any]) -> Iterator[None]:
    """Make the target if it is not there, and hold it for one run: two at once would do the same micro-batch, and take
    away each other's files.

    Raises:
        StoreError: another run is using it. ConfigError: as `check_same`.
    """
    with translated(target, "write"):
        target.mkdir(parents=True, exist_ok=True)
    with locked(target / LOCK, f"{target}: another run is using this target"):
        check_same(target, name, asked)
        yield


def check_same(target: Path, name: str, asked: Mapping[str, Any]) -> None:
    """Write what is asked into the file `name` of the target, or compare it with what the runs before were asked.

    A checkpoint belongs to one query: another one would go on with the state of this one.

    Raises:
        ConfigError: the runs before were asked for something else.
    """
    path, text = target / name, json.dumps(asked)
    with translated(path, "read"):
        found = path.read_text(encoding="utf-8") if path.exists() else ""
    if not found and not (target / CHECKPOINT).exists():  # no run has done anything
        with translated(path, "write"):
            make_directory(target)
        with durably_replaced(path) as file:
            file.write(text.encode())
    elif found != text:
        made = found or f"settings that are lost ({name} is missing or empty)"
        raise ConfigError(f"{target} was made with {made}: name another target, or the same settings")


@attrs.frozen
class Batch:
    """A micro-batch that was committed.

    Attributes:
        watermark_ms: the watermark that it ran with; 0 before the first message.
        ends: offsets after what was read, as the option endingOffsets of the source `rocketmq` wants them.
    """

    number: int
    watermark_ms: int
    ends: str


def last_batch(checkpoint: Path) -> Batch | None:
    """Return the last committed batch of a query over one topic source; None before the first.

    Raises:
        StoreError: the files cannot be understood.
    """
    numbers = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*") if path.name.isdecimal()]
    if not numbers:
        return None
    path = checkpoint / "offsets" / str(max(numbers))
    with translated(path, "read"):
        lines = path.read_text(encoding="utf-8").splitlines()
    try:
        _, metadata, offset = lines
        return Batch(max(numbers), int(json.loads(metadata)["batchWatermarkMs"]), json.dumps(json.loads(offset)["q"]))
    except (ValueError, LookupError, TypeError) as error:
        raise StoreError(f"{path} is not as Spark 4 writes it: {error}") from error
