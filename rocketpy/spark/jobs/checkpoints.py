"""The last committed micro-batch, read from a checkpoint of Spark."""

from __future__ import annotations

import json
from pathlib import Path

import attrs

from rocketpy.errors import StoreError
from rocketpy.store.files import translated


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
    """The last committed batch of a query over one topic source; None before the first.

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
