"""Automatic failover: another master, by transactions on the keys of a group in etcd. Commands of our own.

They reach etcd as a broker does, so they take the file of a broker of the group. The client for etcd is an extra of the
distribution; it is imported when a command runs.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from rocketpy.config import BrokerSettings, load_broker_config
from rocketpy.errors import ConfigError, RocketError

from ..admin import Admin
from ..base import EXIT_PARTIAL, command, option
from ..output import Column, Output, Table

if TYPE_CHECKING:
    from rocketpy.failover.etcd.group_keys import GroupKeys
    from rocketpy.failover.rules.records import MemberRecord
    from rocketpy.failover.rules.requests import View

MEMBERS = Table(
    (
        Column("Member", 16),
        Column("Addr", 22),
        Column("Role", 8),
        Column("Epoch", 7),
        Column("Log End", 14),
        Column("Lag(bytes)", 11),
        Column("In Sync", 8),
        Column("Lease(s)"),
    )
)


def run_in_trio(function: Callable[..., Any], /, *arguments: Any) -> Any:
    """The client for etcd runs under trio alone."""
    import trio  # not for other commands: 110 ms

    return trio.run(function, *arguments)


def group_options(function: Any) -> Any:
    """Which group, and how to reach its etcd."""
    function = option("-b", "--brokerName", help="Name of the group. Default: brokerName of the file.")(function)
    function = option("-c", "--clusterName", help="Its cluster. Default: brokerClusterName of the file.")(function)
    return option(
        "-f", "--configFile", required=True, help="File of a broker of the group: how to reach etcd (haEtcdAddresses)."
    )(function)


@asynccontextmanager
async def opened_group(config_file: str, cluster: str | None, broker: str | None) -> AsyncIterator[GroupKeys]:
    """The keys of a group.

    Raises:
        ConfigError: the file cannot be used, has no etcd, or the client for etcd is not installed.
    """
    settings = load_broker_config(config_file, environ=os.environ)
    _require(settings, config_file)
    from rocketpy.failover.etcd.access import access
    from rocketpy.failover.etcd.gateway import Gateway
    from rocketpy.failover.etcd.group_keys import GroupKeys

    own = settings.broker
    async with Gateway(access(settings.store)) as gateway:
        yield GroupKeys(gateway, cluster or own.broker_cluster_name, broker or own.broker_name)


def _require(settings: BrokerSettings, config_file: str) -> None:
    if not settings.store.is_automatic:
        raise ConfigError(f"{config_file} has no haMode=automatic, so its brokers have no group in etcd")
    if importlib.util.find_spec("httpcore") is None:
        raise ConfigError("the client for etcd is not installed: pip install 'rocketpy-mq[failover]'")


@command(example="mqadmin switchMaster -f /etc/rocketpy/broker.conf -t member-b", run=run_in_trio)
@group_options
@option("-t", "--member", required=True, help="Member that is to be master.")
async def switch_master(
    admin: Admin, out: Output, config_file: str, cluster_name: str | None, broker_name: str | None, member: str
) -> None:
    """Make another in-sync member master, and wait until it is, at most 8 s.

    Sends wait meanwhile, at most 2.5 s; then they are refused with SERVICE_NOT_AVAILABLE, and producers repeat them.
    The new master has every acknowledged message. The exception is an asynchronous master that cannot serve (see
    haStatus): it gives its lease up, and messages that only its log has are lost.
    """
    async with opened_group(config_file, cluster_name, broker_name) as keys:
        from rocketpy.failover.etcd import operator

        before, after = await operator.switch_master(keys, member)
    out.done(
        f"{after.master} is master in epoch {after.epoch} (before: {before.master}, epoch {before.epoch})",
        master=after.master,
        epoch=after.epoch,
        master_before=before.master,
        epoch_before=before.epoch,
    )


@command(example="mqadmin haElect -f /etc/rocketpy/broker.conf -t member-b --unclean", run=run_in_trio)
@group_options
@option("-t", "--member", required=True, help="Member that is to be master.")
@click.option("--unclean", is_flag=True, help="Acknowledged messages that this member lacks may be lost.")
@click.option("--yes", is_flag=True, help="Do not ask for the name of the member.")
async def ha_elect(
    admin: Admin,
    out: Output,
    config_file: str,
    cluster_name: str | None,
    broker_name: str | None,
    member: str,
    unclean: bool,
    yes: bool,
) -> None:
    """Make a member master that may lack acknowledged messages, when no in-sync member can come back.

    It is refused while there is a master, or an in-sync member that will be elected without this.
    """
    if not unclean:
        raise click.UsageError("an election by hand may lose acknowledged messages; give --unclean if you accept that")
    async with opened_group(config_file, cluster_name, broker_name) as keys:
        from rocketpy.failover.etcd import operator

        view = await keys.read()
        election = operator.unclean_election(view, member)
        out.table(MEMBERS, await _member_rows(admin, out, keys, view))
        if not yes:
            _confirm(member)
        state = await operator.elect(keys, election)
    out.done(f"{state.master} is master in epoch {state.epoch}, alone in sync", master=state.master, epoch=state.epoch)


@command(example="mqadmin haConfigure -f /etc/rocketpy/broker.conf", run=run_in_trio)
@option("-f", "--configFile", required=True, help="File of a broker, with what its group is to agree on.")
async def ha_configure(admin: Admin, out: Output, config_file: str) -> None:
    """Let a group with automatic failover agree on what this file says, while it runs.

    haMembers may have one member more or less: start a new one afterwards, stop one that leaves before.
    minInSyncReplicas changes at once. flushDiskType may become SYNC_FLUSH when all members that run have it. The
    group overrules the files of the other brokers, and their logs say so.
    """
    async with opened_group(config_file, None, None) as keys:
        from rocketpy.failover.etcd import operator
        from rocketpy.failover.etcd.access import group_config

        wanted = group_config(load_broker_config(config_file, environ=os.environ))
        before, after = await operator.configure(keys, wanted)
    out.done(
        f"members: {', '.join(after.members)} (before: {', '.join(before.members)}); minInSyncReplicas: "
        f"{after.in_sync_min}; {after.flush}",
        members=",".join(after.members),
        members_before=",".join(before.members),
        in_sync_min=after.in_sync_min,
        flush=after.flush,
    )


class GroupUnreadable(RocketError):
    """etcd does not tell about a group; the text says why."""


async def show_group(
    admin: Admin, out: Output, config_file: str, cluster_name: str | None, broker_name: str | None
) -> int | None:
    """The members of a group, as etcd and they themselves have it; the exit status.

    Raises:
        GroupUnreadable: etcd does not answer, or not with a group. ConfigError: as opened_group.
    """
    async with opened_group(config_file, cluster_name, broker_name) as keys:
        try:
            view = await keys.read()
            rows = await _member_rows(admin, out, keys, view)
        except RocketError as exc:
            raise GroupUnreadable(str(exc)) from exc
    if view.state is not None:
        out.line(f"epoch {view.state.epoch}, in sync: {', '.join(sorted(view.state.in_sync))}")
    out.table(MEMBERS, rows)
    faults = {name: record.fault for name, record in sorted(view.members.items()) if record.fault}
    for name, fault in faults.items():
        out.warn(f"{name} cannot serve as master: {fault}")
    for line in _of_outsiders(view, rows):
        out.warn(line)
    if view.master is None:
        out.warn("this group has no master now: sends fail until one is elected")
        return EXIT_PARTIAL
    return EXIT_PARTIAL if faults else None


def _of_outsiders(view: View, rows: list[tuple[object, ...]]) -> Iterator[str]:
    """Yield a line about each registered broker that is not in the group: its log does not count in elections."""
    members = view.config.members if view.config else ()
    ends = {str(row[0]): row[4] for row in rows if isinstance(row[4], int)}
    longest = max((end for name, end in ends.items() if name in members), default=0)
    for name, end in ends.items():
        if name not in members:
            text = f"{name} is not in the group (haMembers)"
            more = f", and its log is {end - longest} bytes longer than the longest of the group: keep its store"
            yield text + (more if end > longest else "")


async def _member_rows(admin: Admin, out: Output, keys: GroupKeys, view: View) -> list[tuple[object, ...]]:
    from rocketpy.failover.etcd.operator import is_in_sync

    ends = {name: await _log_end(admin, out, record) for name, record in view.members.items()}
    master = view.master.member if view.master else ""
    rows: list[tuple[object, ...]] = []
    for name in sorted({*(view.config.members if view.config else ()), *view.members}):
        record = view.members.get(name)
        if record is None:
            rows.append((name, "-", "GONE", "-", "-", "-", "no", 0))
            continue
        lag = max(0, ends[master] - ends[name]) if master in ends else "-"
        role, in_sync = "MASTER" if name == master else "SLAVE", "yes" if is_in_sync(view, name) else "no"
        left_s = await keys.gateway.seconds_left(record.lease)
        rows.append((name, record.address, role, record.epoch, ends[name], lag, in_sync, left_s))
    return rows


async def _log_end(admin: Admin, out: Output, record: MemberRecord) -> int:
    """Return the end of a broker's log; if it does not answer, the end when it was registered last."""
    try:
        status = await admin.ha_status(record.address)
    except RocketError as error:
        out.warn(f"{record.address}: {error}")
        status = None
    return record.end if status is None else status.commit_log_max_offset


def _confirm(member: str, ask: Callable[..., str] = click.prompt) -> None:
    """Ask on the terminal for the name of the member.

    Raises:
        UsageError: nobody is there who could confirm. Abort: another name was typed.
    """
    if not sys.stdin.isatty():
        raise click.UsageError("this needs a terminal, to ask for the name of the member; or give --yes")
    if ask(f"Messages that {member} lacks are given up. Type its name to go on") != member:
        raise click.Abort
