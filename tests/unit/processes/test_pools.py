"""The table of pools and what the broker serves are the same codes; the documentation shows every row."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.broker.managers.broker_stats import BrokerHealth, WorkerHealth
from rocketpy.codes import ResponseCode
from rocketpy.config import BrokerSettings
from rocketpy.native.core import ffi, lib
from rocketpy.processes.workers.shared_counts import (
    broker_health,
    count_refused_send,
    fast_path_counters,
    load_of_rings,
    pool_loads,
)
from rocketpy.reactor.pools import broker_pools
from rocketpy.reactor.ring import RingReader, RingWriter
from rocketpy.reactor.topology import MANAGER, SEND, ReactorSizes, Topology
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


def test_sends_that_the_manager_refuses_are_counted_like_those_of_the_send_worker() -> None:
    """Fault: rocketpy_send_failures_total and putMessageFailedTimes missed sends that the manager refuses."""
    topology = Topology.create(ReactorSizes(ring_bytes=65536))
    manager = topology.blocks[MANAGER]
    topology.blocks[SEND].add(lib.RP_COUNT_PUT_FAILED, 5)
    for code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SYSTEM_BUSY, ResponseCode.NO_PERMISSION):
        count_refused_send(manager, code)
    assert (manager.counter(lib.RP_COUNT_PUT_FAILED), manager.counter(lib.RP_COUNT_BUSY)) == (2, 1)
    assert fast_path_counters(topology).put_failed == 7
    close(topology)


def test_the_health_of_all_workers_is_that_of_their_blocks() -> None:
    topology = Topology.create(ReactorSizes(selector_workers=2, tls_workers=2, ring_bytes=65536))
    for name, starts in (("selector-0", 1), ("selector-1", 3)):
        for _ in range(starts):
            topology.blocks[name].begin(2_000_000)
        topology.blocks[name].add(lib.RP_COUNT_CONNECTIONS_REFUSED, starts)
    topology.blocks["selector-0"].mark_ready()
    topology.blocks["selector-0"].add(lib.RP_COUNT_TLS_REFUSED, 6)
    topology.blocks["selector-0"].add(lib.RP_COUNT_UNSENT_CLOSED, 2)
    topology.blocks["selector-1"].add(lib.RP_COUNT_PINNING_CLOSED, 5)
    topology.blocks["tls-0"].show(lib.RP_COUNT_TLS_NOT_AFTER_S, 900)
    topology.blocks["tls-1"].show(lib.RP_COUNT_TLS_NOT_AFTER_S, 800)
    assert broker_health(topology, now_ns=lambda: 9_000_000) == BrokerHealth(
        workers=[WorkerHealth("selector-0", True, 7, 0), WorkerHealth("selector-1", False, 7, 2)],
        connections_refused=10,
        unread_closed=7,
        certificate_not_after_s=800,
    ), "workers that were never started are left out"
    close(topology)


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
    tables = topology.handoffs, topology.tls_handoffs, topology.ha_handoffs
    for pair in (pair for table in tables for pair in table.values()):
        pair[0].close()
        pair[1].close()
