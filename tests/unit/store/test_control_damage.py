"""A control block with damaged tables: lookups check no bounds, so it is reset, or its entries are forgotten."""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketpy.native.core import ffi, lib
from rocketpy.store.control_block import ControlBlock

LOG_FILE = 1 << 30
QUEUE_SIZE, TOPIC_SIZE = ffi.sizeof("rp_queue"), lib.RP_CONTROL_TOPIC_ENTRY
TOPICS_AT = lib.RP_CONTROL_QUEUES_AT + lib.RP_CONTROL_QUEUES_MAX * QUEUE_SIZE
SLOTS_AT = TOPICS_AT + lib.RP_CONTROL_TOPICS_MAX * TOPIC_SIZE
NAMES_AT = SLOTS_AT + lib.RP_CONTROL_QUEUES_MAX * 2 * 4
FILE_SIZE = NAMES_AT + lib.RP_CONTROL_TOPICS_MAX * 2 * 4
LOCK_AT = 2048  # csrc/store/control/control_block.c
PUBLISHED = 12_345


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The block of two topics with three queues, which was not closed cleanly."""
    control = ControlBlock(tmp_path / "control", LOG_FILE)
    for topic, queue_id in ((b"T", 0), (b"T", 1), (b"U", 0)):
        control.add_queue(topic, queue_id)
    control.header.published_phy_offset = PUBLISHED
    control.mark_boot()
    control.close()
    return tmp_path / "control"


def write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def slot_of(path: Path, begin: int, end: int, entry: int) -> int:
    """Return the place of the slot that names this entry; 0: of a free one."""
    with path.open("rb") as file:
        file.seek(begin)
        slots = array("I", file.read(end - begin))
    return begin + 4 * slots.index(entry)


def set_queue(name: str, value: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        queue: Any = ffi.new("rp_queue *")
        at = lib.RP_CONTROL_QUEUES_AT + QUEUE_SIZE
        with path.open("rb") as file:
            file.seek(at)
            ffi.buffer(queue)[:] = file.read(QUEUE_SIZE)
        setattr(queue, name, value)
        write(path, at, bytes(ffi.buffer(queue)))

    return damage


def set_slot(begin: int, end: int, entry: int, value: int) -> Callable[[Path], None]:
    return lambda path: write(path, slot_of(path, begin, end, entry), value.to_bytes(4, "little"))


DAMAGES = {
    "a queue without a topic": set_queue("topic", 2),
    "a topic that leaves the mapping": set_queue("topic", 2**32 - 1),
    "a queue of another topic": set_queue("topic", 1),
    "a queue number that is none": set_queue("queue_id", 1 << 31),
    "a queue that is not found by its number": set_queue("queue_id", 7),
    "an unknown state": set_queue("state", 5),
    "a topic that leaves the directory": lambda path: write(path, TOPICS_AT, b"\x02.."),
    "a topic that is not found by its name": lambda path: write(path, TOPICS_AT, b"\x01X"),
    "a slot that names no queue": set_slot(SLOTS_AT, NAMES_AT, 0, 4),
    "a slot that names no topic": set_slot(NAMES_AT, FILE_SIZE, 0, 3),
    "a slot that leaves the mapping": set_slot(SLOTS_AT, NAMES_AT, 1, 2**32 - 1),
    "a name's slot that leaves the mapping": set_slot(NAMES_AT, FILE_SIZE, 1, 2**32 - 1),
    "more slots than queues": set_slot(SLOTS_AT, NAMES_AT, 0, 1),
    "more slots than topics": set_slot(NAMES_AT, FILE_SIZE, 0, 1),
    "a queue without its slot": set_slot(SLOTS_AT, NAMES_AT, 1, 0),
}
EVERY_DAMAGE = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)


@EVERY_DAMAGE
@pytest.mark.parametrize("clean", [False, True])
def test_a_damaged_table_is_reset(path: Path, damage: Callable[[Path], None], clean: bool) -> None:
    control = ControlBlock(path, LOG_FILE)
    control.header.clean = clean
    if clean:
        control.header.boot_id[0] ^= 1
    control.close()
    damage(path)
    control = ControlBlock(path, LOG_FILE)
    assert (control.header.queue_count, control.header.published_phy_offset) == (0, 0)
    control.close()


@EVERY_DAMAGE
def test_after_a_power_failure_only_the_positions_are_used(path: Path, damage: Callable[[Path], None]) -> None:
    """Pages of the tables may be of different times; the header is one sector."""
    control = ControlBlock(path, LOG_FILE)
    control.header.boot_id[0] ^= 1
    control.close()
    damage(path)
    control = ControlBlock(path, LOG_FILE)
    assert control.header.published_phy_offset == PUBLISHED
    assert [control.queue(topic, queue_id) for topic, queue_id in (("T", 0), ("T", 1), ("U", 0))] == [None] * 3
    control.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("queue_count", lib.RP_CONTROL_QUEUES_MAX + 1),
        ("topic_count", lib.RP_CONTROL_TOPICS_MAX + 1),
        ("clean", 2),
        ("magic", 1),
        ("layout_version", 1 << 20),
    ],
)
def test_a_header_that_cannot_be_is_reset(path: Path, name: str, value: int) -> None:
    control = ControlBlock(path, LOG_FILE)
    setattr(control.header, name, value)
    control.header.boot_id[0] ^= 1
    control.close()
    control = ControlBlock(path, LOG_FILE)
    assert (control.header.queue_count, control.header.published_phy_offset, control.header.clean) == (0, 0, 0)
    control.close()


@pytest.mark.parametrize(("begin", "end", "entry"), [(SLOTS_AT, NAMES_AT, 3), (NAMES_AT, FILE_SIZE, 2)])
def test_the_newest_entry_may_lack_its_slot(path: Path, begin: int, end: int, entry: int) -> None:
    """The process that added it died."""
    set_slot(begin, end, entry, 0)(path)
    control = ControlBlock(path, LOG_FILE)
    assert control.header.published_phy_offset == PUBLISHED
    assert None not in [control.queue(topic, queue_id) for topic, queue_id in (("T", 0), ("T", 1), ("U", 0))]
    assert control.add_queue(b"U", 0) == control.queue("U", 0) and control.header.queue_count == 3
    control.close()


def test_a_process_that_died_while_it_added_a_queue_hides_none(path: Path) -> None:
    """It held the lock, and had counted its queue. The others have the block open and go on."""
    control = ControlBlock(path, LOG_FILE)
    set_slot(SLOTS_AT, NAMES_AT, 3, 0)(path)
    assert control.queue("U", 0) is None
    lock = int(ffi.cast("uintptr_t", control.header)) + LOCK_AT
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).pthread_mutex_lock(ctypes.c_void_p(lock))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    added = control.add_queue(b"V", 0)
    assert control.queue("V", 0) == added and control.queue("U", 0) is not None
    assert control.header.queue_count == 4
    control.close()
