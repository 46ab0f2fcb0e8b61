"""The main functions of the send and pull workers: they run the C loops of csrc/workers/send/send.c and
csrc/workers/pull/pull.c, which return to Python once a second. Their configuration is made here, from the broker's
settings and the machine, before the fork (reactor/codec.py)."""

from __future__ import annotations

import os
from typing import Any

from rocketpy.codes import OUR_VERSION
from rocketpy.config import BrokerSettings
from rocketpy.errors import StoreError
from rocketpy.native.core import ffi, lib, shared
from rocketpy.reactor.crashed_request import drop_crashed_request
from rocketpy.reactor.ring import ring_array
from rocketpy.reactor.topology import MANAGER, REPLICATOR, SEND, STORE
from rocketpy.reactor.worker_messages import encode_host
from rocketpy.reactor.worker_spec import WorkerContext
from rocketpy.store.formats.unit import rounded_file_size

from .inherited import Inherited

QUEUE_FILES_MAX = 4096  # consume queue files that all pull workers together keep open


class SendMain:
    """`main` of the send worker: the only writer of the CommitLog."""

    def __init__(self, inherited: Inherited) -> None:
        self._inherited = inherited
        settings, topology, paths = inherited.settings, inherited.topology, inherited.paths
        master_link, member = inherited.master_link, inherited.orders
        self._commitlog = paths.commitlog
        strings = [
            ffi.new("char[]", text)
            for text in (
                os.fsencode(paths.commitlog),
                os.fsencode(paths.consumequeue),
                f"CLUSTER\x01{settings.broker.broker_cluster_name}".encode(),
                settings.broker.region_id.encode(),
            )
        ]
        inputs, selectors = ring_array(topology.requests_to(SEND)), ring_array(topology.replies_from(SEND))
        self._kept = strings, inputs, selectors
        self._config: Any = ffi.new(
            "rp_send_config *",
            {
                "worker": topology.blocks[SEND].pointer,
                "store": topology.blocks[STORE].pointer,
                "replicator": topology.blocks[REPLICATOR].pointer,
                "block": inherited.control.block,
                "commitlog_directory": strings[0],
                "consume_queue_directory": strings[1],
                "consume_queue_file_size": rounded_file_size(settings.store.mapped_file_size_consume_queue),
                "input_count": len(topology.requests_to(SEND)),
                "selector_count": len(topology.sizes.selectors),
                "inputs": inputs,
                "from_manager": topology.ring(MANAGER, SEND).pointer,
                "to_manager": topology.ring(SEND, MANAGER).pointer,
                "selectors": selectors,
                "marks": inherited.delivered.pointer,
                "half_states": inherited.halves.pointer,
                "from_store": topology.ring(STORE, SEND).pointer,
                "timers": inherited.timers.pointer,
                "member": ffi.NULL if member is None else member.pointer,
                "waits_for_confirmed": member is not None and settings.is_sync_master,
                "slaves": inherited.slaves.pointer if settings.is_sync_master else ffi.NULL,
                "master_link": ffi.NULL if master_link is None else master_link.pointer,
                "from_replicator": ffi.NULL if master_link is None else topology.ring(REPLICATOR, SEND).pointer,
                "store_host": encode_host(settings.broker.broker_ip1, settings.server.listen_port),
                "cluster_property": strings[2],
                "region": strings[3],
                "version": OUR_VERSION,
            }
            | send_limits(settings),
        )

    def __call__(self, context: WorkerContext) -> None:
        drop_crashed_request(context.block, self._inherited.topology)
        send = lib.rp_send_open(self._config)
        if send == ffi.NULL:
            raise StoreError(f"cannot write the CommitLog in {self._commitlog}: {os.strerror(ffi.errno)}")
        context.report_ready()
        while lib.rp_send_run(send, context.beat_ns) != lib.RP_STOPPED:
            pass
        lib.rp_send_close(send)


class PullMain:
    """`main` of one pull worker: answers the pulls of its queues, and suspends pulls that found nothing."""

    def __init__(self, inherited: Inherited, name: str) -> None:
        self._inherited = inherited
        settings, topology, paths = inherited.settings, inherited.topology, inherited.paths
        store = settings.store
        workers = topology.sizes.pull_workers
        capacity = max(1, settings.broker.pull_thread_pool_queue_capacity // workers)
        slots = capacity * ffi.sizeof("rp_suspension_slot")  # of pulls that a restarted worker answers
        suspended = shared("rp_suspension_slots", "suspended pulls", slots)
        suspended.capacity = capacity
        self._consume_queues = paths.consumequeue
        directory = ffi.new("char[]", os.fsencode(self._consume_queues))
        log = ffi.new("char[]", os.fsencode(paths.commitlog))
        inputs, selectors = ring_array(topology.requests_to(name)), ring_array(topology.replies_from(name))
        self._kept = directory, log, inputs, selectors
        self._config: Any = ffi.new(
            "rp_pull_config *",
            {
                "worker": topology.blocks[name].pointer,
                "store": topology.blocks[STORE].pointer,
                "block": inherited.control.block,
                "commitlog_directory": log,
                "consume_queue_directory": directory,
                "consume_queue_file_size": rounded_file_size(store.mapped_file_size_consume_queue),
                "files_max": QUEUE_FILES_MAX // workers,
                "marks": inherited.filter_marks.pointer,
                "suspended": suspended,
                "input_count": len(topology.requests_to(name)),
                "selector_count": len(topology.sizes.selectors),
                "inputs": inputs,
                "from_manager": topology.ring(MANAGER, name).pointer,
                "from_store": topology.ring(STORE, name).pointer,
                "to_manager": topology.ring(name, MANAGER).pointer,
                "selectors": selectors,
                "version": OUR_VERSION,
            }
            | pull_limits(settings, machine_memory_bytes()),
        )

    def __call__(self, context: WorkerContext) -> None:
        drop_crashed_request(context.block, self._inherited.topology)
        pull = lib.rp_pull_open(self._config)
        if pull == ffi.NULL:
            raise StoreError(f"cannot read the consume queues in {self._consume_queues}: {os.strerror(ffi.errno)}")
        context.report_ready()
        while lib.rp_pull_run(pull, context.beat_ns) != lib.RP_STOPPED:
            pass
        lib.rp_pull_close(pull)


def send_limits(settings: BrokerSettings) -> dict[str, Any]:
    """Return the settings of the send loop."""
    derived = {"sync_flush": settings.is_sync_flush, "is_slave": settings.is_slave}
    return settings.c_fields("rp_send_config") | derived


def pull_limits(settings: BrokerSettings, memory_bytes: int) -> dict[str, Any]:
    """Return the settings of the pull loop, on a machine with this much memory."""
    in_memory = memory_bytes * settings.store.access_message_in_memory_max_ratio // 100
    return settings.c_fields("rp_pull_config") | {"is_slave": settings.is_slave, "memory_bytes": in_memory}


def machine_memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
