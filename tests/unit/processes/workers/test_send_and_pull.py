"""The C loops get the values of the settings."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the C loops are C")

from rocketpy.config import BrokerRole, BrokerSettings, FlushDiskType, load_broker_config
from rocketpy.native.core import ffi
from rocketpy.processes.workers.send_and_pull import SendMain, pull_limits, send_limits
from rocketpy.reactor.topology import REPLICATOR, ReactorSizes, Topology
from rocketpy.replication.slave_table import SlaveTable
from tests.support.cases import cases
from tests.support.inherited import inherited
from tests.support.master_rig import close_topology

SEND = [
    ("broker", {"trace_on": False}, {"trace_on": False}),
    ("rocketpy", {"timer_max_delay_sec": 7}, {"timer_max_delay_ms": 7_000}),
    ("store", {"max_message_size": 77}, {"max_message_size": 77}),
    ("store", {"flush_disk_type": FlushDiskType.SYNC_FLUSH}, {"sync_flush": True}),
    ("store", {"sync_flush_timeout": 77}, {"sync_flush_timeout_ms": 77}),
    ("store", {"slave_timeout": 77}, {"slave_timeout_ms": 77}),
    ("store", {"ha_slave_fallbehind_max": 77}, {"fall_behind_max": 77}),
    ("rocketpy", {"dispatch_lag_max": 99}, {"dispatch_lag_max": 99}),
    ("store", {"os_page_cache_busy_time_out_mills": 77}, {"page_cache_busy_ms": 77}),
    ("broker", {"broker_fast_failure_enable": False}, {"fast_failure": False}),
    ("broker", {"wait_time_mills_in_send_queue": 77}, {"wait_time_in_queue_ms": 77}),
]
PULL = [
    ("store", {"mapped_file_size_consume_queue_ext": 7777}, {"consume_queue_ext_file_size": 7777}),
    ("store", {"max_transfer_bytes_on_message_in_memory": 77}, {"bytes_in_memory": 77}),
    ("store", {"max_transfer_count_on_message_in_memory": 77}, {"count_in_memory": 77}),
    ("store", {"max_transfer_bytes_on_message_in_disk": 77}, {"bytes_on_disk": 77}),
    ("store", {"max_transfer_count_on_message_in_disk": 77}, {"count_on_disk": 77}),
    ("rocketpy", {"bulk_pull_bytes": 77}, {"bulk_bytes": 77}),
    ("rocketpy", {"bulk_pull_count": 77}, {"bulk_count": 77}),
    ("store", {"access_message_in_memory_max_ratio": 7}, {"memory_bytes": 70}),
    ("broker", {"long_polling_enable": False}, {"long_polling": False}),
    ("broker", {"short_polling_time_mills": 77}, {"short_polling_ms": 77}),
    ("broker", {"slave_read_enable": True}, {"slave_read_enable": True}),
    ("store", {"offset_check_in_slave": True}, {"offset_check_in_slave": True}),
    ("broker", {"broker_fast_failure_enable": False}, {"fast_failure": False}),
    ("broker", {"wait_time_mills_in_pull_queue": 77}, {"wait_time_in_queue_ms": 77}),
]


def changed(part: str, change: dict[str, Any]) -> BrokerSettings:
    settings = BrokerSettings()
    return attrs.evolve(settings, **{part: attrs.evolve(getattr(settings, part), **change)})


@cases("part, change, effect", SEND)
def test_send_limits(part: str, change: dict[str, Any], effect: dict[str, Any]) -> None:
    before, after = send_limits(BrokerSettings()), send_limits(changed(part, change))
    assert after == before | effect != before


@cases("part, change, effect", PULL)
def test_pull_limits(part: str, change: dict[str, Any], effect: dict[str, Any]) -> None:
    before, after = pull_limits(BrokerSettings(), 1000), pull_limits(changed(part, change), 1000)
    assert after == before | effect != before


@pytest.mark.parametrize("role", [BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER])
def test_a_sync_master_waits_for_slaves(tmp_path: Path, role: BrokerRole) -> None:
    given = {"storePathRootDir": str(tmp_path), "brokerRole": role.value, "brokerIP1": "127.0.0.1"}
    settings = load_broker_config(None, given)
    topology, slaves = Topology.create(ReactorSizes()), SlaveTable()
    other: Any = SimpleNamespace(pointer=ffi.NULL, block=ffi.NULL)
    main = SendMain(inherited(settings, topology, other, slaves))
    awaited = slaves.pointer if role is BrokerRole.SYNC_MASTER else ffi.NULL
    assert main._config.slaves == awaited
    assert main._config.replicator == topology.blocks[REPLICATOR].pointer
    close_topology(topology)
