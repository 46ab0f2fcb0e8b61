"""docs/understand/file-formats*.md: examples are what the code reads and writes, tables what the structures are."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import attrs

from rocketpy.broker.files import json_file
from rocketpy.broker.files.position_file import FILE_BYTES, SLOT_BYTES, Slot, TableImage
from rocketpy.broker.memory import lock_file
from rocketpy.broker.memory.journal import HEAD_CELLS, LAYOUT, Journal, format_memory
from rocketpy.config import MessageStoreConfig
from rocketpy.message.record import decode_record, encode_blank, encode_record
from rocketpy.message.tags import index_hash, string_hash, tags_code
from rocketpy.native.core import ffi, lib
from rocketpy.store.control_block import ControlBlock
from rocketpy.store.formats.checkpoint import TIMES
from rocketpy.store.formats.consume_queue_ext import ADDRESS_BASE, ADDRESS_MAX, EXT_UNIT
from rocketpy.store.formats.index_file import INDEX_HEADER, INDEX_SLOT, INDEX_UNIT
from rocketpy.store.formats.unit import BLANK_UNIT, CQ_UNIT
from rocketpy.store.inspection.reader import DEFAULT_INDEX_SIZE
from tests.support.doc_examples import Page

PAGE = Page.read("understand/file-formats.md")
OWN_PAGE = Page.read("understand/file-formats-own.md")
CONTROL_FIELDS = {
    0: "magic",
    8: "layout_version",
    12: "queue_count",
    20: "running_flags",
    24: "boot_id",
    40: "commitlog_file_size",
    48: "min_phy_offset",
    56: "published_phy_offset",
    64: "durable_phy_offset",
    72: "dispatched_phy_offset",
    80: "replicated_phy_offset",
    88: "last_store_timestamp_ms",
    96: "clean",
    104: "units_durable_phy_offset",
    112: "physic_timestamp_ms",
    136: "lock_mtime_ns",
    144: "delete_requests",
    152: "rebuilding",
    160: "indexed_phy_offset",
    168: "dispatched_timestamp_ms",
    176: "clock_slow_base_ms",
    184: "clock_slowed_from_ms",
    192: "units_lost",
    200: "flush_begun",
    208: "hash_seed",
    216: "cautious_lead_ms",
    224: "wall_ahead_since_ms",
    232: "queues_replaced",
    240: "confirmed_phy_offset",
    248: "stops_at_confirmed",
    256: "lock_born_ns",
}


QUEUE_FIELDS = {
    0: "next_offset",
    8: "max_offset",
    16: "min_offset",
    24: "max_phy_offset",
    32: "topic",
    36: "queue_id",
    40: "watched",
    44: "state",
    48: "generation",
    56: "deleted_below",
}


def test_the_record() -> None:
    image, blank = PAGE.examples("CommitLog record")
    properties = b"KEYS\x01order-1\x02UNIQ_KEY\x010A00000100002A9F00000000000000AA\x02TAGS\x01TagA"
    assert image == encode_record(
        topic="TopicTest",
        queue_id=3,
        flag=7,
        queue_offset=5,
        phy_offset=1 << 30,
        born_timestamp_ms=1_700_000_000_000,
        born_host=("192.168.1.10", 50_000),
        store_timestamp_ms=1_700_000_000_123,
        store_host=("10.0.0.1", 10_911),
        body=b"hello rocketpy",
        properties=properties,
    )
    assert blank[:8] == encode_blank(12) and len(blank) == 12


def test_the_positions_of_the_record() -> None:
    """Each field of the table is changed in the example, and only that field is another one.
    Holds: store, fields of a record."""
    image, _ = PAGE.examples("CommitLog record")
    names = {
        12: "queue_id",
        16: "flag",
        20: "queue_offset",
        28: "phy_offset",
        40: "born_timestamp_ms",
        48: "born_host",
        56: "store_timestamp_ms",
        64: "store_host",
        72: "reconsume_times",
        76: "prepared_transaction_offset",
    }
    positions = PAGE.first_column("CommitLog record", "at (IPv4) | size | field")
    assert positions == [0, 4, 8, *sorted([*names, 36]), 84, 88, 89]
    whole = decode_record(image)
    assert whole is not None
    for at, name in names.items():
        changed = bytearray(image)
        changed[at] ^= 1
        record = decode_record(bytes(changed))
        assert record is not None and attrs.evolve(record, **{name: getattr(whole, name)}) == whole != record


def test_the_units() -> None:
    """Holds: store, consume queues of 20-byte units."""
    tagged, negative, delayed, blank = PAGE.examples("ConsumeQueue unit")
    assert tagged == CQ_UNIT.pack(1 << 30, 178, tags_code("TagA"))
    assert negative == CQ_UNIT.pack(0, 100, string_hash("tag-with-a-very-long-name-0123456789"))
    assert delayed == CQ_UNIT.pack(0, 166, 1_700_000_000_123 + 10_000)
    assert blank == BLANK_UNIT
    assert PAGE.first_column("ConsumeQueue unit", "at | size | field") == [0, 8, 12]


def test_the_extension_unit() -> None:
    extension, unit = PAGE.examples("Extension unit")
    assert extension == EXT_UNIT.pack(EXT_UNIT.size, tags_code("TagA"), 1_700_000_000_000, 0)
    assert unit == CQ_UNIT.pack(1 << 30, 178, ADDRESS_BASE)
    assert PAGE.first_column("Extension unit", "at | size | field") == [0, 2, 10, 18, 20]
    assert f"{-ADDRESS_MAX} or less" in " ".join(PAGE.section("Extension unit").split())


def test_the_index(tmp_path: Path) -> None:
    """Holds: store, index files with header, slots and chains."""
    unit, header = PAGE.examples("Index file")
    key_hash = index_hash("TopicTest#order-1")
    assert unit == INDEX_UNIT.pack(key_hash, 1 << 30, 0, 0)
    index = lib.rp_index_open(str(tmp_path).encode(), 10, 10)
    assert lib.rp_index_put(index, key_hash, 1 << 30, 1_700_000_000_123, 0) == lib.RP_OK
    lib.rp_index_close(index)
    (file,) = tmp_path.iterdir()
    image = file.read_bytes()
    assert image.startswith(header) and len(header) == INDEX_HEADER.size
    assert image[INDEX_HEADER.size + 10 * INDEX_SLOT.size + INDEX_UNIT.size :].startswith(unit)
    slots, units = MessageStoreConfig().max_hash_slot_num, MessageStoreConfig().max_index_num
    assert (key_hash % slots, 40 + 4 * (key_hash % slots)) == (4_193_424, 16_773_736)
    units_at = INDEX_HEADER.size + slots * INDEX_SLOT.size
    assert units_at + INDEX_UNIT.size == 20_000_060
    assert units_at + units * INDEX_UNIT.size == DEFAULT_INDEX_SIZE == 420_000_040
    assert PAGE.first_column("Index file", "at | header") == [0, 8, 16, 24, 32, 36]


def test_the_checkpoint() -> None:
    (image,) = PAGE.examples("checkpoint")
    assert image == TIMES.pack(1_700_000_000_123, 1_700_000_000_120, 1_699_999_000_000)


def test_the_configuration_files(tmp_path: Path) -> None:
    (text,) = [block for block in PAGE.blocks("config/") if block.startswith("{")]
    value = {"offsetTable": {"TopicTest@GroupA": {0: 12, 3: 7}}}
    assert json_file.pretty(value) == text.rstrip("\n")
    (tmp_path / "x.json").write_text(text)
    assert json_file.load(tmp_path / "x.json") == {"offsetTable": {"TopicTest@GroupA": {"0": 12, "3": 7}}}


def test_the_control_block(tmp_path: Path) -> None:
    (image,) = OWN_PAGE.examples("control")
    block = ControlBlock(tmp_path / "control", 1 << 30)
    block.add_queue(b"T", 0)
    block.add_queue(b"T", 1)
    block.close()
    assert (tmp_path / "control").read_bytes().startswith(image)
    assert OWN_PAGE.first_column("control", "at | header") == list(CONTROL_FIELDS)
    for at, name in CONTROL_FIELDS.items():
        assert ffi.offsetof("rp_control", name) == at, name
    assert {name for name, _ in ffi.typeof("rp_control").fields} - {"reserved"} == {
        *CONTROL_FIELDS.values(),
        "topic_count",
        "logics_timestamp_ms",
        "index_timestamp_ms",
    }  # the last three share a row with the field before
    assert OWN_PAGE.first_column("control", "at | entry of a queue, from byte 4096 on") == list(QUEUE_FIELDS)
    assert {field.offset: name for name, field in ffi.typeof("rp_queue").fields} == QUEUE_FIELDS
    assert lib.RP_CONTROL_QUEUES_AT == 4096 and lib.RP_CONTROL_TOPIC_ENTRY == 128
    header = {"magic": int.from_bytes(b"RPYBLK01", "little"), "layout_version": 2}
    assert lib.rp_control_is_known(ffi.new("rp_control *", header))
    assert not lib.rp_control_is_known(ffi.new("rp_control *", header | {"layout_version": 3}))
    assert not lib.rp_control_is_known(ffi.new("rp_control *", header | {"magic": 1}))
    assert ffi.sizeof("rp_queue") == 64


def test_the_queue_locks() -> None:
    """As the docstring of rocketpy/broker/memory/journal.py shows them."""
    boot_id, salt, half = bytes(range(16)), 0x1122334455667788, (lock_file.BYTES - 64) // 2
    memory = memoryview(bytearray(lock_file.BYTES))
    format_memory(memory, owner=boot_id, salt=salt)
    key = json.dumps(["GroupA", "TopicTest", "broker-a", 3]).encode()
    value = json.dumps(["10.0.0.7@41", 812345]).encode()
    Journal("queue locks", memory).put(key, value)
    head = struct.pack("=8sII16s32x", b"RPTABLE\0", half, LAYOUT, boot_id)
    tail = struct.pack("=II", len(key), len(value)) + key + value
    crc = zlib.crc32(tail, zlib.crc32(salt.to_bytes(8, "little")))
    check = 1 << 32 | zlib.crc32(struct.pack("=QQI", 1, salt, LAYOUT))
    image = head + struct.pack("=QQQQI", check, 1, salt, 4 + len(tail), crc) + tail
    assert memory[: len(image)] == image and not any(memory[len(image) : len(image) + 64])
    assert f"{lock_file.BYTES >> 20} MiB, mapped" in OWN_PAGE.text and HEAD_CELLS * 8 == len(head) == 64


def test_the_position_of_topics() -> None:
    image = Slot(1, TableImage.of([b"{}"]), 258).encode()
    assert image.hex() == "524b54500000000000000001" + "0000000000000002a3a6bf43" + "0000000000000102cdfaa058"
    assert (SLOT_BYTES, FILE_BYTES) == (4096, 8192)
