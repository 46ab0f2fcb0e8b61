"""Messages put into a store the way the send worker does it: encode into the log's end, publish, count on."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import attrs

from rocketpy.config import MessageStoreConfig
from rocketpy.native.core import ffi, lib
from rocketpy.store.control_block import ControlBlock
from rocketpy.store.dispatch import Dispatch
from rocketpy.store.files import StorePaths
from rocketpy.store.services.threads import StoreThreads
from tests.support.records import Record

STORE_HOST = ("10.0.0.1", 10911)
BORN_HOST = ("192.168.1.10", 50000)


def small_config(root: Path, **changes: object) -> MessageStoreConfig:
    """A store whose files roll after a few messages."""
    settings: dict[str, object] = {
        "store_path_root_dir": str(root),
        "mapped_file_size_commit_log": 16_384,
        "mapped_file_size_consume_queue": 1_000,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
    }
    return MessageStoreConfig(**{**settings, **changes})  # type: ignore[arg-type]


class _NoTime(threading.Event):
    """Its `wait` passes the seconds on and returns at once."""

    def __init__(self, pause: Callable[[float], object]) -> None:
        super().__init__()
        self._pause = pause

    def wait(self, timeout: float | None = None) -> bool:
        self._pause(timeout or 0.0)
        return self.is_set()


def threads_without_time(pause: Callable[[float], object] = lambda seconds: None) -> StoreThreads:
    """What services share; their pauses take no time, and `pause` is called with the seconds of each."""
    return StoreThreads(stop=_NoTime(pause))


@attrs.frozen
class Put:
    phy_offset: int
    queue_offset: int
    size: int
    image: bytes


class StoreWriter:
    """The log's one writer. `dispatch=True`: units follow at once."""

    def __init__(self, config: MessageStoreConfig, control: ControlBlock) -> None:
        self.config = config
        self.control = control
        paths = StorePaths.of(config.store_path_root_dir, config.store_path_commit_log)
        self._log = lib.rp_commitlog_open(os.fsencode(paths.commitlog), control.header)
        assert self._log != ffi.NULL
        self._dispatch: Dispatch | None = None

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._dispatch is not None:
            self._dispatch.close()
            self._dispatch = None
        if self._log != ffi.NULL:
            lib.rp_commitlog_close(self._log)
            self._log = ffi.NULL

    @property
    def dispatch(self) -> Dispatch:
        if self._dispatch is None:
            self._dispatch = Dispatch(self.config, self.control)
        return self._dispatch

    def reserve(self, size: int) -> tuple[Any, int]:
        at, phy_offset = ffi.new("uint8_t **"), ffi.new("uint64_t *")
        status = lib.rp_commitlog_reserve(self._log, size, at, phy_offset)
        assert status == 0, status
        return at[0], phy_offset[0]

    def put(
        self,
        topic: str = "TopicTest",
        queue_id: int = 0,
        body: bytes = b"hello",
        properties: bytes = b"",
        *,
        store_timestamp_ms: int = 1_700_000_000_000,
        sys_flag: int = 0,
        dispatch: bool = True,
    ) -> Put:
        record = Record(
            topic=topic,
            body=body,
            properties=properties,
            queue_id=queue_id,
            sys_flag=sys_flag,
            born_timestamp_ms=store_timestamp_ms,
            born_host=BORN_HOST,
            store_timestamp_ms=store_timestamp_ms,
            store_host=STORE_HOST,
        )
        (put,) = self.put_records([record], dispatch=dispatch)
        return put

    def put_records(self, records: list[Record], *, dispatch: bool = True) -> list[Put]:
        """Append together, as a batch is: all in one file, published at once. Offsets are given here."""
        at, phy_offset = self.reserve(sum(record.size for record in records))
        puts = []
        for record in records:
            queue = self.control.add_queue(record.topic.encode(), record.queue_id)
            has_offset = record.sys_flag & 0xC in (0, 8)
            queue_offset = int(queue.next_offset) if has_offset else 0
            image = record.encode(phy_offset=phy_offset, queue_offset=queue_offset)
            puts.append(Put(phy_offset, queue_offset, len(image), image))
            phy_offset += len(image)
            queue.next_offset += has_offset
        images = b"".join(put.image for put in puts)
        ffi.memmove(at, images, len(images))
        lib.rp_commitlog_publish(self._log, len(images), records[-1].store_timestamp_ms)
        if dispatch:
            self.dispatch.run_to_end()
        return puts
