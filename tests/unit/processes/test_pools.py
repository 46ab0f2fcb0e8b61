"""The table of pools and what the broker serves are the same codes; the documentation shows every row."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.config import BrokerSettings
from rocketpy.native.core import ffi, lib
from rocketpy.processes.workers.shared_counts import fast_path_counters, load_of_rings, pool_loads
from rocketpy.reactor.pools import broker_pools
from rocketpy.reactor.ring import RingReader, RingWriter
from rocketpy.reactor.topology import SEND, ReactorSizes, Topology
from rocketpy.reactor.worker_messages import ORIGIN, WorkerMessage
from rocketpy.remoting.limits import PoolLoad
from tests.support.slow_path import SlowPathRig, body_of

TABLE = broker_pools(BrokerSettings())
ARCHITECTURE = Path(__file__).parents[3] / "docs" / "understand" / "architecture.md"


def test_every_served_code_has_a_row_and_every_row_is_served(tmp_path: Path) -> None:
    assert SlowPathRig(tmp_path).processors.keys() == TABLE.codes


def test_the_documentation_shows_every_pool_with_its_codes() -> None:
    rows = [line.split("|")[1:-1] for line in ARCHITECTURE.read_text().splitlines() if line.startswith("| `")]
    shown = {cells[0].strip(" `"): cells for cells in rows}
    for pool in TABLE.pools:
        cells = shown[pool.name]
        assert cells[2].strip().startswith(pool.served_by)
        if pool.name != TABLE.default:
            assert sorted(int(code) for code in cells[1].replace(",", " ").split()) == sorted(pool.codes)


def test_what_waits_in_rings_is_counted_and_its_head_timed() -> None:
    topology = Topology.create(ReactorSizes(selector_workers=2, codec_workers=2, ring_bytes=65536))
    writers = [RingWriter(ring) for ring in topology.requests_to(SEND)]
    record = ffi.new("rp_msg_send *", {"origin": {"received_ns": 2_000_000}})
    for _ in range(3):
        assert writers[0].write(WorkerMessage.SEND, bytes(ffi.buffer(record)))
    record.origin.received_ns = 1_000_000
    assert writers[1].write(WorkerMessage.SEND, bytes(ffi.buffer(record)))
    own = {"send": PoolLoad(1, 10_000, 1), "admin": PoolLoad(5, 10_000, 7)}
    loads = pool_loads(topology, TABLE, own, now_ns=lambda: 6_000_000)
    assert loads == {
        "send": PoolLoad(5, 10_000, 5),
        "pull": PoolLoad(0, 10_000, 0),
        "query": PoolLoad(0, 20_000, 0),
        "admin": PoolLoad(5, 10_000, 7),
    }
    for ring in topology.requests_to(SEND):
        reader = RingReader(ring)
        while reader.read():
            pass
    assert load_of_rings(topology.requests_to(SEND), 9, 6_000_000) == PoolLoad(0, 9, 0)
    close(topology)


def test_the_time_of_the_append_under_way_is_shown(tmp_path: Path) -> None:
    topology = Topology.create(ReactorSizes(ring_bytes=65536))
    assert fast_path_counters(topology, now_ns=lambda: 9_000_000).append_ms == 0
    topology.blocks[SEND].pointer.busy_since_ns = 2_000_000
    counters = fast_path_counters(topology, now_ns=lambda: 9_000_000)
    assert counters.append_ms == 7
    assert fast_path_counters(topology, now_ns=lambda: 1_000_000).append_ms == 0, "it began after the look at the clock"
    close(topology)
    rig = SlowPathRig(tmp_path)
    rig.counters = counters
    assert body_of(trio.run(lambda: rig.ask(28)))["table"]["pageCacheLockTimeMills"] == "7"


def test_what_waits_in_query_workers_is_counted_with_the_rest() -> None:
    topology = Topology.create(ReactorSizes(query_workers=2, ring_bytes=65536))
    record = ORIGIN.write(received_ns=3_000_000)
    [ring] = topology.requests_to("query-0")
    assert RingWriter(ring).write(WorkerMessage.COMMAND, record)
    topology.blocks["query-1"].show(lib.RP_COUNT_WAITING, 4)
    topology.blocks["query-1"].show(lib.RP_COUNT_WAITING_SINCE_NS, 1_000_000)
    loads = pool_loads(topology, TABLE, {"query": PoolLoad(1, 20_000, 2)}, now_ns=lambda: 9_000_000)
    assert loads["query"] == PoolLoad(6, 20_000, 8)
    close(topology)


def test_a_large_request_is_timed_from_its_first_part() -> None:
    topology = Topology.create(ReactorSizes(ring_bytes=65536))
    [ring] = topology.requests_to(SEND)
    writer = RingWriter(ring)
    record = ffi.new("rp_msg_send *", {"origin": {"received_ns": 77}})
    assert writer.write(WorkerMessage.SEND, bytes(ffi.buffer(record)) + bytes(200_000))
    assert ring.waiting() == (1, 77)
    close(topology)


def test_runtime_info_shows_what_waits(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    rig.pool_loads = {"send": PoolLoad(3, 10_000, 12), "query": PoolLoad(4, 20_000, 5)}
    table = body_of(trio.run(lambda: rig.ask(28)))["table"]
    assert (table["sendThreadPoolQueueSize"], table["sendThreadPoolQueueHeadWaitTimeMills"]) == ("3", "12")
    assert (table["queryThreadPoolQueueSize"], table["queryThreadPoolQueueHeadWaitTimeMills"]) == ("4", "5")
    assert (table["pullThreadPoolQueueSize"], table["pullThreadPoolQueueHeadWaitTimeMills"]) == ("0", "0")


def close(topology: Topology) -> None:
    for block in topology.blocks.values():
        os.close(block.doorbell)
    for pair in topology.handoffs.values():
        pair[0].close()
        pair[1].close()
