"""The specifications of the broker's workers, in the order in which they start."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rocketpy.broker.clock import SystemClock
from rocketpy.broker.fast_path.shared_memory import DeliveryMarks, FilterMarks
from rocketpy.broker.memory.manager_memory import ManagerMemory
from rocketpy.config import BrokerSettings, TlsMode
from rocketpy.networks import parse_networks
from rocketpy.reactor.acceptor import Acceptor, Target
from rocketpy.reactor.codec import CodecMain
from rocketpy.reactor.master_link import MasterLink
from rocketpy.reactor.pools import broker_pools
from rocketpy.reactor.selector import SelectorMain, SelectorSettings
from rocketpy.reactor.topology import (
    ACCEPTOR,
    MANAGER,
    PULL,
    QUERY,
    REPLICATOR,
    SEND,
    STORE,
    TLS,
    ReactorSizes,
    Topology,
    with_spares,
)
from rocketpy.reactor.worker_spec import Main, RestartPolicy, StopPhase, WorkerContext, WorkerSpec
from rocketpy.replication.secret import read_secret
from rocketpy.replication.slave_table import SlaveTable
from rocketpy.store.files import StorePaths
from rocketpy.store.formats.unit import parse_delay_levels
from rocketpy.store.recovery.lifecycle import OpenedStore
from rocketpy.store.timers import TimerMarks

from ..workers.inherited import PLAIN, BrokerCertificates, Inherited
from ..workers.manager import ManagerMain
from ..workers.request_server_main import QueryMain
from ..workers.send_and_pull import PullMain, SendMain
from ..workers.store import StoreMain
from .half_messages import recovered_half_states
from .sockets import Sockets

if TYPE_CHECKING:
    from rocketpy.broker.fast_path.shared_access import SharedAccess
    from rocketpy.broker.fast_path.shared_limits import SharedLimits
    from rocketpy.tls import Certificates

    from ..member.tree import MemberTree

MAIN_LISTENER, VIP_LISTENER = 0, 1
FAST_PATH_ROLES = frozenset({"selector", "codec", TLS, SEND, PULL, STORE, REPLICATOR})
WITHOUT_LIMIT = RestartPolicy(limit=None)  # clients are served without a replicator, or a spare selector
SIMPLE_ROLES = frozenset({ACCEPTOR, "selector", "codec", SEND, PULL})


def reactor_sizes(settings: BrokerSettings) -> ReactorSizes:
    """Return the numbers of workers, with as many spare selectors as fit. Raises: ConfigError: the rings do not fit."""
    own = settings.rocketpy
    sizes = ReactorSizes(
        selector_workers=own.selector_workers,
        codec_workers=own.codec_workers,
        pull_workers=own.pull_workers,
        query_workers=own.query_workers,
        tls_workers=own.tls_workers,
        is_slave=settings.is_slave,
        ring_bytes=own.ring_size,
        shared_bytes_max=own.ring_memory_max,
    )
    return with_spares(sizes, own.selector_workers_max - own.selector_workers)


def manager_memory(settings: BrokerSettings, sizes: ReactorSizes, opened: OpenedStore) -> ManagerMemory:
    """Return the memory that a restarted manager inherits; created before the first fork."""
    own = settings.rocketpy
    return ManagerMemory.create(
        opened.paths.root,
        own.kept_memory_bytes,
        is_ours=opened.is_ours,
        clock=SystemClock(),
        clients_max=own.connections_max * len(sizes.selectors),
    )


def worker_specs(
    settings: BrokerSettings,
    topology: Topology,
    opened: OpenedStore,
    memory: ManagerMemory,
    sockets: Sockets,
    member: MemberTree | None = None,
    certificates: BrokerCertificates | None = None,
    access: SharedAccess | None = None,
) -> Iterator[WorkerSpec]:
    """Yield every worker of the broker, in the order of their start: workers that send requests to others come last.

    `certificates`: None without TLS and signatures. `access`: None without access control.
    """
    sizes = topology.sizes
    hang_s = settings.rocketpy.worker_heartbeat_timeout_millis / 1000

    def spec(name: str, role: str, main: Main, phase: int, **others: Any) -> WorkerSpec:
        return WorkerSpec(
            name=name,
            role=role,
            block=topology.blocks[name],
            main=main,
            stop_phase=phase,
            hang_timeout_s=hang_s,
            is_simple=role in SIMPLE_ROLES,
            prefers_latency=role in FAST_PATH_ROLES,
            **others,
        )

    inherited = _inherited(settings, topology, opened, member, certificates or PLAIN, access)
    link = inherited.master_link
    writes = (opened.lock.worker_fd,)  # keeps the store locked while a worker that writes is running
    if settings.is_slave:
        inherited.timers.follow_master()
    yield spec(STORE, STORE, StoreMain(inherited), StopPhase.STORE, keep_fds=(*writes, inherited.timers.fileno()))
    yield spec(SEND, SEND, SendMain(inherited), StopPhase.FAST_PATH, keep_fds=writes)
    replication, metrics = sockets.replication, sockets.metrics
    to_tls = [replicators_end.fileno() for replicators_end, _ in topology.ha_handoffs.values()]
    if replication is not None:
        sender, fd = _master_replicator(inherited, replication), replication.fileno()
        how: dict[str, Any] = {"starts_on": fd, "restart": WITHOUT_LIMIT}
        if member is not None:  # it confirms positions without slaves, too; a group elects if this one cannot
            how = {}
        yield spec(REPLICATOR, REPLICATOR, sender, StopPhase.REPLICATION, keep_fds=(fd, *to_tls), **how)
    if link is not None:
        from ..workers.slave import slave_replicator  # what only a slave runs is imported only there (memory.py)

        receiver = slave_replicator(inherited, link, may_truncate=not opened.is_cut_refused)
        yield spec(REPLICATOR, REPLICATOR, receiver, StopPhase.INTAKE, restart=WITHOUT_LIMIT)
    for pull in sizes.pulls:
        yield spec(pull, PULL, PullMain(inherited, pull), StopPhase.FAST_PATH)
    manager = ManagerMain(inherited, metrics, memory)
    yield spec(MANAGER, MANAGER, manager, StopPhase.MANAGERS, keep_fds=() if metrics is None else (metrics.fileno(),))
    for query in sizes.queries:
        yield spec(query, QUERY, QueryMain(inherited), StopPhase.MANAGERS)
    yield from _remoting_workers(inherited, sockets.listeners, spec)


def _remoting_workers(
    inherited: Inherited, listeners: Sequence[socket.socket], spec: Callable[..., WorkerSpec]
) -> Iterator[WorkerSpec]:
    """Return the workers between clients and the workers that serve requests."""
    settings, topology, member = inherited.settings, inherited.topology, inherited.member
    sizes, table = topology.sizes, inherited.pools
    if (certificates := inherited.certificates.serves) is not None:
        yield from _tls_workers(settings, certificates, topology, spec)
    for codec in sizes.codecs:
        yield spec(codec, "codec", CodecMain(topology, codec, table, _codec_limits(inherited)), StopPhase.CODECS)
    for selector in sizes.selectors:
        main = SelectorMain(topology, selector, table, _selector_settings(inherited))
        to_tls = [selectors_end for selectors_end, _ in topology.tls_handoffs.values()]
        handoff, others = topology.handoffs[selector][1].fileno(), (main.parked, *to_tls)
        fds = (handoff, *(sock.fileno() for sock in others if sock is not None))
        on_demand = {"starts_on": handoff, "restart": WITHOUT_LIMIT} if selector in sizes.spares else {}
        how: dict[str, Any] = {"quiet_phase": StopPhase.INTAKE, "keep_fds": fds, **on_demand}
        yield spec(selector, "selector", main, StopPhase.SELECTORS, **how)
    acceptor, kept = _acceptor(topology, listeners, settings.rocketpy.connections_max, member)
    yield spec(ACCEPTOR, ACCEPTOR, acceptor.run, StopPhase.INTAKE, keep_fds=kept)


def _inherited(
    settings: BrokerSettings,
    topology: Topology,
    opened: OpenedStore,
    member: MemberTree | None,
    certificates: BrokerCertificates,
    access: SharedAccess | None,
) -> Inherited:
    control = opened.control
    levels = len(parse_delay_levels(settings.store.message_delay_level))
    return Inherited(
        settings=settings,
        topology=topology,
        control=control,
        pools=broker_pools(settings),
        delivered=DeliveryMarks(levels, lambda: control.published_phy_offset),
        halves=recovered_half_states(opened),
        timers=TimerMarks.open(opened.paths, opened.files, control),
        filter_marks=FilterMarks(),
        slaves=SlaveTable() if member is None else member.memory.slaves,
        master_link=MasterLink() if settings.is_slave else None,
        member=member,
        certificates=certificates,
        access=access,
        limits=_shared_limits(settings, topology.sizes),
    )


def _shared_limits(settings: BrokerSettings, sizes: ReactorSizes) -> SharedLimits | None:
    if not any(settings.limits.values()):
        return None
    from rocketpy.broker.fast_path.shared_limits import SharedLimits

    return SharedLimits(settings.limits, len(sizes.selectors))


def _master_replicator(inherited: Inherited, listener: socket.socket) -> Main:
    """Return `main` of the replicator of a master. Its modules are imported with the first slave (memory.py).

    Raises:
        ConfigError: haSecretFile cannot be used.
    """
    secret = read_secret(inherited.settings.store.ha_secret_file)

    def main(context: WorkerContext) -> None:
        from ..workers.replicator import ReplicatorMain

        ReplicatorMain(inherited, listener, secret)(context)

    return main


def _tls_workers(
    settings: BrokerSettings, certificates: Certificates, topology: Topology, spec: Callable[..., WorkerSpec]
) -> Iterator[WorkerSpec]:
    from rocketpy.reactor.tls_worker import TlsMain  # OpenSSL is loaded only where it is used

    handshake_s = settings.rocketpy.tls_handshake_timeout_millis / 1000
    for name in topology.sizes.tls:
        arrivals = [topology.tls_handoffs[name][1], topology.ha_handoffs[name][1]]
        main = TlsMain(topology.blocks[name], arrivals, certificates, handshake_s)
        fds = tuple(end.fileno() for end in arrivals)
        yield spec(name, TLS, main, StopPhase.TLS, quiet_phase=StopPhase.INTAKE, keep_fds=fds)


def _acceptor(
    topology: Topology, listeners: Sequence[socket.socket], connections_max: int, member: MemberTree | None
) -> tuple[Acceptor, tuple[int, ...]]:
    """Return the acceptor, with the descriptors that it keeps."""
    blocks, spares = topology.blocks, topology.sizes.spares
    targets = [
        Target(blocks[selector], acceptors_end, connections_max, selector in spares)
        for selector, (acceptors_end, _) in topology.handoffs.items()
    ]
    numbered = list(zip(listeners, (MAIN_LISTENER, VIP_LISTENER), strict=True))
    parked = None if member is None else member.parked.out
    sockets = [*listeners, *(target.handoff for target in targets), *([] if parked is None else [parked])]
    return Acceptor(numbered, targets, topology.blocks[ACCEPTOR], parked), tuple(one.fileno() for one in sockets)


def _codec_limits(inherited: Inherited) -> dict[str, Any]:
    access = {} if inherited.access is None else {"access": inherited.access.pointer}
    limits = inherited.limits if inherited.limits is not None and inherited.limits.limits_accounts else None
    return inherited.settings.c_fields("rp_codec_config") | access | _limits(limits)


def _limits(limits: SharedLimits | None) -> dict[str, Any]:
    return {} if limits is None else {"limits": limits.pointer}


def _selector_settings(inherited: Inherited) -> SelectorSettings:
    settings, control, member = inherited.settings, inherited.control, inherited.member
    store = settings.store
    return SelectorSettings(
        commitlog_directory=str(StorePaths.of(store.store_path_root_dir, store.store_path_commit_log).commitlog),
        commitlog_file_bytes=store.mapped_file_size_commit_log,
        read_ahead=store.data_read_ahead_enable,
        min_phy_offset=lambda: control.min_phy_offset,
        limits=settings.c_fields("rp_selector_config") | _limits(inherited.limits),
        codec_limits=_codec_limits(inherited),
        proxies=parse_networks(settings.rocketpy.proxy_protocol_from),
        is_tls_required=settings.tls.tls_server_mode is TlsMode.ENFORCING,
        member=None if member is None else member.memory.block,
        parked=None if member is None else member.parked.into,
        parks=(lambda: False) if member is None else (lambda: member.memory.marks.is_replaced),
    )
