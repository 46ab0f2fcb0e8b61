"""A selector worker. It runs the C loop of csrc/workers/selector/selector.c and returns to Python once a second."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from rocketpy.errors import TransportError
from rocketpy.logs import LogLimit
from rocketpy.native.core import ffi, lib
from rocketpy.networks import Network

from .codec import CodecConfig
from .crashed_request import drop_crashed_request
from .handoff import HANDOFF_MAX, Accepted, hand_over
from .pools import PoolTable
from .ring import WorkerBlock, ring_array
from .topology import Topology
from .worker_spec import WorkerContext

if TYPE_CHECKING:
    from rocketpy.failover.member_block import MemberBlock

logger = logging.getLogger(__name__)

LOG_INTERVAL_S = 10.0  # between two lines of one reason
COMPLAINTS: dict[int, str] = {
    lib.RP_COUNT_CONNECTIONS_REFUSED: "the limit is reached; raise connectionsMax, or open files (ulimit -Hn)",
    lib.RP_COUNT_TLS_REFUSED: "TLS workers are behind; raise tlsWorkers, or open files (ulimit -Hn)",
    lib.RP_COUNT_ADDRESS_REFUSED: "their address is at addressConnectionsMax or failedAuthenticationsMax",
    lib.RP_COUNT_ADDRESS_CLOSED: "their address is at failedAuthenticationsMax or addressConnectionsMax",
    lib.RP_COUNT_PINNING_CLOSED: "they did not read responses from CommitLog files that were deleted 30 s ago",
    lib.RP_COUNT_UNFINISHED_CLOSED: "incomplete requests took more than unfinishedInputMax; these were the oldest",
    lib.RP_COUNT_UNSENT_CLOSED: "unread responses took more than unsentOutputMax; these had the most",
    lib.RP_COUNT_PROXY_BAD: "their address is in proxyProtocolFrom, but they sent no PROXY header",
}
MAPPED_PREFIX = bytes(10) + b"\xff\xff"  # of an IPv4 address among IPv6 ones
LOG_MAPPINGS_MAX = 64  # CommitLog files that one selector keeps mapped


@attrs.frozen(kw_only=True)
class SelectorSettings:
    """Limits of one selector."""

    commitlog_directory: str | None = None
    """Directory that pull responses are read from; None if no consumer ever pulls."""
    commitlog_file_bytes: int = 1 << 30
    read_ahead: bool = True
    """The kernel may read more of the log from the disk than responses need."""
    min_phy_offset: Callable[[], int] | None = None
    """Returns the first offset of the log: files below it have been deleted, and are unmapped here too."""
    limits: Mapping[str, int] = attrs.field(factory=dict)
    """Fields of rp_selector_config; what is not given has the default of the core."""
    codec_limits: Mapping[str, Any] = attrs.field(factory=dict)
    """The limits of the codec inside, if there is one: see `CodecConfig`."""
    proxies: Sequence[Network] = ()
    """Networks of proxies: their connections begin with a PROXY header, which names the real peer."""
    is_tls_required: bool = False
    """Close connections without TLS. Without TLS workers there is no TLS."""
    member: MemberBlock | None = None
    """The member block, with automatic failover: says when nothing is to be read."""
    parked: socket.socket | None = None
    """The socket for connections that the next process tree is to serve (handoff.py)."""
    parks: Callable[[], bool] = lambda: False
    """Another process tree follows, when this one stops."""


class SelectorMain:
    """`main` of the selector worker `name`. What its loop is configured with is written before the fork (codec.py)."""

    def __init__(self, topology: Topology, name: str, table: PoolTable, settings: SelectorSettings) -> None:
        self._topology = topology
        self._settings = settings
        self.parked = settings.parked
        sizes = topology.sizes
        self._codec = None if sizes.codecs else CodecConfig(topology, name, table, settings.codec_limits)
        codecs = ring_array([topology.ring(name, codec_name) for codec_name in sizes.codecs])
        inputs = topology.inputs(name)
        replies = ring_array(inputs)
        proxies = network_array(settings.proxies)
        tls = ffi.new("int32_t[]", [topology.tls_handoffs[worker][0].fileno() for worker in sizes.tls])
        self._kept = codecs, replies, proxies, tls
        self._config: Any = ffi.new(
            "rp_selector_config *",
            {
                "worker": topology.blocks[name].pointer,
                "index": sizes.selectors.index(name),
                "handoff": topology.handoffs[name][1].fileno(),
                "reply_count": len(inputs),
                "codec_count": len(sizes.codecs),
                "replies": replies,
                "codecs": codecs,
                "proxy_count": len(settings.proxies),
                "proxies": proxies,
                "tls_count": len(sizes.tls),
                "tls": tls,
                "is_tls_required": settings.is_tls_required,
                "intake_paused": ffi.NULL if settings.member is None else settings.member.intake_paused,
                **settings.limits,
            },
        )

    def __call__(self, context: WorkerContext) -> None:
        drop_crashed_request(context.block, self._topology)
        view = self._config.log = self._open_view()
        codec = self._config.inline_codec = ffi.NULL if self._codec is None else self._codec.open()
        selector = lib.rp_selector_open(self._config)
        if selector == ffi.NULL:
            raise TransportError(f"cannot open selector {context.name}: {os.strerror(ffi.errno)}")
        context.report_ready()
        self._serve(selector, view, context)
        if self._settings.parked is not None and self._settings.parks():
            park_all(selector, self._settings.parked)
        lib.rp_selector_close(selector)
        if codec != ffi.NULL:
            lib.rp_codec_close(codec)
        if view != ffi.NULL:
            lib.rp_log_view_close(view)

    def _open_view(self) -> Any:
        if self._settings.commitlog_directory is None:
            return ffi.NULL
        directory = os.fsencode(self._settings.commitlog_directory)
        view = lib.rp_log_view_open(directory, self._settings.commitlog_file_bytes, LOG_MAPPINGS_MAX)
        if view == ffi.NULL:
            raise TransportError(f"cannot read {self._settings.commitlog_directory}: {os.strerror(ffi.errno)}")
        if not self._settings.read_ahead:
            lib.rp_log_view_read_exactly(view)
        return view

    def _serve(self, selector: Any, view: Any, context: WorkerContext) -> None:
        status = lib.RP_OK
        min_phy_offset = self._settings.min_phy_offset
        complaints = Complaints(context.block)  # created here: earlier counts were logged by the previous process
        while status == lib.RP_OK:
            status = lib.rp_selector_run(selector, context.beat_ns)
            complaints.report()
            if view != ffi.NULL and min_phy_offset is not None:
                lib.rp_log_view_trim(view, min_phy_offset())
        if status != lib.RP_STOPPED:
            raise TransportError(f"selector {context.name}: epoll failed: {os.strerror(ffi.errno)}")


def park_all(selector: Any, parked: socket.socket) -> None:
    """Pass the connections of a stopped selector on to the next process tree. Connections without room close."""
    fds, listeners = ffi.new("int32_t[]", HANDOFF_MAX), ffi.new("uint8_t[]", HANDOFF_MAX)
    while given := lib.rp_selector_give_up(selector, fds, listeners, HANDOFF_MAX):
        hand_over(parked, [Accepted(fds[index], listeners[index]) for index in range(given)])
        for index in range(given):
            os.close(fds[index])


class Complaints:
    """Logs closed connections: at most one line per reason and LOG_INTERVAL_S, with their number."""

    def __init__(self, block: WorkerBlock, now_s: Callable[[], float] = time.monotonic) -> None:
        self._block = block
        self._limit = LogLimit(LOG_INTERVAL_S, now_s)
        self._seen = {counter: block.counter(counter) for counter in COMPLAINTS}

    def report(self) -> None:
        for counter, reason in COMPLAINTS.items():
            count = self._block.counter(counter)
            told = self._limit.take(counter, count - self._seen[counter])
            self._seen[counter] = count
            if told:
                logger.warning("closed %d connections of %s: %s", told, self._block.name, reason)


def network_array(networks: Sequence[Network]) -> Any:
    """`rp_network *` for a config struct; keep the result until the C side has read it."""
    array = ffi.new("rp_network[]", max(1, len(networks)))
    for entry, network in zip(array, networks, strict=False):
        packed = network.network_address.packed
        mapped = MAPPED_PREFIX + packed if network.version == 4 else packed
        ffi.memmove(entry.address, mapped, 16)
        entry.bits = network.prefixlen + (96 if network.version == 4 else 0)
    return array
