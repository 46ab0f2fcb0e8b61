"""Queue entries: found, added, shared, and trusted only from the same boot."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from random import Random

import pytest

from rocketpy.errors import StoreError
from rocketpy.native.core import ffi, lib
from rocketpy.store import control_block
from rocketpy.store.control_block import QUEUE_DELETED, QUEUE_LIVE, ControlBlock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "control"


def test_entries_are_found_again(path: Path) -> None:
    control = ControlBlock(path, 1 << 30)
    for topic in (b"T", b"a-much-longer-topic-name-%DLQ%", b"x" * 127):
        for queue_id in (0, 7, 1_000_000):
            entry = control.add_queue(topic, queue_id)
            entry.next_offset = len(topic) * queue_id
            assert control.add_queue(topic, queue_id) == entry
    assert control.header.queue_count == 9 and control.header.topic_count == 3
    control.close()
    control = ControlBlock(path, 1 << 30)
    entry = control.queue("a-much-longer-topic-name-%DLQ%", 7)
    assert entry is not None and entry.next_offset == 30 * 7
    assert control.queue("T", 1) is None and control.queue("", 0) is None and control.queue("x" * 128, 0) is None
    assert control.queue("T", -1) is None and control.queue("T", 1 << 31) is None
    assert [state.queue_id for state in control.queues() if state.topic == "T"] == [0, 7, 1_000_000]
    assert [entry.queue_id for entry in control.entries_of("T")] == [0, 7, 1_000_000]
    control.close()


@pytest.mark.parametrize("topic", [b"", b".", b"..", b"a/b", b"a\0b", b"x" * 128])
def test_names_that_are_no_directory_are_refused(path: Path, topic: bytes) -> None:
    control = ControlBlock(path, 1 << 30)
    with pytest.raises(StoreError):
        control.add_queue(topic, 0)
    assert control.header.queue_count == 0
    control.close()


def test_many_queues(path: Path) -> None:
    control = ControlBlock(path, 1 << 30)
    for number in range(20_000):
        control.add_queue(b"topic-%d" % (number // 8), number % 8)
    assert control.header.queue_count == 20_000 and control.header.topic_count == 2_500
    assert control.queue("topic-2499", 7) == lib.rp_control_queue(control.block, 19_999)
    assert control.queue("topic-2500", 0) is None
    control.close()


def test_many_queues_of_one_topic(path: Path) -> None:
    """Some of them have the same slot."""
    control = ControlBlock(path, 1 << 30)
    entries = [control.add_queue(b"T", number) for number in range(10_000)]
    assert control.header.queue_count == 10_000 and [entry.queue_id for entry in entries] == list(range(10_000))
    assert all(control.queue("T", number) == entry for number, entry in enumerate(entries))
    control.close()


def test_a_deleted_entry_is_not_found_until_added_again(path: Path) -> None:
    control = ControlBlock(path, 1 << 30)
    entry = control.add_queue(b"T", 0)
    entry.state = QUEUE_DELETED
    assert control.queue("T", 0) is None and control.queues() == []
    assert control.add_queue(b"T", 0) == entry and control.queue("T", 0) == entry
    control.close()


def test_boot_and_reset(path: Path) -> None:
    control = ControlBlock(path, 1 << 30)
    assert not control.is_same_boot
    control.mark_boot()
    assert control.is_same_boot
    control.add_queue(b"T", 0)
    control.header.published_phy_offset = 5
    control.reset()
    assert not control.is_same_boot and control.queues() == [] and control.published_phy_offset == 0
    assert control.header.commitlog_file_size == 1 << 30
    control.add_queue(b"U", 1)
    control.close()


@pytest.mark.parametrize("size", [1 << 20, 1 << 30])
def test_another_file_size_begins_anew(path: Path, size: int) -> None:
    control = ControlBlock(path, 1 << 30)
    control.mark_boot()
    control.add_queue(b"T", 0)
    control.close()
    control = ControlBlock(path, size)
    assert (control.queue("T", 0) is not None) == (size == 1 << 30)
    control.close()


def test_names_are_looked_for_where_nobody_outside_can_foresee(path: Path) -> None:
    """Fault: Topic names chosen to collide took 130 s to create, and as long again at every start."""
    blocks = [lib.rp_control_open(str(path.with_name(f"control{number}")).encode(), 1 << 20) for number in range(2)]
    seeds = [lib.rp_control_header(block).hash_seed for block in blocks]
    assert len({0, *seeds}) == 3
    for block in blocks:
        lib.rp_control_close(block)


def test_a_block_from_before_there_were_seeds_is_read(path: Path) -> None:
    block = lib.rp_control_open(str(path).encode(), 1 << 20)
    lib.rp_control_header(block).hash_seed = 0
    names = [b"topic%d" % number for number in range(100)]
    added = [lib.rp_control_queue_index(block, lib.rp_control_add(block, name, len(name), 1)) for name in names]
    lib.rp_control_close(block)
    block = lib.rp_control_open(str(path).encode(), 1 << 20)
    found = [lib.rp_control_queue_index(block, lib.rp_control_find(block, name, len(name), 1)) for name in names]
    assert found == added == list(range(100))
    assert lib.rp_control_header(block).hash_seed == 0
    lib.rp_control_close(block)


def test_adders_in_several_processes(path: Path) -> None:
    """An adder that is killed in the middle keeps nobody out, and every entry is there once."""
    control = ControlBlock(path, 1 << 30)
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            for queue_id in range(300):
                name = b"shared" if queue_id % 2 else b"own-%d" % number
                lib.rp_control_add(control.block, name, len(name), queue_id)
            os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    found = [(state.topic, state.queue_id) for state in control.queues()]
    assert len(found) == len(set(found)) == 150 + 4 * 150
    control.close()


def test_the_file_is_sparse(path: Path) -> None:
    control = ControlBlock(path, 1 << 30)
    control.add_queue(b"T", 0)
    assert path.stat().st_blocks * 512 < 16 << 20 < path.stat().st_size
    assert ffi.sizeof("rp_queue") == 64
    control.close()


def test_used_topics_are_those_with_messages(tmp_path: Path) -> None:
    """Fault: With a million queues, a starting manager summed up topics in one step of 2.1 s."""
    control = ControlBlock(tmp_path / "control", 1 << 20)
    for topic, queue_id, next_offset in ((b"A", 0, 5), (b"A", 3, 1), (b"A", 7, 0), (b"B", 0, 0), (b"C", 2, 9)):
        control.add_queue(topic, queue_id).next_offset = next_offset
    control.add_queue(b"D", 0).next_offset = 4
    control.add_queue(b"D", 0).state = QUEUE_DELETED
    assert control.used_topics() == {"A": 4, "C": 3}
    control.close()


def test_deleted_topics_and_which_of_them_hold_messages(tmp_path: Path) -> None:
    control = ControlBlock(tmp_path / "control", 1 << 20)
    for topic, queue_id, *offsets in ((b"A", 0, 5, 5), (b"A", 3, 0, 1), (b"B", 0, 7, 7), (b"C", 0, 0, 1)):
        entry = control.add_queue(topic, queue_id)
        entry.min_offset, entry.next_offset = offsets
    assert control.deleted_topics() == {}
    for topic in ("A", "B", "none", "", "x" * 300):
        control.delete_queues(topic)
    assert control.deleted_topics() == {"A": True, "B": False}
    assert control.deletion_bound("A") is None
    control.delete_units("A", 700)
    control.delete_units("C", 900)
    assert [control.deletion_bound(topic) for topic in "ABC"] == [700, None, None]
    assert control.used_topics() == {"C": 1}
    control.close()


def test_a_damaged_entry_names_no_topic(tmp_path: Path) -> None:
    control = ControlBlock(tmp_path / "control", 1 << 20)
    entry = control.add_queue(b"A", 0)
    entry.next_offset, entry.topic = 1, 1 << 31
    assert control.used_topics() == {} == control.deleted_topics()
    control.close()


@pytest.mark.parametrize("counter", ["queue_count", "topic_count"])
def test_a_full_block_says_what_it_holds(path: Path, counter: str) -> None:
    control = ControlBlock(path, 1 << 30)
    maximum = {"queue_count": lib.RP_CONTROL_QUEUES_MAX, "topic_count": lib.RP_CONTROL_TOPICS_MAX}[counter]
    setattr(control.header, counter, maximum)
    with pytest.raises(StoreError, match="no room for queue 7 of topic T: a store has at most 1048576 queues"):
        control.add_queue(b"T", 7)
    setattr(control.header, counter, 0)
    control.close()


def test_a_topic_without_room_takes_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: Queues of a topic that was refused stayed, so that a broker with too large a defaultTopicQueueNums never
    started again."""
    monkeypatch.setattr(control_block, "QUEUES_MAX", 4)
    control = ControlBlock(path, 1 << 30)
    control.add_queues(b"T", 2)
    with pytest.raises(StoreError, match="of topic T, of which 3 are new: a store has at most 4 queues"):
        control.add_queues(b"T", 5)
    with pytest.raises(StoreError, match="of topic U, of which 2147483647 are new"):
        control.add_queues(b"U", 2**31 - 1)
    assert control.header.queue_count == 2
    control.add_queues(b"T", 4)
    assert [entry.queue_id for entry in control.entries_of("T")] == [0, 1, 2, 3]
    control.close()


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_the_ends_of_topics_are_those_of_their_queues(path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr(control_block, "ENTRIES_PER_STEP", step)
    monkeypatch.setattr(control_block, "TOPICS_PER_STEP", step)
    random, control = Random(step), ControlBlock(path, 1 << 30)
    topics = {f"topic-{number}": random.randrange(5) for number in range(20)}
    for topic, queue_id in [
        (topic, queue_id) for topic in (*topics, "gone") for queue_id in random.sample(range(8), 6)
    ]:
        entry = control.add_queue(topic.encode(), queue_id)
        entry.min_offset = random.randrange(1 << 40)
        entry.max_offset = entry.min_offset + random.randrange(1 << 50)
        entry.state = random.choice([QUEUE_LIVE, QUEUE_LIVE, QUEUE_DELETED])
    topics["never used"] = 4
    expected = {}
    for topic, count in topics.items():
        queues = [queue for queue_id in range(count) if (queue := control.queue(topic, queue_id)) is not None]
        expected[topic] = sum(queue.min_offset for queue in queues), sum(queue.max_offset for queue in queues)
    steps = list(iter_with_result(control.ends(topics)))
    assert steps.pop() == expected and any(high for _, high in expected.values())
    assert len(steps) == len(topics) // step + -(-control.header.queue_count // step)
    control.close()


def iter_with_result(work: Generator[None, None, object]) -> Iterator[object]:
    """Yield None for each step, then the result."""
    yield (yield from work)
