"""Extension files are dropped, rebuilt and cleaned with their queues, and dump and verify read them."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from rocketpy.cli import store_tools
from rocketpy.config import MessageStoreConfig
from rocketpy.message.tags import string_hash
from rocketpy.store.files import DiskFiles, file_name
from rocketpy.store.formats.consume_queue_ext import (
    ADDRESS_BASE,
    remove_ext_files,
)
from rocketpy.store.inspection.dump import StoreDump
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from rocketpy.store.services.cleaning import Cleaner
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
    store_min,
    tags_seen,
)
from tests.support.store_writer import StoreWriter, threads_without_time


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
    cleaner = Cleaner(config, opened.control, DiskFiles(), lambda: NOW, threads_without_time())
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
