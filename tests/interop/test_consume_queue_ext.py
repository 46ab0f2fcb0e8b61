"""Extension units move between RocketMQ's own store (4.9.7) and ours, both ways: every tag gets its messages."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from rocketpy.message.tags import string_hash
from rocketpy.store.formats.consume_queue_ext import is_ext_address
from rocketpy.store.inspection.dump import StoreDump
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import close_store, open_store
from tests.interop.test_store_java import JVM, compiled, library
from tests.support.store_writer import StoreWriter, small_config

TAGS = ("Tag0", "Tag1", "Tag2", "TagX")
Seen = dict[str, list[int]]  # by tag: the queue offsets of its messages


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("ExtTool", tmp_path_factory.mktemp("ext_classes"))


def expected(total: int) -> Seen:
    """Message n has tag n mod 3."""
    return {tag: list(range(number, total, 3)) if number < 3 else [] for number, tag in enumerate(TAGS)}


def java(classes: Path, root: Path, mode: str, count: int, first: int) -> Seen:
    """`mode`: b with filter bits, k ends without closing, o without extensions."""
    done = subprocess.run(
        ["java", *JVM, "-cp", f"{classes}:{library()}", "ExtTool", root, str(count), str(first), mode or "-"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == (9 if "k" in mode else 0), done.stdout[-2000:]
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("Tag")]
    return {tag: json.loads(offsets) for tag, offsets in lines}


def ours(root: Path, mode: str, count: int, first: int) -> Seen:
    config = small_config(root, enable_consume_queue_ext="o" not in mode, mapped_file_size_consume_queue_ext=1_024)
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        for i in range(first, first + count):
            writer.put("T", 0, b"number %d" % i, b"TAGS\x01Tag%d" % (i % 3), store_timestamp_ms=1_700_000_000_000 + i)
    store, seen = MessageStore(config, opened.control), {}
    for tag in TAGS:
        offsets, at = [], 0
        while at < store.max_offset("T", 0):
            result = store.get_message("T", 0, at, 1, {string_hash(tag)})
            offsets += [result.next_begin_offset - 1] if result.records else []
            at = result.next_begin_offset
        seen[tag] = offsets
    store.close()
    close_store(opened, clean="k" not in mode)
    return seen


def units(root: Path) -> list[tuple[bool, int]]:
    """(is an address, bytes of filter bits or -1) of the queue's units."""
    dump = StoreDump(root)
    (queue,) = dump.queues()
    found = [(is_ext_address(unit.tags_code), dump.ext_unit(queue, unit)) for _, unit in dump.units(queue)]
    return [(is_address, len(ext.bitmap) if ext else -1) for is_address, ext in found]


@pytest.mark.parametrize("bits", ["", "b"])
@pytest.mark.parametrize("end", ["", "k"])
def test_tags_get_their_messages_on_both_sides(tmp_path: Path, classes: Path, end: str, bits: str) -> None:
    root, total, kinds = tmp_path / "store", 0, []
    for is_java, count in ((True, 70), (False, 61), (True, 40), (False, 30), (True, 0), (False, 0)):
        seen = java(classes, root, end + bits, count, total) if is_java else ours(root, end, count, total)
        total += count
        assert seen == expected(total)
        kinds += [(True, 4 if is_java and bits else 0)] * count
        assert end or units(root) == kinds  # who opens a killed store makes the newest units again, in its own way
        assert StoreDump(root).verify().problems == []


@pytest.mark.parametrize("end", ["", "k"])
def test_turned_off_on_the_way(tmp_path: Path, classes: Path, end: str) -> None:
    """What was written with extensions is read without them on our side, and goes on with plain units."""
    root = tmp_path / "store"
    assert java(classes, root, end, 50, 0) == expected(50)
    assert ours(root, end + "o", 40, 50) == expected(90)
    assert java(classes, root, end, 30, 90) == expected(120)
    assert ours(root, end, 30, 120) == expected(150)
    assert java(classes, root, end, 0, 150) == expected(150)
    if not end:
        assert [is_address for is_address, _ in units(root)] == [True] * 50 + [False] * 40 + [True] * 60
    assert StoreDump(root).verify().problems == []
