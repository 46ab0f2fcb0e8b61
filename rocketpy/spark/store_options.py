"""Options of the source `rocketmq_store`."""

from __future__ import annotations

from pathlib import Path

import attrs

from rocketpy.errors import ConfigError

from .decoding import DecodingOptions
from .options import boolean, directory, numbers, one_of, option, required, size, text, whole, words
from .scan import OFFSET_MAX, TIME_MAX_MS, TIME_MIN_MS, Selection


@attrs.frozen(kw_only=True, slots=False)
class StoreOptions(DecodingOptions):
    """Which store, which part of it, and what happens where it is damaged."""

    path: Path = required("path", directory, "root of the store, on every executor")
    broker_name: str | None = option("brokerName", text, None, "value of the column brokerName")
    topics: frozenset[str] = option("topics", words, frozenset(), "only these topics")
    queue_ids: frozenset[int] = option("queueIds", numbers, frozenset(), "only queues with these numbers")
    start: int = option("startPhysicalOffset", whole(0, OFFSET_MAX), 0, "records from this phy offset on")
    end: int = option("endPhysicalOffset", whole(0, OFFSET_MAX), OFFSET_MAX, "records that start before this offset")
    from_ms: int = option("fromStoreTimestamp", whole(0, TIME_MAX_MS), TIME_MIN_MS, "stored at this time (ms) or later")
    to_ms: int = option("toStoreTimestamp", whole(0, TIME_MAX_MS), TIME_MAX_MS, "stored before this time (ms)")
    prune_by_queues: bool = option(
        "pruneByQueues", boolean, False, "read only the log files that consume queues of `topics` point into"
    )
    split_bytes: int = option("splitBytes", size(1, 1 << 40), 256 << 20, "log bytes for one task, about")
    check_crc: bool = option("checkCRC", boolean, False, "compare bodies with their CRC")
    on_corrupt: str = option(
        "onCorrupt", one_of("fail", "skip", "truncate"), "fail", "at damage: fail, go on after it, or end the piece"
    )
    boundary: str = option(
        "boundary", one_of("auto", "walk", "resync"), "auto", "how records are found inside of a file"
    )
    live_tail: bool = option("liveTail", boolean, False, "a broker is writing: its unfinished record ends the log")

    trigger_bytes_max: int | None = option("maxBytesPerTrigger", size(1, 1 << 50), None, "log bytes of a micro-batch")
    fail_on_data_loss: bool = option("failOnDataLoss", boolean, True, "of a stream: whether deleted files are an error")

    def __attrs_post_init__(self) -> None:
        self.names(diagnostics=True)
        if self.from_ms >= self.to_ms:
            raise ConfigError("must be before toStoreTimestamp", key="fromStoreTimestamp")
        if self.start >= self.end:
            raise ConfigError("must be before endPhysicalOffset", key="startPhysicalOffset")
        if self.prune_by_queues and not self.topics:
            raise ConfigError("needs the option topics", key="pruneByQueues")

    @property
    def selection(self) -> Selection:
        return Selection(
            topics=self.topics,
            queue_ids=self.queue_ids,
            store_time_from_ms=self.from_ms,
            store_time_to_ms=self.to_ms,
        )
