"""The parts of bench.core_gain that keep messages: log, queues, index, timers, transactions; and pulls."""

from __future__ import annotations

import heapq
import mmap
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from struct import Struct

from rocketpy.broker.fast_path.shared_memory import SharedHalfStates
from rocketpy.message import names
from rocketpy.message.properties import find_property, without_property
from rocketpy.message.record import decode_record, encode_record
from rocketpy.message.tags import index_hash, string_hash
from rocketpy.native.core import ffi, lib
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.pull import PullMessageResponseHeader
from rocketpy.remoting.headers.send import SendMessageResponseHeader
from rocketpy.store.control_block import ControlBlock
from rocketpy.store.formats.index_file import INDEX_HEADER, INDEX_SLOT, INDEX_UNIT
from rocketpy.store.formats.unit import CQ_UNIT
from tests.support.fast_path import FastPath, drain
from tests.support.fast_path_requests import pull, send_v2
from tests.support.half_messages import COMMIT, half
from tests.support.store_writer import BORN_HOST, STORE_HOST, StoreWriter, small_config
from tests.support.timer_rig import TIMER_TOPIC, TimerRig

from .core_gain_turn import (
    BODY,
    CQ_FILE_SIZE,
    FILE_SIZE,
    POSITION,
    PROPERTIES,
    SIZE,
    START_MS,
    Turn,
    fields_of,
    image_file,
    message,
    prepare_log,
    spent,
)

POPULATE_READ = 22  # MADV_POPULATE_READ of Linux
WAKE_EVERY = 64  # timers, as in csrc/store/timers/timers.c
SLOTS, KEYS_MAX = 100_000, 400_000
_TIMER = Struct("<QQqIi")


def append(root: Path, items: int) -> Turn:
    """Encode a record of 1 KiB with its CRC into the log and publish it."""
    prepare_log(root)
    control = ControlBlock(root / "control", FILE_SIZE)
    log = lib.rp_commitlog_open(str(root / "commitlog").encode(), control.header)
    body, properties, topic = (ffi.from_buffer("uint8_t[]", data) for data in (BODY, PROPERTIES, b"TopicTest"))
    record = ffi.new("rp_record *", {"queue_id": 2, "born_timestamp_ms": START_MS, "store_timestamp_ms": START_MS})
    record.topic, record.body, record.properties = topic, body, properties
    record.topic_size, record.body_size, record.properties_size = len(topic), len(body), len(properties)
    record.born_host.family = record.store_host.family = 4
    at, phy_offset = ffi.new("uint8_t **"), ffi.new("uint64_t *")
    size = 91 + len(topic) + len(body) + len(properties)

    def in_c() -> None:
        for number in range(items):
            lib.rp_commitlog_reserve(log, size, at, phy_offset)
            record.queue_offset, record.phy_offset = number, phy_offset[0]
            lib.rp_record_encode(record, at[0])
            lib.rp_commitlog_publish(log, size, START_MS)

    c_ns = spent(in_c)
    lib.rp_commitlog_close(log)
    control.close()
    own, published, end = image_file(root / "own", FILE_SIZE), image_file(root / "position", 4096), 0

    def in_python() -> None:
        nonlocal end
        for number in range(items):
            image = encode_record(
                topic="TopicTest", body=BODY, properties=PROPERTIES, queue_id=2, queue_offset=number, phy_offset=end,
                born_timestamp_ms=START_MS, store_timestamp_ms=START_MS, born_host=BORN_HOST, store_host=STORE_HOST,
            )  # fmt: skip
            own[end : end + len(image)] = image
            end += len(image)
            POSITION.pack_into(published, 0, end)

    return Turn(c_ns, spent(in_python))


# --- store ------------------------------------------------------------------------------------------------------------


def dispatch(root: Path, items: int) -> Turn:
    """Read records from the log; write units of eight queues and a key of each message into the index."""
    config = small_config(
        root, mapped_file_size_commit_log=FILE_SIZE, mapped_file_size_consume_queue=CQ_FILE_SIZE,
        max_hash_slot_num=SLOTS, max_index_num=KEYS_MAX,
    )  # fmt: skip
    (root / "commitlog").mkdir()
    control = ControlBlock(root / "control", FILE_SIZE)
    with StoreWriter(config, control) as writer:
        for first in range(0, items, 1000):
            writer.put_records([message(first + n, b"x" * 100) for n in range(1000)], dispatch=False)
        end = control.published_phy_offset
        c_ns = spent(writer.dispatch.run_to_end)
        assert writer.dispatch.counts().units == items
    with next((root / "commitlog").iterdir()).open("rb") as file:
        log = mmap.mmap(file.fileno(), FILE_SIZE, prot=mmap.PROT_READ)
    control.close()
    index = KeyIndex(root / "own-index")

    def in_python() -> None:
        at, units = 0, [bytearray() for _ in range(8)]
        while at < end:
            size, queue_id, _offset, _crc, topic, properties = fields_of(log, at)
            tag, keys = find_property(properties, b"TAGS"), find_property(properties, b"KEYS")
            units[queue_id] += CQ_UNIT.pack(at, size, string_hash(tag.decode()) if tag else 0)
            for key in (keys or b"").decode().split(" "):
                index.put(index_hash(f"{topic.decode()}#{key}"), at, START_MS)
            at += size
        for queue_id, data in enumerate(units):
            (root / f"queue-{queue_id}").write_bytes(data)

    return Turn(c_ns, spent(in_python))


class KeyIndex:
    """The writer of an index file, as csrc/store/index/index_file.h describes the bytes."""

    def __init__(self, path: Path) -> None:
        self._image = image_file(path, INDEX_HEADER.size + SLOTS * INDEX_SLOT.size + KEYS_MAX * INDEX_UNIT.size)
        self._count, self._slots_used, self._begun = 1, 0, (0, 0)

    def put(self, key_hash: int, phy_offset: int, timestamp_ms: int) -> None:
        if self._count == 1:
            self._begun = timestamp_ms, phy_offset
        slot_at = INDEX_HEADER.size + key_hash % SLOTS * INDEX_SLOT.size
        (previous,) = INDEX_SLOT.unpack_from(self._image, slot_at)
        seconds = (timestamp_ms - self._begun[0]) // 1000
        unit_at = INDEX_HEADER.size + SLOTS * INDEX_SLOT.size + self._count * INDEX_UNIT.size
        INDEX_UNIT.pack_into(self._image, unit_at, key_hash, phy_offset, seconds, previous)
        INDEX_SLOT.pack_into(self._image, slot_at, self._count)
        self._slots_used += not previous
        self._count += 1
        INDEX_HEADER.pack_into(
            self._image, 0, self._begun[0], timestamp_ms, self._begun[1], phy_offset, self._slots_used, self._count
        )


def index_keys(root: Path, items: int) -> Turn:
    """Enter keys whose hashes are known."""
    (root / "index").mkdir()
    hashes = [index_hash(f"TopicTest#order-{number}") for number in range(items)]
    keys = ffi.new("rp_index_key[]", [(n * 200, START_MS + n, one, 0) for n, one in enumerate(hashes)])
    index = lib.rp_index_open(str(root / "index").encode(), SLOTS, KEYS_MAX)
    c_ns = spent(lambda: lib.rp_index_put_keys(index, keys, items))
    lib.rp_index_close(index)
    own = KeyIndex(root / "own-index")

    def in_python() -> None:
        for number, one in enumerate(hashes):
            own.put(one, number * 200, START_MS + number)

    return Turn(c_ns, spent(in_python))


# --- workers ----------------------------------------------------------------------------------------------------------


def send_all(rig: FastPath, commands: Iterator[RemotingCommand]) -> int:
    """Give requests to the send worker; the nanoseconds that it takes for them."""
    used, left = 0, True
    while left:
        left = False
        for _, command in zip(range(200), commands, strict=False):
            assert rig.frame(command) == lib.RP_OK
            left = True
        lib.rp_codec_wake(rig.codec)
        while lib.rp_ring_depth(rig.to_send):
            used += spent(lambda: lib.rp_send_run(rig.send, 0))
    return used


def pulls(root: Path, items: int) -> Turn:
    """Answer pulls: of 64 units each, 32 have the wanted tag; the bodies stay in the log."""
    rig = FastPath(root, cq_file_size=CQ_FILE_SIZE, file_size=FILE_SIZE)
    wanted = string_hash("TagA")
    with closing(rig):
        rig.add_topic("T")
        rig.add_group("G")
        rig.subscribe("G", "T", [wanted])
        rig.tables_end()
        for first in range(0, items * 64, 200):
            for number in range(first, first + 200):
                rig.frame(send_v2(body=b"x" * 100, properties=f"TAGS\x01Tag{'AB'[number % 2]}\x02"))
            rig.turn()
            for reader in rig.replies:
                drain(reader)
        for number in range(items):
            assert rig.frame(pull(number * 64, expression="TagA", opaque=number)) == lib.RP_OK
        lib.rp_codec_wake(rig.codec)
        c_ns = 0
        while lib.rp_ring_depth(rig.to_pull):
            c_ns += spent(lambda: lib.rp_pull_run(rig.pull, 0))
        assert sum(len(drain(reader)) for reader in rig.replies) == items
        with next((root / "consumequeue" / "T" / "0").iterdir()).open("rb") as file:
            queue = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)

    def in_python() -> None:
        for number in range(items):
            slices, size, end = list[tuple[int, int]](), 0, 0
            units = queue[number * 64 * 20 : (number * 64 + 800) * 20]
            for scanned, (phy_offset, unit_size, code) in enumerate(CQ_UNIT.iter_unpack(units)):
                if len(slices) == 32 or size + unit_size > 262_144:
                    break
                end = scanned + 1
                if code == wanted:
                    slices.append((phy_offset, unit_size))
                    size += unit_size
            header = PullMessageResponseHeader(
                suggest_which_broker_id=0, next_begin_offset=number * 64 + end, min_offset=0, max_offset=items * 64
            )
            reply = RemotingCommand.response(0, "FOUND", header)
            reply.opaque = number
            reply.encode()

    return Turn(c_ns, spent(in_python))


def timers(root: Path, items: int) -> Turn:
    """Take timers from their queue, order them by time, and hand them to send when they are due. Two system calls are
    on both sides: one for the page of each record, one to wake send after 64 timers."""
    prepare_log(root)
    rig = TimerRig(root, file_size=FILE_SIZE, cq_file_size=CQ_FILE_SIZE)
    with closing(rig):
        rig.add_timer_topic()
        rig.send_many((b"x" * 100, f"TIMER_DELAY_MS\x01{1000 + number * 7919 % items}") for number in range(items))
        rig.flush()
        (queue,) = (root / "consumequeue" / TIMER_TOPIC / "0").iterdir()
        units = queue.read_bytes()[: items * CQ_UNIT.size]
        with (root / "commitlog" / f"{0:020d}").open("rb") as file:
            log = mmap.mmap(file.fileno(), FILE_SIZE, prot=mmap.PROT_READ)

        def steps() -> int:
            used = 0
            while True:
                status = 0

                def step() -> None:
                    nonlocal status
                    status = rig.step()

                used += spent(step)
                given = lib.rp_ring_depth(rig.path.store_send)
                rig.path.turn()
                rig.flush()
                rig.path.answers()
                if status != lib.RP_OK and not given:
                    return used

        c_ns = steps()
        rig.advance(1000 + 2 * items)
        c_ns += steps()
        assert sum(record.topic == "T" for record in rig.records("T")) == items

    def in_python() -> None:
        heap: list[tuple[int, int, int, int]] = []
        for number, (phy_offset, size, due_ms) in enumerate(CQ_UNIT.iter_unpack(units)):
            heapq.heappush(heap, (due_ms, number, phy_offset, size))
        ring, ended, under_way, given = bytearray(), bytearray(items // 8 + 1), set(), list[int]()
        while heap:
            due_ms, number, phy_offset, size = heapq.heappop(heap)
            page = phy_offset & -mmap.PAGESIZE  # the record, before send reads it
            log.madvise(POPULATE_READ, page, phy_offset + size - page)
            ring += _TIMER.pack(phy_offset, number, due_ms, size, 0)
            under_way.add(number)
            given.append(number)
            if len(given) % WAKE_EVERY == 0:
                os.eventfd_write(bell, 1)
        for number in given:  # the send worker has written them into its journal
            ended[number >> 3] |= 1 << (number & 7)
            under_way.remove(number)

    bell = os.eventfd(0)
    python_ns = spent(in_python)
    os.close(bell)
    return Turn(c_ns, python_ns)


def transactions(root: Path, items: int) -> Turn:
    """Store half messages, then their commits: the message, the op message and the state; answer the sends."""
    prepare_log(root)
    states = SharedHalfStates()
    rig = FastPath(root, file_size=FILE_SIZE, cq_file_size=CQ_FILE_SIZE, half_states=states.pointer)
    for topic in (names.TRANS_HALF_TOPIC, names.TRANS_OP_HALF_TOPIC):
        rig.add_topic(topic, 1, flags=lib.RP_TOPIC_NO_SEND)
    rig.add_topic("T", 4)
    rig.tables_end()
    own, end, c_ns = image_file(root / "own", FILE_SIZE), 0, 0
    with closing(rig):
        places: list[tuple[int, int]] = []
        for _ in range(items // 200):
            c_ns += send_all(rig, (half() for _ in range(200)))
            for _, answer in rig.answers():
                fields = answer.ext_fields or {}
                places.append((int(fields["queueOffset"]), int(fields["msgId"][16:], 16)))
        assert len(places) == items
        for first in range(0, items, 200):
            c_ns += send_all(rig, (commit(place) for place in places[first : first + 200]))
            lib.rp_dispatch_run(rig.dispatch, 1 << 30)
            rig.answers()
        lib.rp_dispatch_run(rig.dispatch, 1 << 30)
        assert lib.rp_control_find(rig.block, b"T", 1, 2).max_offset == items

    def put(topic: str, queue_offset: int, body: bytes, properties: bytes, flag: int, prepared: int = 0) -> int:
        nonlocal end
        image = encode_record(
            topic=topic, body=body, properties=properties, queue_id=0, queue_offset=queue_offset, phy_offset=end,
            sys_flag=flag, prepared_transaction_offset=prepared, born_timestamp_ms=START_MS,
            store_timestamp_ms=START_MS, born_host=BORN_HOST, store_host=STORE_HOST,
        )  # fmt: skip
        at = end
        own[at : at + len(image)] = image
        end += len(image)
        return at

    def in_python() -> None:
        marks = bytearray(items // 4 + 1)
        given = b"TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01u1"
        kept = []
        for number in range(items):
            at = put(names.TRANS_HALF_TOPIC, number, b"body", given + b"\x02REAL_TOPIC\x01T\x02REAL_QID\x012", 0)
            kept.append((number, at))
            header = SendMessageResponseHeader(
                msg_id=f"7F00000100002A9F{at:016X}", queue_id=2, queue_offset=number, region="R", trace_on=True
            )
            RemotingCommand.response(0, None, header).encode()
        for number, at in kept:
            record = decode_record(own[at : at + SIZE.unpack_from(own, at)[0]])
            assert record and find_property(record.properties, b"PGROUP") == b"P"
            topic = (find_property(record.properties, b"REAL_TOPIC") or b"").decode()
            properties = without_property(without_property(record.properties, b"REAL_TOPIC"), b"REAL_QID")
            put(topic, number, record.body, properties, COMMIT, at)
            put(names.TRANS_OP_HALF_TOPIC, number, b"%d" % number, b"TAGS\x01d", 0)
            marks[number >> 2] |= 1 << (number & 3) * 2
            RemotingCommand.response(0, None).encode()

    return Turn(c_ns, spent(in_python))


def commit(place: tuple[int, int]) -> RemotingCommand:
    fields = {
        "producerGroup": "P", "tranStateTableOffset": str(place[0]), "commitLogOffset": str(place[1]),
        "commitOrRollback": str(COMMIT), "fromTransactionCheck": "false", "msgId": "u1",
    }  # fmt: skip
    return RemotingCommand.request(37, ext_fields=fields)
