"""Extension units: golden bytes of a Java broker, where they end after a crash, and who sees what of them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import StoreError
from rocketpy.message.tags import string_hash
from rocketpy.native.core import ffi, lib
from rocketpy.startup.cli import store_tools
from rocketpy.store.files import DiskFiles, file_name
from rocketpy.store.formats.consume_queue_ext import (
    ADDRESS_BASE,
    ADDRESS_MAX,
    ExtUnit,
    check_ext_files,
    is_ext_address,
    read_ext_unit,
    real_offset,
    remove_ext_files,
)
from rocketpy.store.inspection.dump import StoreDump
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from rocketpy.store.running_flags import RunningFlags
from rocketpy.store.services.cleaning import Cleaner
from tests.support.store_writer import StoreWriter, small_config

NOW = 1_700_000_000_000
EXT_FILE_SIZE = 1_024  # 51 units, and four bytes for the end
UNITS_PER_FILE = 51
TAG_A = string_hash("TagA")
JAVA_UNIT = bytes.fromhex("0022000000000027a8070000018bcfe56800000e0000020000000000400000000002")


@pytest.fixture
def config(tmp_path: Path) -> MessageStoreConfig:
    return small_config(
        tmp_path / "store", enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=EXT_FILE_SIZE
    )


def ext_path(config: MessageStoreConfig, number: int = 0, topic: str = "T", queue_id: int = 0) -> Path:
    directory = Path(config.store_path_root_dir) / "consumequeue_ext" / topic / str(queue_id)
    return directory / file_name(number * EXT_FILE_SIZE)


def ext_units(config: MessageStoreConfig, topic: str = "T", queue_id: int = 0) -> list[int]:
    """Tags codes of all extension units, as a walk finds them."""
    codes = []
    for path in sorted(ext_path(config, 0, topic, queue_id).parent.iterdir()):
        data, at = path.read_bytes(), 0
        assert len(data) == EXT_FILE_SIZE
        while (size := int.from_bytes(data[at : at + 2], "big", signed=True)) > 0:
            codes.append(int.from_bytes(data[at + 2 : at + 10], "big", signed=True))
            at += size
        assert not any(data[at + 2 :]), "something lies behind the end"
    return codes


def put(writer: StoreWriter, tag: str, *, topic: str = "T", dispatch: bool = True) -> None:
    writer.put(topic, 0, b"", b"TAGS\x01" + tag.encode(), store_timestamp_ms=NOW, dispatch=dispatch)


def tags_seen(opened: OpenedStore, tag: str, topic: str = "T") -> list[int]:
    """Queue offsets of the messages that a subscription to one tag gets."""
    store, offsets, at = MessageStore(opened.config, opened.control), [], store_min(opened, topic)
    while at < store.max_offset(topic, 0):
        result = store.get_message(topic, 0, at, 1, {string_hash(tag)})
        if result.records:
            offsets.append(result.next_begin_offset - 1)
        at = result.next_begin_offset
    store.close()
    return offsets


def store_min(opened: OpenedStore, topic: str) -> int:
    queue = opened.control.queue(topic, 0)
    return 0 if queue is None else int(queue.min_offset)


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


def reopen(opened: OpenedStore, config: MessageStoreConfig | None = None, *, clean: bool = False) -> OpenedStore:
    close_store(opened, clean=clean)
    return open_store(config or opened.config)


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


# --- with the rest of the store ---------------------------------------------------------------------------------------


def test_a_dropped_queue_takes_its_extensions_along(
    writer: StoreWriter, opened: OpenedStore, config: MessageStoreConfig
) -> None:
    put(writer, "TagA")
    queue = opened.control.queue("T", 0)
    writer.dispatch.drop_queue(queue)
    assert not ext_path(config).parent.exists()
    queue.next_offset = 0
    put(writer, "TagB")
    assert ext_units(config) == [string_hash("TagB")] and tags_seen(opened, "TagB") == [0]


def test_a_queue_rebuilt_from_the_log_begins_anew(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        for i in range(5):
            put(writer, f"Tag{i}")
    (opened.paths.consumequeue / "T" / "0" / file_name(0)).unlink()
    opened = reopen(opened)
    assert ext_units(config) == [string_hash(f"Tag{i}") for i in range(5)]
    assert [tags_seen(opened, f"Tag{i}") for i in range(5)] == [[i] for i in range(5)]
    close_store(opened, clean=False)


def test_extensions_of_a_queue_without_units_are_removed(config: MessageStoreConfig) -> None:
    """All of the queue's units were behind the log's end."""
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        put(writer, "TagA")
    close_store(opened, clean=False)
    opened.paths.control.unlink()
    (opened.paths.commitlog / file_name(0)).unlink()
    opened = open_store(config)
    assert not ext_path(config).parent.exists() and opened.control.queue("T", 0) is None
    close_store(opened, clean=False)


def test_files_are_removed_up_to_an_address(tmp_path: Path) -> None:
    directory = tmp_path / "0"
    directory.mkdir()
    for number in range(4):
        (directory / file_name(number * EXT_FILE_SIZE)).write_bytes(bytes(EXT_FILE_SIZE))
    assert remove_ext_files(DiskFiles(), directory, 2 * EXT_FILE_SIZE + 20) == 2
    assert sorted(path.name for path in directory.iterdir()) == [file_name(n * EXT_FILE_SIZE) for n in (2, 3)]
    assert remove_ext_files(DiskFiles(), directory) == 2 and not directory.exists()
    assert remove_ext_files(DiskFiles(), directory) == 0


def test_cleaning_removes_the_files_in_front_of_the_first_message(
    writer: StoreWriter, opened: OpenedStore, config: MessageStoreConfig
) -> None:
    for i in range(4 * UNITS_PER_FILE):
        put(writer, f"Tag{i}")
    store = MessageStore(config, opened.control)
    first = 2 * UNITS_PER_FILE + 3
    opened.control.header.min_phy_offset = store.consume_queue_units("T", 0, first, 1)[0].phy_offset
    store.close()
    cleaner = Cleaner(
        config, opened.control, RunningFlags(opened.control), DiskFiles(), lambda: NOW, lambda seconds: None
    )
    cleaner.clean()
    cleaner.close()
    assert store_min(opened, "T") == first
    names = sorted(path.name for path in ext_path(config).parent.iterdir())
    assert names == [file_name(number * EXT_FILE_SIZE) for number in (2, 3)]
    assert tags_seen(opened, f"Tag{first}") == [first]


@pytest.fixture
def root(writer: StoreWriter, opened: OpenedStore) -> Path:
    put(writer, "TagA")
    put(writer, "TagB")
    return opened.paths.root


def test_dump_shows_where_a_tags_code_comes_from(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ext_file = root / "consumequeue_ext/T/0" / file_name(0)
    ext_file.write_bytes((ext_file.read_bytes()[:20] + JAVA_UNIT).ljust(EXT_FILE_SIZE, b"\0"))
    units = store_tools.Selection(topic="T", queue_id=0)
    store_tools.dump(root, units)
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith(f"tags code {TAG_A} (extension at 0: stored={NOW})")
    assert second.endswith(f"(extension at 20: stored={NOW} filter bits {JAVA_UNIT[20:].hex()})")
    store_tools.dump(root, attrs.evolve(units, start=1, as_json=True))
    extension = {"tagsCode": TAG_A, "storeTimestamp": NOW, "bitMap": JAVA_UNIT[20:].hex()}
    assert json.loads(capsys.readouterr().out)["extension"] == extension
    ext_file.unlink()
    store_tools.dump(root, attrs.evolve(units, count=1))
    assert capsys.readouterr().out.endswith("tags code lost (extension at 0)\n")
    store_tools.dump(root, attrs.evolve(units, count=1, as_json=True))
    assert json.loads(capsys.readouterr().out)["tagsCode"] == ADDRESS_BASE


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (None, None),
        (1, "has its extension unit at 0"),
        (9, "tags code 2598935"),
        (17, "an extension unit of store time"),
    ],
)
def test_verify_checks_extensions(root: Path, at: int | None, text: str | None) -> None:
    path = root / "consumequeue_ext/T/0" / file_name(0)
    data = bytearray(path.read_bytes())
    if at is not None:
        data[at] ^= 16
    path.write_bytes(data)
    problems = StoreDump(root).verify().problems
    assert [text in str(problem) for problem in problems] == ([True] if text else []), problems
