"""A store's workers in one thread: messages appended as the send worker does it, dispatch, flushes, cleaning."""

from __future__ import annotations

import os
import random
import struct
import time

from rocketpy.config import MessageStoreConfig
from rocketpy.message.host import pack_host
from rocketpy.message.tags import string_hash
from rocketpy.native import Status
from rocketpy.native.core import ffi, lib
from rocketpy.store.control_block import ControlBlock
from rocketpy.store.dispatch import Dispatch, sync_units
from rocketpy.store.files import DiskFiles, StorePaths
from rocketpy.store.recovery.lifecycle import save_checkpoint
from rocketpy.store.services.cleaning import HOUR_MS, Cleaner
from rocketpy.store.services.housekeeping import allocate_ahead
from rocketpy.store.services.queue_cleaning import QueueCleaning
from rocketpy.store.services.queue_trim import QueueTrim
from tests.support.records import Record
from tests.support.store_writer import BORN_HOST, STORE_HOST, threads_without_time

from .model import NO_OFFSET, Key, Model, Put

PREPARED, ROLLBACK = 4, 0xC
SHARED_KEY = "s"


class Workers:
    """Owner: who made them closes them. One set per opened store."""

    def __init__(self, config: MessageStoreConfig, control: ControlBlock, model: Model) -> None:
        self.config = config
        self.control = control
        self.model = model
        self.paths = StorePaths.of(config.store_path_root_dir)
        self._files = DiskFiles()
        self._log = lib.rp_commitlog_open(os.fsencode(self.paths.commitlog), control.header)
        self._flush = lib.rp_flush_open(os.fsencode(self.paths.commitlog), control.header)
        assert ffi.NULL not in (self._log, self._flush)
        self.dispatch = Dispatch(config, control)
        self._cleaner: Cleaner | None = None

    def close(self) -> None:
        self.dispatch.close()
        lib.rp_flush_close(self._flush)
        lib.rp_commitlog_close(self._log)
        if self._cleaner is not None:
            self._cleaner.close()

    # --- the send worker ---

    def put(self, key: Key, now_ms: int, bodies: list[bytes], properties: bytes, sys_flag: int = 0) -> None:
        """One message, or several as a batch. The model knows them as on their way, then as put."""
        queue = self.control.add_queue(key[0].encode(), key[1])
        records = [
            Record(
                topic=key[0],
                body=body,
                properties=properties,
                queue_id=key[1],
                sys_flag=sys_flag,
                born_timestamp_ms=now_ms,
                born_host=BORN_HOST,
                store_timestamp_ms=now_ms,
                store_host=STORE_HOST,
            )
            for body in bodies
        ]
        self._expect(key, queue, records)
        body = bodies[0] if len(bodies) == 1 else b"".join(_entry(body, properties) for body in bodies)
        status = self._append(queue, records[0], body, is_batch=len(bodies) > 1)
        assert status == Status.OK, status
        self.model.puts += self.model.on_their_way
        self.model.on_their_way = []

    def _expect(self, key: Key, queue: object, records: list[Record]) -> None:
        size = self.model.file_size
        total = sum(record.size for record in records)
        at = self.control.published_phy_offset
        if total + 8 > size - at % size:
            at += size - at % size
        offset = queue.next_offset  # type: ignore[attr-defined]
        for record in records:
            has_unit = record.sys_flag not in (PREPARED, ROLLBACK)
            image = record.encode(phy_offset=at, queue_offset=offset if has_unit else 0)
            tags, keys = _properties(record.properties)
            self.model.on_their_way.append(
                Put(
                    at,
                    image,
                    key,
                    offset if has_unit else NO_OFFSET,
                    string_hash(tags) if tags else 0,
                    keys if record.sys_flag != ROLLBACK else (),
                    record.store_timestamp_ms,
                )
            )
            at += len(image)
            offset += has_unit

    def _append(self, queue: object, record: Record, body: bytes, *, is_batch: bool) -> int:
        request, put = ffi.new("rp_msg_send *"), ffi.new("rp_put *")
        request.flags = lib.RP_REQUEST_BATCH if is_batch else 0
        request.sys_flag, request.queue_id = record.sys_flag, record.queue_id
        request.born_timestamp_ms = record.born_timestamp_ms
        for host, target in ((record.born_host, request.origin.peer), (record.store_host, put.store_host)):
            ffi.memmove(target.address, pack_host(host), 4)
            target.port, target.family = host[1], 4
        keep = [ffi.from_buffer("uint8_t[]", text) for text in (record.topic.encode(), record.properties, body)]
        put.topic, put.properties, put.body = keep
        request.topic_size, request.properties_size, request.body_size = map(len, keep)
        if is_batch:
            request.properties_size = 0
        put.request, put.queue, put.queue_id, put.topic_size = request, queue, record.queue_id, request.topic_size
        put.store_timestamp_ms = record.store_timestamp_ms
        return int(lib.crash_put(self._log, put))

    # --- the store worker ---

    def run_dispatch(self, budget: int) -> None:
        assert lib.rp_dispatch_run(self.dispatch.handle, budget) in (Status.OK, Status.EMPTY)

    def flush_log(self) -> None:
        assert lib.rp_flush_log(self._flush) in (Status.OK, Status.EMPTY)

    def sync_units(self) -> None:
        sync_units(self.dispatch)
        self.model.unsynced.clear()
        save_checkpoint(self.control, self.paths, self._files)

    def allocate(self) -> None:
        allocate_ahead(self.control, self.paths.commitlog)

    def clean(self) -> None:
        """As by hand, days later."""
        later_ms = time.time_ns() // 1_000_000 + (self.config.file_reserved_time + 1) * HOUR_MS
        if self._cleaner is None:
            self._cleaner = Cleaner(self.config, self.control, self._files, lambda: later_ms, threads_without_time())
        self.control.header.delete_requests += 1
        self._cleaner.clean()

    def drop_topic(self, topic: str, *, sync: bool) -> None:
        """As `StoreService` does it, once dispatch has come up."""
        self.dispatch.run_to_end()
        for entry in self.control.entries_of(topic):
            self.model.dropped[topic, int(entry.queue_id)] = self.control.published_phy_offset
            self.model.unsynced.add((topic, int(entry.queue_id)))
        self.control.delete_queues(topic)
        self.control.delete_units(topic, self.control.published_phy_offset)
        trim = QueueTrim(self.config, self.control, self._files)
        try:
            cleaning = QueueCleaning(self.control, self.dispatch, trim, threads_without_time())
            for _ in cleaning.delete_topic(topic):
                pass
        finally:
            trim.close()
        if sync:
            self.sync_units()


def _properties(properties: bytes) -> tuple[str, tuple[str, ...]]:
    """(tags, keys of this message alone)."""
    found = dict(piece.split(b"\x01") for piece in properties.split(b"\x02") if piece)
    keys = (found.get(b"UNIQ_KEY", b"") + b" " + found.get(b"KEYS", b"")).decode().split()
    return found.get(b"TAGS", b"").decode(), tuple(key for key in keys if key[0] != SHARED_KEY)


def _entry(body: bytes, properties: bytes) -> bytes:
    """One message of a batch body (docs/understand/wire-format.md, Bodies)."""
    head = struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, 0, len(body))
    return head + body + struct.pack(">H", len(properties)) + properties


def random_properties(rng: random.Random, number: int) -> bytes:
    """Tags, keys, and now and then more than a sector of something else."""
    pieces = [b"UNIQ_KEY\x01u%d" % number]
    if rng.random() < 0.4:
        pieces.append(b"KEYS\x01k%d s%d" % (number, number % 5))
    if rng.random() < 0.4:
        pieces.append(b"TAGS\x01" + rng.choice((b"a", b"b", b"c")))
    if rng.random() < 0.1:
        pieces.append(b"p\x01" + b"x" * rng.randrange(2000))
    return b"\x02".join(pieces)
