"""Runs a broker with automatic failover: the guardian, with what its two children are made of."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import attrs

from rocketpy.config import BrokerSettings
from rocketpy.reactor.worker_spec import WorkerSpec

from ..member import require_client
from ..member.guardian import Child, Guardian
from ..member.tree import MemberMemory, MemberTree, Parked, Role
from .memory import share_memory
from .sockets import Sockets

if TYPE_CHECKING:
    from rocketpy.tls import Certificates

# By the guardian, not in each process tree: 7 % of idle memory (memory.py).
IMPORTED_ONCE = (
    ".worker_list",
    "..member.certainty",
    "..member.manager_role",
    "..workers.replicator",
    "..workers.slave",
)

OnReady = Callable[[], None]


class RunTree(Protocol):
    """broker.py, run_tree."""

    def __call__(
        self,
        settings: BrokerSettings,
        sockets: Sockets,
        beside: Callable[[], Sequence[WorkerSpec]],
        on_ready: OnReady,
        member: MemberTree | None = None,
    ) -> int: ...


def run_member(
    settings: BrokerSettings,
    sockets: Sockets,
    run_tree: RunTree,
    on_ready: OnReady,
    on_turn: Callable[[float], None],
    calls: Certificates | None = None,
) -> int:
    """Run the guardian until it is told to stop; in the main thread of a process without other threads.

    Args:
        run_tree: runs a process tree with the settings of its role.
        on_ready: tells the operator that the broker serves; called once.
        on_turn: called at each turn of the guardian, with the time of its clock.
        calls: with TLS, the certificates of the coordinator's calls to another member.
    Returns: the exit status.
    Raises:
        ConfigError: the client for etcd is missing.
    """
    require_client()
    bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    memory, parked = MemberMemory(), Parked()

    def coordinate(_role: Role) -> int:
        from ..member.coordinator_main import run_coordinator

        return run_coordinator(settings, memory, bell, calls)

    def serve(role: Role) -> int:
        tree = MemberTree(settings.store.ha_member, memory, role, settings.is_sync_master, parked)
        return run_tree(settings.in_role(is_master=role.is_master), sockets_of(role), tuple, ready, tree)

    def sockets_of(role: Role) -> Sockets:
        return sockets if role.is_master else attrs.evolve(sockets, replication=None)

    def ready() -> None:
        if not memory.marks.told_ready:
            memory.marks.told_ready = True
            on_ready()

    guardian = Guardian(
        memory,
        Child("coordinator", coordinate, (bell,)),
        Child("supervisor", serve, (*sockets.fds, *parked.fds)),
        bell,
        settings.rocketpy.stop_timeout_millis / 1000,
    )
    guardian.on_turn = on_turn
    for module in IMPORTED_ONCE:
        importlib.import_module(module, __package__)
    share_memory()
    return guardian.run()
