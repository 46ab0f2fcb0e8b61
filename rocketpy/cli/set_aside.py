"""`rocketpy store set-aside`: a member of a group with automatic failover is to begin again with an empty store.

Its store is moved, never deleted: into the directory `aside-TIME` of storePathRootDir, which may be a mount point of
its own. What names the store in its group is moved first, so that a store of which only a part was moved is a new one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from rocketpy.config import BrokerSettings
from rocketpy.errors import ConfigError, StoreError
from rocketpy.failover.etcd.access import access
from rocketpy.failover.etcd.gateway import Gateway
from rocketpy.failover.etcd.group_keys import GroupKeys
from rocketpy.failover.etcd.operator import check_replaceable
from rocketpy.failover.rules.requests import View
from rocketpy.processes.member.marks import EPOCH_FILE, INCARNATION_FILE
from rocketpy.store.files import StorePaths
from rocketpy.store.recovery.store_lock import StoreLock

ASIDE = "aside-"
STAYS = frozenset({"lock"})  # it is held meanwhile


def set_aside(settings: BrokerSettings, read: Callable[[], Awaitable[View]] | None = None) -> str:
    """Move the store of a stopped member away. Returns: what was done, for the operator.

    Args:
        read: reads the keys of the group; by default from etcd.
    Raises:
        ConfigError: the settings are of no member. StoreError: the store is in use, or cannot be moved.
        OperatorRefused: the group needs this store. EtcdError, EtcdUnavailable, RecordInvalid: as GroupKeys.
    """
    store = settings.store
    if not store.is_automatic:
        raise ConfigError(
            "is not automatic: only a member of a group gets its messages back by itself. For a slave see "
            "docs/run/replication.md#replace-a-slave",
            key="haMode",
        )
    paths = StorePaths.of(store.store_path_root_dir, store.store_path_commit_log)
    if not paths.root.is_dir():
        raise StoreError(f"there is no store in {paths.root}; the member begins with an empty one anyway")
    lock = StoreLock(paths.lock)
    try:
        master = check_replaceable(trio.run(read or _reader(settings)), store.ha_member)
        places = _move(paths, time.strftime("%Y%m%d-%H%M%S"))
    finally:
        lock.release()
    return (
        f"the store of {store.ha_member} is in {' and '.join(map(str, places))}; start its broker: it copies "
        f"everything from {master} and enters the in-sync set; remove the old store when nobody needs it"
    )


def _reader(settings: BrokerSettings) -> Callable[[], Awaitable[View]]:
    reach, broker = access(settings.store), settings.broker

    async def read() -> View:
        async with Gateway(reach) as gateway:
            return await GroupKeys(gateway, broker.broker_cluster_name, broker.broker_name).read()

    return read


def _move(paths: StorePaths, now: str) -> list[Path]:
    """Move the store aside. Returns: where everything is now. Raises: StoreError."""
    aside = paths.root / f"{ASIDE}{now}"
    first = (INCARNATION_FILE, EPOCH_FILE)
    names = [name for name in os.listdir(paths.root) if name not in STAYS and not name.startswith(ASIDE)]
    moves = [(paths.root / name, aside / name) for name in sorted(names, key=lambda name: (name not in first, name))]
    if paths.commitlog.is_dir() and not paths.commitlog.is_relative_to(paths.root):
        moves.append((paths.commitlog, paths.commitlog.with_name(f"{paths.commitlog.name}.{aside.name}")))
    try:
        aside.mkdir()
        for source, target in moves:
            os.rename(source, target)
    except OSError as exc:
        at = exc.filename or aside
        raise StoreError(
            f"cannot move {at}: {exc.strerror}; if it is a mount point, move what is in it by hand; what was moved is "
            f"in {aside}"
        ) from exc
    return [aside, *(target for _, target in moves if target.parent != aside)]
