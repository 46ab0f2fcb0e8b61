"""Extension units: golden bytes of a Java broker, and where their files end after a crash."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import attrs
import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import StoreError
from rocketpy.message.tags import string_hash
from rocketpy.native.core import ffi, lib
from rocketpy.store.files import DiskFiles, file_name
from rocketpy.store.formats.consume_queue_ext import (
    ADDRESS_BASE,
    ADDRESS_MAX,
    ExtUnit,
    check_ext_files,
    is_ext_address,
    read_ext_unit,
    real_offset,
)
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from tests.support.extension_units import (
    EXT_FILE_SIZE,
    JAVA_UNIT,
    NOW,
    TAG_A,
    UNITS_PER_FILE,
    ext_path,
    ext_units,
    put,
    reopen,
    tags_seen,
)
from tests.support.store_writer import StoreWriter


def raw_fields(opened: OpenedStore, topic: str = "T") -> list[int]:
    """Third fields of the queue's units."""
    store = MessageStore(opened.config, opened.control)
    queue, units = opened.control.queue(topic, 0), []
    while len(units) < store.max_offset(topic, 0):
        units += store.queues.units(queue, len(units), 50)
    store.close()
    return [unit.tags_code for unit in units]


# --- bytes ------------------------------------------------------------------------------------------------------------


def test_golden_unit_and_address(writer: StoreWriter, opened: OpenedStore, config: MessageStoreConfig) -> None:
    put(writer, "TagA")
    put(writer, "TagA")
    unit = struct.pack(">hqqh", 20, TAG_A, NOW, 0)
    assert unit == bytes.fromhex("0014000000000027a8070000018bcfe568000000")
    assert ext_path(config).read_bytes() == (unit * 2).ljust(EXT_FILE_SIZE, b"\0")
    assert raw_fields(opened) == [ADDRESS_BASE, ADDRESS_BASE + 20]


@pytest.mark.parametrize(
    ("field", "is_address"),
    [(ADDRESS_MAX, True), (ADDRESS_MAX + 1, False), (ADDRESS_BASE, True), (0, False), (NOW, False)],
)
def test_what_is_an_address(field: int, is_address: bool) -> None:
    assert is_ext_address(field) == bool(lib.rp_cq_ext_is_address(field)) == is_address


def test_real_offset() -> None:
    assert real_offset(-9_223_372_036_854_775_774) == 34


def test_full_files_end_with_a_mark(writer: StoreWriter, opened: OpenedStore, config: MessageStoreConfig) -> None:
    for i in range(UNITS_PER_FILE + 1):
        put(writer, f"Tag{i}")
    assert ext_path(config).read_bytes()[UNITS_PER_FILE * 20 :] == b"\xff\xff\0\0"
    assert raw_fields(opened)[-1] == ADDRESS_BASE + EXT_FILE_SIZE
    assert [tags_seen(opened, f"Tag{i}") for i in (0, 50, 51)] == [[0], [50], [51]]


@pytest.fixture
def queue_of_one(writer: StoreWriter, opened: OpenedStore, config: MessageStoreConfig) -> Iterator[OpenedStore]:
    put(writer, "TagA")
    yield opened


def read_both(opened: OpenedStore, address: int) -> ExtUnit | None:
    """By the tool's reader; the core must say the same, bitmap aside."""
    config = opened.config
    found = read_ext_unit(DiskFiles(), ext_path(config).parent, EXT_FILE_SIZE, address)
    directory = str(opened.paths.consumequeue).encode()
    ext, unit = lib.rp_cq_ext_open(opened.control.block, directory, EXT_FILE_SIZE), ffi.new("rp_cq_ext_unit *")
    status = lib.rp_cq_ext_read(ext, opened.control.queue("T", 0), address, unit)
    lib.rp_cq_ext_close(ext)
    assert (status == lib.RP_OK) == (found is not None)
    if found:
        assert (unit.tags_code, unit.store_timestamp_ms, unit.bitmap_size) == (*found[:2], len(found.bitmap))
    return found


def test_units_with_filter_bits_are_read(queue_of_one: OpenedStore) -> None:
    path = ext_path(queue_of_one.config)
    path.write_bytes(JAVA_UNIT.ljust(EXT_FILE_SIZE, b"\0"))
    assert read_both(queue_of_one, ADDRESS_BASE) == ExtUnit(TAG_A, NOW, JAVA_UNIT[20:])


@pytest.mark.parametrize(
    ("at", "unit"),
    [
        (0, b""),  # zeros
        (0, b"\xff\xff"),  # the end
        (0, struct.pack(">hqqh", 19, 0, 0, 0)),
        (0, struct.pack(">hqqh", 21, 0, 0, 2)),
        (0, struct.pack(">hqqh", 20, 0, 0, -1)),
        (EXT_FILE_SIZE - 23, struct.pack(">hqqh", 20, 0, 0, 0)),  # no room for the end
        (EXT_FILE_SIZE - 5, b"\0\x14"),
        (EXT_FILE_SIZE, b""),  # no such file
        ((1 << 63) - (1 << 31) - 1, b""),
    ],
)
def test_unsound_units_are_not_found(queue_of_one: OpenedStore, at: int, unit: bytes) -> None:
    if at < EXT_FILE_SIZE:
        ext_path(queue_of_one.config).write_bytes((bytes(at) + unit).ljust(EXT_FILE_SIZE, b"\0"))
    assert read_both(queue_of_one, ADDRESS_BASE + at) is None


def test_a_message_whose_unit_is_lost_passes_every_filter(queue_of_one: OpenedStore) -> None:
    assert tags_seen(queue_of_one, "TagA") == [0] and tags_seen(queue_of_one, "TagB") == []
    ext_path(queue_of_one.config).unlink()
    assert tags_seen(queue_of_one, "TagB") == [0]


def test_delayed_messages_keep_their_time_there(writer: StoreWriter, store: MessageStore) -> None:
    writer.put("SCHEDULE_TOPIC_XXXX", 2, b"", b"DELAY\x013\x02TAGS\x01A", store_timestamp_ms=NOW)
    assert store.consume_queue_units("SCHEDULE_TOPIC_XXXX", 2, 0, 1)[0].tags_code == NOW + 10_000


# --- where the files end ----------------------------------------------------------------------------------------------


def test_a_redo_leaves_no_duplicates(config: MessageStoreConfig) -> None:
    """What a dispatch that died wrote ahead of its queue is wiped by the next, again and again."""
    opened = open_store(config)
    for round_ in range(4):
        with StoreWriter(config, opened.control) as writer:
            for i in range(30):
                put(writer, f"Tag{round_ * 30 + i}")
        last = max(path for path in ext_path(config).parent.iterdir())
        data = last.read_bytes()
        end = data.rstrip(b"\0").rfind(b"\0\x14") + 20
        room = (EXT_FILE_SIZE - end - 4) // 20
        last.write_bytes((data[:end] + JAVA_UNIT[:20] * room).ljust(EXT_FILE_SIZE, b"\0"))
        last.with_name(file_name(int(last.name) + EXT_FILE_SIZE)).write_bytes(JAVA_UNIT.ljust(EXT_FILE_SIZE, b"\0"))
        opened = reopen(opened)
    with StoreWriter(config, opened.control) as writer:
        put(writer, "Tag120")
    assert ext_units(config) == [string_hash(f"Tag{i}") for i in range(121)]
    assert [tags_seen(opened, f"Tag{i}") for i in range(0, 121, 40)] == [[0], [40], [80], [120]]
    close_store(opened, clean=False)


@pytest.mark.parametrize("was_extended", [True, False])
def test_a_batch_that_failed_comes_again_without_duplicates(config: MessageStoreConfig, was_extended: bool) -> None:
    """Fault: On a disk that refused queue units, each retry left 20 bytes per message in the extension files."""
    opened = open_store(attrs.evolve(config, enable_consume_queue_ext=was_extended))
    with StoreWriter(opened.config, opened.control) as writer:
        put(writer, "Tag0")
    opened = reopen(opened, config)
    obstacle = opened.paths.consumequeue / "U"  # its queue cannot be made: the whole batch fails
    obstacle.write_bytes(b"")
    with StoreWriter(config, opened.control) as writer:
        for i in range(1, 60):
            put(writer, f"Tag{i}", dispatch=False)
        put(writer, "Other", topic="U", dispatch=False)
        for _ in range(3):
            with pytest.raises(StoreError):
                writer.dispatch.run_to_end()
        obstacle.unlink()
        writer.dispatch.run_to_end()
    assert ext_units(config) == [string_hash(f"Tag{i}") for i in range(0 if was_extended else 1, 60)]
    assert ext_units(config, "U") == [string_hash("Other")]
    assert [tags_seen(opened, f"Tag{i}") for i in range(60)] == [[i] for i in range(60)]
    close_store(opened, clean=False)


def test_without_room_for_extensions_units_are_plain(
    writer: StoreWriter, opened: OpenedStore, config: MessageStoreConfig
) -> None:
    opened.paths.consumequeue_ext.write_bytes(b"")  # not a directory
    put(writer, "TagA")
    put(writer, "TagB")
    assert raw_fields(opened) == [TAG_A, string_hash("TagB")]
    assert writer.dispatch.counts().plain == 2
    opened.paths.consumequeue_ext.unlink()
    put(writer, "TagC")
    assert is_ext_address(raw_fields(opened)[2]) and writer.dispatch.counts().plain == 2
    assert [tags_seen(opened, f"Tag{tag}") for tag in "ABC"] == [[0], [1], [2]]


def test_turned_off_and_on_again(config: MessageStoreConfig) -> None:
    off, tags = attrs.evolve(config, enable_consume_queue_ext=False), "ABCDEFGH"
    opened = open_store(off)
    for i, tag in enumerate(tags):
        opened = reopen(opened, config if i % 4 in (1, 3) else off, clean=i % 3 == 0)
        with StoreWriter(opened.config, opened.control) as writer:
            put(writer, tag)
        assert [tags_seen(opened, tag) for tag in tags[: i + 1]] == [[j] for j in range(i + 1)]
    assert [is_ext_address(field) for field in raw_fields(opened)] == [bool(i % 2) for i in range(8)]
    assert ext_units(config) == [string_hash(tag) for tag in "BDFH"]
    close_store(opened, clean=False)


def test_no_address_ever_leads_to_another_message(config: MessageStoreConfig) -> None:
    """The last unit is lost (a page that never reached the disk): its file ends there and another one begins."""
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        for i in range(4):
            put(writer, f"Tag{i}")
    data = bytearray(ext_path(config).read_bytes())
    data[40:80] = bytes(40)
    ext_path(config).write_bytes(data)
    opened = reopen(opened)
    with StoreWriter(config, opened.control) as writer:
        for i in range(4, 7):
            put(writer, f"Tag{i}")
    assert ext_path(config).read_bytes()[36:44] == data[36:40] + b"\xff\xff\0\0"
    assert raw_fields(opened)[4:] == [ADDRESS_BASE + EXT_FILE_SIZE + at for at in (0, 20, 40)]
    assert [tags_seen(opened, f"Tag{i}") for i in (1, 2, 5)] == [[1, 2, 3], [2, 3], [2, 3, 5]]  # unknown ones pass
    close_store(opened, clean=False)


def test_another_file_size_is_refused(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        put(writer, "TagA")
    close_store(opened, clean=True)
    other = attrs.evolve(config, mapped_file_size_consume_queue_ext=2_048)
    with pytest.raises(StoreError, match="mappedFileSizeConsumeQueueExt"):
        open_store(other)
    close_store(open_store(attrs.evolve(other, enable_consume_queue_ext=False)), clean=True)  # not looked at then
    check_ext_files(DiskFiles(), opened.paths.consumequeue_ext, EXT_FILE_SIZE)
