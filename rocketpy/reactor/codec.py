"""A codec worker: the C loop of csrc/workers/codec.c, once around per second for Python's sake."""

from __future__ import annotations

import os
from typing import Any

import attrs

from rocketpy.codes import OUR_VERSION
from rocketpy.errors import TransportError
from rocketpy.native.core import ffi, lib

from .crashed_request import drop_crashed_request
from .pools import PoolTable
from .ring import ring_array
from .topology import PULL, SEND, Topology
from .worker_spec import WorkerContext

TURN_NS = 1_000_000_000


@attrs.frozen(eq=False)
class OpenCodec:
    """An rp_codec and what its config pointed to."""

    pointer: Any
    kept: tuple[Any, ...]


def open_codec(topology: Topology, name: str, table: PoolTable, send_stall_ms: int) -> OpenCodec:
    """The decoder `name`: a codec worker, or the codec inside a selector when there are no codec workers.

    Args:
        send_stall_ms: sends are refused while the send process has been at one thing for longer; 0: never.
    """
    sizes = topology.sizes
    is_inline = not sizes.codecs
    inputs = [] if is_inline else [topology.ring(selector, name) for selector in sizes.selectors]
    # A selector decodes for its own connections only: whatever index it looks up, it means itself.
    selectors = [topology.ring(name, name if is_inline else selector) for selector in sizes.selectors]
    routes = ffi.new("rp_route[]", list(table.routes()))
    managers = [topology.ring(name, manager) for manager in sizes.managers]
    arrays = (ring_array(inputs), ring_array(managers), ring_array(selectors), routes)
    config = ffi.new(
        "rp_codec_config *",
        {
            "worker": topology.blocks[name].pointer,
            "input_count": len(inputs),
            "manager_count": len(managers),
            "selector_count": len(selectors),
            "route_count": len(routes),
            "inputs": arrays[0],
            "send": topology.ring(name, SEND).pointer,
            "pull": topology.ring(name, PULL).pointer,
            "managers": arrays[1],
            "selectors": arrays[2],
            "routes": routes,
            "version": OUR_VERSION,
            "send_stall_ms": send_stall_ms,
        },
    )
    pointer = lib.rp_codec_open(config)
    if pointer == ffi.NULL:
        raise TransportError(f"cannot open codec {name}: {os.strerror(ffi.errno or 12)}")
    return OpenCodec(pointer, arrays)


@attrs.frozen(eq=False)
class CodecMain:
    """`main` of a codec worker."""

    topology: Topology
    table: PoolTable
    send_stall_ms: int = 0

    def __call__(self, context: WorkerContext) -> None:
        drop_crashed_request(context.block, self.topology)
        codec = open_codec(self.topology, context.name, self.table, self.send_stall_ms)
        context.report_ready()
        while lib.rp_codec_run(codec.pointer, TURN_NS) != lib.RP_STOPPED:
            pass
        lib.rp_codec_close(codec.pointer)
