"""A codec worker. It runs the C loop of csrc/workers/codec/codec.c and returns to Python once a second, for signals.

What the loop is configured with is written before the fork: Python that runs in the child costs it pages.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rocketpy.codes import OUR_VERSION
from rocketpy.errors import TransportError
from rocketpy.native.core import ffi, lib

from .crashed_request import drop_crashed_request
from .pools import PoolTable
from .ring import ring_array
from .topology import MANAGER, SEND, Topology
from .worker_spec import WorkerContext


class CodecConfig:
    """The configuration of the decoder `name`: a codec worker, or a selector when there are no codec workers.

    Args:
        limits: fields of rp_codec_config that settings declare, and its table of accounts.
    """

    def __init__(self, topology: Topology, name: str, table: PoolTable, limits: Mapping[str, Any]) -> None:
        self._name = name
        sizes = topology.sizes
        is_inline = not sizes.codecs
        inputs = [] if is_inline else [topology.ring(selector, name) for selector in sizes.selectors]
        # A selector decodes for its own connections only, so every index refers to itself.
        selectors = [topology.ring(name, name if is_inline else selector) for selector in sizes.selectors]
        routes = ffi.new("rp_route[]", list(table.routes()))
        pulls = [topology.ring(name, pull) for pull in sizes.pulls]
        queries = [topology.ring(name, query) for query in sizes.queries]
        self._kept = (ring_array(inputs), ring_array(pulls), ring_array(queries), ring_array(selectors), routes)
        self._pointer: Any = ffi.new(
            "rp_codec_config *",
            {
                "worker": topology.blocks[name].pointer,
                "input_count": len(inputs),
                "pull_count": len(pulls),
                "query_count": len(queries),
                "selector_count": len(selectors),
                "route_count": len(routes),
                "inputs": self._kept[0],
                "send": topology.ring(name, SEND).pointer,
                "manager": topology.ring(name, MANAGER).pointer,
                "pulls": self._kept[1],
                "queries": self._kept[2],
                "selectors": self._kept[3],
                "routes": routes,
                "version": OUR_VERSION,
                **limits,
            },
        )

    def open(self) -> Any:
        """An rp_codec, in the process that runs it; it is valid for as long as this lives."""
        pointer = lib.rp_codec_open(self._pointer)
        if pointer == ffi.NULL:
            raise TransportError(f"cannot open codec {self._name}: {os.strerror(ffi.errno or 12)}")
        return pointer


class CodecMain:
    """`main` of the codec worker `name`."""

    def __init__(self, topology: Topology, name: str, table: PoolTable, limits: Mapping[str, Any]) -> None:
        self._topology = topology
        self._config = CodecConfig(topology, name, table, limits)

    def __call__(self, context: WorkerContext) -> None:
        drop_crashed_request(context.block, self._topology)
        codec = self._config.open()
        context.report_ready()
        while lib.rp_codec_run(codec, context.beat_ns) != lib.RP_STOPPED:
            pass
        lib.rp_codec_close(codec)
