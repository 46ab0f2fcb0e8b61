"""What a pull finds, row by row of the reference's rules (`DefaultMessageStore#getMessage`): the pull worker in C
and `MessageStore` in Python, over the same store, must both do what the table says."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the pull worker is C")

from rocketpy.config import MessageStoreConfig
from rocketpy.message.record import decode_records
from rocketpy.message.tags import string_hash
from rocketpy.native.core import lib
from rocketpy.store.control_block import ControlBlock
from rocketpy.store.reading.message_store import MessageStore
from tests.support.fast_path import FastPath
from tests.support.fast_path_requests import pull, send_v2

LOG_FILE = 65_536
UNITS = 1000  # per queue file
MEMORY = 100_000  # bytes of the machine, of which 40 % count as in memory
LIMITS = {"bytes_in_memory": 20_000, "count_in_memory": 32, "bytes_on_disk": 5_000, "count_on_disk": 8}
RECORD = 91 + len("T") + len("CLUSTER\x01DefaultCluster")  # without body; and with its tag A: 7 more
CODES = {
    "FOUND": 0,
    "NO_MATCHED_MESSAGE": 20,
    "MESSAGE_WAS_REMOVING": 20,
    "OFFSET_FOUND_NULL": 19,
    "OFFSET_OVERFLOW_ONE": 19,
    "OFFSET_OVERFLOW_BADLY": 21,
    "OFFSET_TOO_SMALL": 21,
}


@attrs.frozen
class Found:
    status: str
    next_offset: int
    offsets: list[int] = attrs.field(factory=list)
    is_far: bool = False


@attrs.define
class Shelf:
    """Queues of topic T, and two ways to read them."""

    rig: FastPath
    store: MessageStore
    way: str

    def put(self, count: int = 1, *, size: int = 0, tag: str = "", queue: int = 0) -> None:
        for _ in range(count):
            properties = f"TAGS\x01{tag}\x02" if tag else ""
            self.rig.frame(send_v2(body=b"x" * size, properties=properties, queue=queue))
            self.rig.turn()
            assert [reply.code for _, reply in self.rig.answers()] == [0]

    def get(self, offset: int, maximum: int = 32, *, tag: str = "*", queue: int = 0) -> Found:
        return (self._by_c if self.way == "c" else self._by_python)(offset, maximum, tag, queue)

    def _by_c(self, offset: int, maximum: int, tag: str, queue: int) -> Found:
        self.rig.frame(pull(offset, queue, maximum=maximum, expression=tag))
        self.rig.turn()
        for kind, record in self.rig.for_manager():  # and what was counted, if the messages took more than a second
            if kind == lib.RP_MSG_PULL:  # beyond the queue; the group has committed nothing
                self.rig.hand_back(kind, record, lib.RP_REQUEST_RESOLVED)
        self.rig.turn()
        [(_, reply)] = self.rig.answers()
        status = reply.remark or ""
        assert reply.code == CODES.get(status, 21 if offset else 19)
        bounds = [int(reply.ext_field(key) or -1) for key in ("minOffset", "maxOffset")]
        assert bounds == [self.store.min_offset("T", queue), self.store.max_offset("T", queue)]
        return Found(
            status,
            int(reply.ext_field("nextBeginOffset") or -1),
            [record.queue_offset for record in decode_records(reply.body or b"")],
            reply.ext_field("suggestWhichBrokerId") == "1",
        )

    def _by_python(self, offset: int, maximum: int, tag: str, queue: int) -> Found:
        hashes = None if tag == "*" else {string_hash(tag)}
        result = self.store.get_message("T", queue, offset, maximum, hashes)
        offsets = [record.queue_offset for image in result.records for record in decode_records(image)]
        return Found(result.status.value, result.next_begin_offset, offsets, result.suggest_slave)


@pytest.fixture(params=["c", "python"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    rig = FastPath(
        tmp_path,
        LIMITS | {"memory_bytes": MEMORY * 40 // 100, "slave_read_enable": 1},
        file_size=LOG_FILE,
        cq_file_size=UNITS * 20,
    )
    rig.add_topic("T")
    rig.add_group("G")
    rig.tables_end()
    config = MessageStoreConfig(
        store_path_root_dir=str(tmp_path),
        mapped_file_size_commit_log=LOG_FILE,
        mapped_file_size_consume_queue=UNITS * 20,
        max_transfer_bytes_on_message_in_memory=LIMITS["bytes_in_memory"],
        max_transfer_count_on_message_in_memory=LIMITS["count_in_memory"],
        max_transfer_bytes_on_message_in_disk=LIMITS["bytes_on_disk"],
        max_transfer_count_on_message_in_disk=LIMITS["count_on_disk"],
    )
    store = MessageStore(config, ControlBlock(tmp_path / "control", LOG_FILE), memory_bytes=MEMORY)
    return Shelf(rig, store, request.param)


@pytest.mark.parametrize(
    ("offset", "found"),
    [
        (-1, Found("OFFSET_TOO_SMALL", 2)),
        (0, Found("OFFSET_TOO_SMALL", 2)),
        (1, Found("OFFSET_TOO_SMALL", 2)),
        (2, Found("FOUND", 5, [2, 3, 4])),
        (4, Found("FOUND", 5, [4])),
        (5, Found("OFFSET_OVERFLOW_ONE", 5)),
        (6, Found("OFFSET_OVERFLOW_BADLY", 5)),
        (1 << 62, Found("OFFSET_OVERFLOW_BADLY", 5)),
    ],
)
def test_where_the_offset_lies(shelf: Shelf, offset: int, found: Found) -> None:
    """Holds: store, from an offset to a unit, a tag test and a record; answer, results of a pull."""
    shelf.put(5)
    entry = shelf.store.control.queue("T", 0)
    assert entry is not None
    entry.min_offset = 2
    assert shelf.get(offset) == found


@pytest.mark.parametrize("offset", [-1, 0, 1, 99])
def test_an_empty_queue(shelf: Shelf, offset: int) -> None:
    """The order of the rules counts: a queue without messages says so, wherever one asks.
    Holds: answer, results of a pull."""
    assert shelf.get(offset, queue=3) == Found("NO_MESSAGE_IN_QUEUE", 0)


def test_one_queue_file_per_pull(shelf: Shelf) -> None:
    shelf.put(UNITS + 20)
    first = shelf.get(UNITS - 10)
    assert (first.next_offset, len(first.offsets)) == (UNITS, 10)
    assert shelf.get(UNITS).offsets == list(range(UNITS, UNITS + 20))
    assert shelf.get(UNITS - 10, tag="none") == Found("NO_MATCHED_MESSAGE", UNITS)


def test_a_missing_queue_file_is_passed_over(shelf: Shelf) -> None:
    """Fault: A pull at a missing queue file got the same offset again, so its consumer never went on."""
    shelf.put(UNITS + 20)
    (shelf.rig.root / "consumequeue" / "T" / "0" / f"{0:020d}").unlink()
    shelf.rig.pull = shelf.rig.open_pull()  # has no descriptor of it
    shelf.rig.add_topic("T")
    shelf.rig.add_group("G")
    shelf.rig.tell_tables_end()
    assert shelf.get(7) == Found("OFFSET_FOUND_NULL", UNITS)
    assert shelf.get(UNITS).status == "FOUND"


@pytest.mark.parametrize(
    ("maximum", "count"), [(1, 1), (0, 1), (-5, 1), (2, 2), (31, 31), (32, 32), (33, 32), (2_000_000_000, 32)]
)
def test_counts_in_memory(shelf: Shelf, maximum: int, count: int) -> None:
    shelf.put(40)
    assert shelf.get(3, maximum) == Found("FOUND", 3 + count, list(range(3, 3 + count)))


@pytest.mark.parametrize(
    ("size", "count"),
    [
        (20_000 - RECORD, 1),  # exactly the limit, alone
        (25_000, 1),  # the first one whatever its size
        (10_000 - RECORD, 2),  # two of them are exactly the limit
        (10_001 - RECORD, 1),
        (4_000 - RECORD, 5),
        (4_001 - RECORD, 4),
    ],
)
def test_bytes_in_memory(shelf: Shelf, size: int, count: int) -> None:
    """Holds: store, messages from the page cache to the socket."""
    shelf.put(2 if size > 20_000 - RECORD else 6 if size < 10_000 else 3, size=size)
    record = shelf.store.consume_queue_units("T", 0, 0, 1)[0]
    assert record.size == size + RECORD
    shelf.store.limits = attrs.evolve(shelf.store.limits, memory_bytes=1 << 40)  # near, however far
    shelf.rig.pull_options["memory_bytes"] = 1 << 40
    shelf.rig.pull = shelf.rig.open_pull()
    shelf.rig.add_topic("T")
    shelf.rig.add_group("G")
    shelf.rig.tell_tables_end()
    assert len(shelf.get(0).offsets) == count


@pytest.mark.parametrize(("maximum", "size", "count"), [(32, 0, 8), (5, 0, 5), (32, 2_500 - RECORD, 2), (32, 6_000, 1)])
def test_limits_far_behind(shelf: Shelf, maximum: int, size: int, count: int) -> None:
    """Holds: broker, backlog."""
    shelf.put(10, size=size)
    shelf.put(1, size=45_000, queue=1)  # beyond what counts as memory
    assert shelf.get(0, maximum) == Found("FOUND", count, list(range(count)), is_far=True)


def test_far_is_counted_from_the_units_own_place(shelf: Shelf) -> None:
    """40 000 bytes and no more count as in memory; a pull may begin far and end near."""
    shelf.put(3, size=5_000 - RECORD)
    shelf.put(1, size=30_000 - RECORD, queue=1)
    assert [shelf.get(offset).is_far for offset in (0, 1, 2)] == [False, False, False]
    assert shelf.get(0, 1).is_far is False  # the last one looked at is the second, 45 000 - 5 000 from the end
    shelf.put(1, queue=1)
    assert shelf.get(0, 1).is_far is True and shelf.get(2).is_far is False


def test_at_least_800_units_are_looked_at(shelf: Shelf) -> None:
    shelf.put(850, tag="A")
    assert shelf.get(0, tag="B") == Found("NO_MATCHED_MESSAGE", 800)
    assert shelf.get(0, 820, tag="B").next_offset == 820
    assert shelf.get(100, 1, tag="B").next_offset == 850


def test_tags_are_tested_before_limits_end_the_pull(shelf: Shelf) -> None:
    """Holds: store, from an offset to a unit, a tag test and a record."""
    for number in range(12):
        shelf.put(1, tag="A" if number % 3 == 0 else "B")
    assert shelf.get(0, 2, tag="A") == Found("FOUND", 4, [0, 3])  # full: the next unit is not looked at
    assert shelf.get(1, 32, tag="A") == Found("FOUND", 12, [3, 6, 9])
    assert shelf.get(1, 1, tag="A") == Found("FOUND", 4, [3])
    assert shelf.get(0, 32, tag="C") == Found("NO_MATCHED_MESSAGE", 12)


class TestRemovedRecords:
    """The log's first file has gone, and the queue's minimum has not been moved yet."""

    @pytest.fixture(autouse=True)
    def remove(self, shelf: Shelf) -> None:
        for number in range(10):
            shelf.put(1, size=8_000, tag="A" if number % 2 == 0 else "B")
        gone = [unit for unit in shelf.store.consume_queue_units("T", 0, 0, 10) if unit.phy_offset < LOG_FILE]
        assert len(gone) == 8
        shelf.store.control.header.min_phy_offset = LOG_FILE
        os.unlink(shelf.rig.root / "commitlog" / f"{0:020d}")

    def test_the_rest_is_found(self, shelf: Shelf) -> None:
        assert shelf.get(0) == Found("FOUND", 10, [8, 9])
        assert shelf.get(0, tag="B") == Found("FOUND", 10, [9])

    def test_nothing_is_found(self, shelf: Shelf) -> None:
        entry = shelf.store.control.queue("T", 0)
        assert entry is not None
        entry.max_offset = 8
        assert shelf.get(0).status == "MESSAGE_WAS_REMOVING" and shelf.get(0).next_offset == 8

    def test_the_unit_looked_at_last_says_why(self, shelf: Shelf) -> None:
        entry = shelf.store.control.queue("T", 0)
        assert entry is not None
        entry.max_offset = 8
        assert shelf.get(0, tag="A").status == "NO_MATCHED_MESSAGE"
        entry.max_offset = 7
        assert shelf.get(0, tag="A").status == "MESSAGE_WAS_REMOVING"
        entry.max_offset = 1
        assert shelf.get(0, tag="B").status == "NO_MATCHED_MESSAGE"  # the tag is looked at first

    def test_a_tag_that_does_not_match_says_so_again(self, shelf: Shelf) -> None:
        entry = shelf.store.control.queue("T", 0)
        assert entry is not None
        entry.max_offset = 10
        shelf.put(1, tag="C")
        entry.max_offset = 11
        assert shelf.get(6, tag="A").offsets == [8]
        assert shelf.get(10, tag="A") == Found("NO_MATCHED_MESSAGE", 11)
