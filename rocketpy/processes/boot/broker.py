"""Runs a broker: connects all parts, from its settings to the close of its store.

    load certificates -> open sockets -> open (and recover) the store -> hold its tables to its log -> rings, memory
    -> workers -> share memory -> fork -> serve -> stop -> close the store

Before the store is open nothing on the disk is changed, so an error found before costs nothing. Modules of the workers
are imported while the store is being opened: opening is mostly C and the disk, imports are mostly Python.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from rocketpy.config import BrokerSettings
from rocketpy.native import require_core
from rocketpy.reactor.supervisor import Supervisor
from rocketpy.reactor.worker_spec import EXIT_REOPEN, WorkerSpec

from ...logs import set_up_logging
from ..member.marks import EPOCH_FILE, EXIT_OTHER_EPOCH, INCARNATION_FILE
from .capacity import with_capacity
from .service_manager import ServiceManager
from .sockets import Sockets, open_sockets
from .store_opening import StoreOpening, begin_replication, requested_cut, start_again

if TYPE_CHECKING:
    from rocketpy.broker.fast_path.shared_access import SharedAccess

    from ..member.tree import MemberTree
    from ..workers.inherited import BrokerCertificates

logger = logging.getLogger(__name__)


def run_broker(
    settings: BrokerSettings,
    manager: ServiceManager,
    *,
    beside: Callable[[], Sequence[WorkerSpec]] = lambda: (),
    ready_lines: Callable[[BrokerSettings], Sequence[str]] | None = None,
) -> int:
    """Run a broker until SIGTERM or SIGINT; in the main thread of a process without other threads.

    Args:
        beside: workers that live and end with the broker (a name server of its own).
        ready_lines: lines to print when it serves, from the final settings; the reference's line by default.
    Returns: the exit status: 0 after a clean stop.
    Raises:
        ConfigError, TransportError, StoreError, NativeMissing: one line each; nothing was started.
    """
    require_core()
    set_up_logging(settings.rocketpy.log_level, settings.rocketpy.log_format)
    for note in settings.notes:
        logger.warning("configuration: %s", note)
    say = ready_lines or (lambda settings: [ready_line(settings)])
    certificates = _certificates(settings)
    run = partial(run_tree, certificates=certificates, access=_access(settings))
    with open_sockets(settings, manager) as sockets:
        if sockets.metrics is not None:
            settings = _with(settings, metrics_port=sockets.metrics.getsockname()[1])
        settings = with_capacity(settings)

        def on_ready() -> None:
            print("\n".join(say(settings)), flush=True)
            manager.tell_ready()

        if settings.store.is_automatic:
            from .member import run_member

            calls = None if certificates is None else certificates.calls
            return run_member(settings, sockets, run, on_ready, manager.beat, calls)
        status = run(settings, sockets, beside, on_ready, beat=manager.beat)
        if status == EXIT_REOPEN:
            manager.tell_restart()
            start_again()
    return status


def run_tree(
    settings: BrokerSettings,
    sockets: Sockets,
    beside: Callable[[], Sequence[WorkerSpec]],
    on_ready: Callable[[], None],
    member: MemberTree | None = None,
    certificates: BrokerCertificates | None = None,
    access: SharedAccess | None = None,
    beat: Callable[[float], None] | None = None,
) -> int:
    """Open the store and run the supervisor and its workers until they are told to stop. Returns: the exit status.

    Args:
        member: with automatic failover, what the guardian has for its process tree.
        certificates: None: without TLS and signatures.
        access: None: without access control.
        beat: called at each turn of the supervisor; None: the guardian's turns count.
    """
    opening = StoreOpening(
        settings.store,
        cut_at=member.role.cut_at if member else requested_cut(settings),
        stops_at_confirmed=member is not None and member.is_sync_group,
        distrust=member.distrust_in(Path(settings.store.store_path_root_dir)) if member else None,
    )
    clean = False
    try:
        from rocketpy.reactor.topology import Topology

        from .memory import share_memory
        from .table_check import check_tables
        from .worker_list import manager_memory, reactor_sizes, worker_specs

        specs = list(beside())
        opened = opening.wait()
        if member is None:
            _leave_group(settings)
        elif not member.begin(opened, is_sync_flush=settings.is_sync_flush):
            return EXIT_OTHER_EPOCH
        check_tables(opened)
        begin_replication(opened, settings)
        sizes = reactor_sizes(settings)
        logger.info(
            "each of %d selectors accepts up to %d connections (connectionsMax); %d of them start when others are full",
            *(len(sizes.selectors), settings.rocketpy.connections_max, sizes.spare_selectors),
        )
        topology = Topology.create(sizes)
        memory = manager_memory(settings, sizes, opened)
        specs += worker_specs(settings, topology, opened, memory, sockets, member, certificates, access)
        supervisor = Supervisor(specs, settings.rocketpy.stop_timeout_millis / 1000, on_ready)
        if member is not None:
            supervisor.on_turn = member.watch(specs)
        elif beat is not None:
            supervisor.on_turn = lambda _absent: beat(supervisor.process.clock())
        share_memory()
        status = supervisor.run()
        is_replaced = member is not None and member.memory.marks.is_replaced  # the next tree need not wait for the disk
        clean = status in (0, EXIT_REOPEN) and not is_replaced
    finally:
        opening.close(clean=clean)
    return status


def _leave_group(settings: BrokerSettings) -> None:
    """Drop the identity of a member from a store that is opened without failover: no group knows it any more.

    Called with the store's lock: until then the store may be that of a member that runs.
    """
    root = Path(settings.store.store_path_root_dir)
    if any((root / name).exists() for name in (INCARNATION_FILE, EPOCH_FILE)):
        from ..member.identity import forget

        forget(root)


def _certificates(settings: BrokerSettings) -> BrokerCertificates | None:
    """Load what TLS and signatures need; None: there are neither.

    Raises:
        ConfigError: a file of a certificate or key, or that of the credentials, cannot be used.
    """
    tls, path = settings.tls, settings.broker.acl_credentials_file
    if not tls.is_served and not tls.use_tls and not path:
        return None
    from ..workers.inherited import BrokerCertificates

    loaded = BrokerCertificates()
    if path:
        from rocketpy.acl.credentials import CredentialsFile

        loaded = attrs.evolve(loaded, credentials=CredentialsFile(Path(path)))
    if tls.is_served or tls.use_tls:
        from rocketpy.tls import Certificates

        serves = Certificates.of_server(tls) if tls.is_served else None
        loaded = attrs.evolve(loaded, serves=serves, calls=Certificates.of_client(tls) if tls.use_tls else None)
    return loaded


def _access(settings: BrokerSettings) -> SharedAccess | None:
    """Load and publish the accounts; None without access control.

    Raises:
        ConfigError: rocketmqHome is not set, or a file of accounts cannot be read.
    """
    if not settings.broker.acl_enable:
        return None
    from rocketpy.acl.validator import broker_keys
    from rocketpy.broker.access import account_files
    from rocketpy.broker.fast_path.shared_access import SharedAccess

    access = SharedAccess(broker_keys(settings.rocketpy.acl_broker_accounts))
    access.publish(account_files(settings).load())
    return access


def ready_line(settings: BrokerSettings) -> str:
    """Return the line that the reference prints when a broker serves."""
    place = f"[{settings.broker.broker_name}, {settings.broker_addr}]"
    known = f" and name server is {settings.broker.namesrv_addr}" if settings.broker.namesrv_addr else ""
    return f"The broker{place} boot success. serializeType=JSON{known}"


def _with(settings: BrokerSettings, **changes: Any) -> BrokerSettings:
    return attrs.evolve(settings, rocketpy=attrs.evolve(settings.rocketpy, **changes))
