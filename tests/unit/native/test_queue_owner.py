"""Several pull workers: a queue has one owner, and codec, store worker and manager name the same one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.native.core import ffi, lib
from rocketpy.reactor.worker_messages import owner_of_pull
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import SerializeType
from tests.support.fast_path import FastPath, drain
from tests.support.shared_memory import worker_block

OWNERS = 3
PULL = {
    "consumerGroup": "G",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "*",
    "subVersion": "0",
    "queueOffset": "0",
}


def owner(topic: str, queue_id: int, owners: int = OWNERS) -> int:
    return int(lib.rp_queue_owner(topic.encode(), len(topic.encode()), queue_id, owners))


def test_the_hash_is_the_same_in_every_release() -> None:
    assert [owner(topic, 0) for topic in ("", "a", "TopicTest", "%RETRY%G")] == [1, 1, 1, 0]


def test_the_queues_of_a_topic_are_spread_evenly() -> None:
    for topic in ("T", "TopicTest", "ünïcode"):
        counts = Counter(owner(topic, queue_id) for queue_id in range(12))
        assert counts == dict.fromkeys(range(OWNERS), 4)
    assert {owner(topic, 5, 1) for topic in ("a", "b")} == {0}
    first = Counter(owner(f"topic-{n}", 0) for n in range(3000))
    assert all(800 < count < 1200 for count in first.values()), first


@pytest.fixture
def codec(tmp_path: Path) -> Any:
    """A codec with three pull workers and two query workers; their rings' readers behind it."""
    path = FastPath(tmp_path)
    pulls = [path._ring("selector", "pull") for _ in range(OWNERS)]
    path.workers["query"] = worker_block(len(path.workers))
    queries = [path._ring("selector", worker) for worker in ("query", "manager")]
    routes = ffi.new("rp_route[]", [(11, lib.RP_TO_PULL), (33, lib.RP_TO_QUERY)])
    path._keep.append(routes)
    path.codec_options = {
        "pull_count": OWNERS,
        "pulls": path._rings(*pulls),
        "query_count": 2,
        "queries": path._rings(*queries),
        "routes": routes,
        "route_count": 2,
    }
    lib.rp_codec_close(path.codec)
    path.codec = path.open_codec()
    path.pull_readers = [lib.rp_ring_reader_open(ring) for ring in pulls]
    path.query_readers = [lib.rp_ring_reader_open(ring) for ring in queries]
    yield path
    path.close()


@pytest.mark.parametrize("kind", list(SerializeType))
def test_a_pull_goes_to_the_owner_of_its_queue(codec: Any, kind: SerializeType) -> None:
    topics = ["T", 'with "quotes" and ünïcode', "x" * 3000]
    for topic in topics:
        for queue_id in range(6):
            fields = PULL | {"topic": topic, "queueId": str(queue_id)}
            request = RemotingCommand(11, 7, ext_fields=fields, serialize_type=kind)
            assert codec.frame(request) == lib.RP_OK
    lib.rp_codec_wake(codec.codec)
    found = [(number, record) for number, reader in enumerate(codec.pull_readers) for _, record in drain(reader)]
    passed_over = len(codec.for_manager())
    assert len(found) + passed_over == 18 and len(found) >= 12
    for number, record in found:
        request = ffi.from_buffer("rp_msg_pull *", record)
        at = ffi.sizeof("rp_msg_pull") + request.group_size
        topic = record[at : at + request.topic_size].decode()
        assert topic in topics
        assert number == owner(topic, request.queue_id) == owner_of_pull(record, OWNERS)


def test_a_full_ring_of_one_owner_does_not_hold_up_the_others(codec: Any) -> None:
    fields = PULL | {"topic": "T", "queueId": "0"}
    busy = 0
    for n in range(20_000):
        assert codec.frame(RemotingCommand(11, n, ext_fields=fields)) == lib.RP_OK
        busy = codec.workers["selector"].counters[lib.RP_COUNT_BUSY]
        if busy:
            break
    assert busy, "the ring and its backlog are bounded"
    assert codec.frame(RemotingCommand(11, 1, ext_fields=fields | {"queueId": "1"})) == lib.RP_OK
    assert len(drain(codec.pull_readers[owner("T", 1)])) == 1


def test_queries_take_turns_and_every_worker_hears_of_the_end_of_a_connection(codec: Any) -> None:
    for n in range(4):
        assert codec.frame(RemotingCommand(33, n, ext_fields={"offset": "0"})) == lib.RP_OK
    codec.closed(1)
    lib.rp_codec_wake(codec.codec)
    for reader in codec.query_readers:
        kinds = [kind for kind, _ in drain(reader)]
        assert kinds == [lib.RP_MSG_COMMAND, lib.RP_MSG_COMMAND, lib.RP_MSG_CLOSED]
    for reader in codec.pull_readers:
        assert [kind for kind, _ in drain(reader)] == [lib.RP_MSG_CLOSED]
    assert [kind for kind, _ in codec.for_manager()] == [lib.RP_MSG_CLOSED]


def test_queries_go_to_a_worker_that_has_none_waiting(codec: Any) -> None:
    """A worker that stands still keeps one query, those behind it go to the other.
    Fault: Queries waited up to 11 s for a stuck query worker although another was free."""

    def ask(opaque: int) -> None:
        assert codec.frame(RemotingCommand(33, opaque, ext_fields={"offset": "0"})) == lib.RP_OK
        lib.rp_codec_wake(codec.codec)

    stopped, free = codec.query_readers
    ask(0)
    for opaque in range(1, 10):
        ask(opaque)
        assert len(drain(free)) == 1
    assert len(drain(stopped)) == 1
    codec.workers["query"].counters[lib.RP_COUNT_WAITING] = 1  # in its pool
    for opaque in range(10):
        ask(opaque)
        assert (len(drain(stopped)), len(drain(free))) == (0, 1)


def test_an_arrival_is_told_to_the_owner_alone(tmp_path: Path) -> None:
    path = FastPath(tmp_path)
    path.add_topic("T", 6)
    path.tables_end()
    rings = [path._ring("store", "pull") for _ in range(OWNERS)]
    writers = ffi.new("rp_ring_writer *[]", [lib.rp_ring_writer_open(ring) for ring in rings])
    lib.rp_dispatch_set_pulls(path.dispatch, writers, OWNERS)
    queues = [lib.rp_control_find(path.block, b"T", 1, queue_id) for queue_id in range(6)]
    for queue in queues:
        queue.watched = 1
    for queue_id in range(6):
        fields = {
            "a": "PG",
            "b": "T",
            "c": "TBW102",
            "d": "4",
            "e": str(queue_id),
            "f": "0",
            "g": "0",
            "h": "0",
            "i": "",
        }
        assert path.frame(RemotingCommand(310, queue_id, ext_fields=fields, body=b"x")) == lib.RP_OK
    path.turn()
    for number, ring in enumerate(rings):
        told = [ffi.from_buffer("rp_msg_arrival *", record).queue for _, record in drain(lib.rp_ring_reader_open(ring))]
        wanted = [queue for queue_id, queue in enumerate(queues) if owner("T", queue_id) == number]
        assert sorted(told) == sorted(lib.rp_control_queue_index(path.block, queue) for queue in wanted)
        assert told
    path.close()
