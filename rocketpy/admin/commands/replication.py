"""Replication: roles, slaves and their lag. A command of our own in 4.9; a request of 5.x (code 907)."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence

import attrs

from rocketpy.config import BrokerSettings, load_broker_config
from rocketpy.errors import RocketError
from rocketpy.message.numbers import long_or
from rocketpy.remoting.bodies.broker import HaStatus
from rocketpy.remoting.bodies.route import MASTER_ID

from ..admin import Admin
from ..base import EXIT_PARTIAL, WATCH, command, option
from ..core import NotFound
from ..output import Column, Output, Table
from .failover import GroupUnreadable, run_in_trio, show_group

BROKERS = Table(
    (
        Column("Broker Name", 22),
        Column("BID", 4),
        Column("Addr", 22),
        Column("Role", 13),
        Column("Log End", 14),
        Column("Lag(bytes)", 11),
        Column("Follows"),
    )
)
SLAVES = Table(
    (
        Column("Master Addr", 22),
        Column("Slave", 22),
        Column("State", 12),
        Column("Acknowledged", 14),
        Column("Lag(bytes)", 11),
        Column("Lag(ms)", 8),
        Column("In Sync"),
    )
)
UNKNOWN_ID = -1
ROLES_OF_REFERENCE = {
    MASTER_ID: "MASTER",
    UNKNOWN_ID: "-",
}  # a broker of the reference is known by its id alone; others: SLAVE


@attrs.frozen
class Member:
    """One broker of a group, as it answered."""

    broker_name: str
    address: str
    status: HaStatus


@command(example="mqadmin haStatus -n 127.0.0.1:9876 -c DefaultCluster", watch=WATCH, run=run_in_trio)
@option("-b", "--broker", help="Brokers of one name; or one broker, host:port.")
@option("-c", "--clusterName", help="All brokers of this cluster. Default: all clusters.")
@option("-f", "--configFile", help="File of a broker with haMode=automatic: show its group as etcd has it.")
async def ha_status(
    admin: Admin, out: Output, broker: str | None, cluster_name: str | None, config_file: str | None
) -> int | None:
    """Show the role of each broker, the end of its log, and how far slaves are behind.

    A broker of the reference tells only the end of its log. The second table is what masters of rocketpy know of their
    slaves: bytes that are not acknowledged, and how long ago the last acknowledgement came. The exit status is 3 if a
    broker does not answer, or if a group has no master.

    With -f the members of a group with automatic failover are shown: epochs, who is in sync, how long leases live, and
    why a member cannot serve as master, with status 3. If etcd does not answer, the brokers are asked as without -f,
    and the exit status is 3.
    """
    if config_file is None:
        return await _show_brokers(admin, out, await _groups(admin, broker, cluster_name))
    try:
        return await show_group(admin, out, config_file, cluster_name, broker)
    except GroupUnreadable as error:
        out.warn(f"etcd does not tell who is in the group ({error}); this is what its brokers say")
    settings = load_broker_config(config_file, environ=os.environ)
    await _show_brokers(admin, out, await _groups_of_file(admin, out, settings, broker, cluster_name))
    return EXIT_PARTIAL


async def _groups_of_file(
    admin: Admin, out: Output, settings: BrokerSettings, broker: str | None, cluster: str | None
) -> Mapping[str, Mapping[int, str]]:
    """Return the group of a broker's file, as name servers have it: the given name servers, or else the file's. Without
    any name server the group is this one broker."""
    listed, own = admin.instance.api.name_servers, settings.broker
    if not listed.addresses and own.namesrv_addr:
        listed.replace([piece.strip() for piece in own.namesrv_addr.split(";") if piece.strip()], random.Random())
    if not listed.addresses:
        out.warn("no name server is known, so only the broker of the file is asked; give -n to ask all")
        return {"": {UNKNOWN_ID: settings.broker_addr}}
    return await _groups(admin, broker or own.broker_name, cluster or own.broker_cluster_name)


async def _show_brokers(admin: Admin, out: Output, groups_by_name: Mapping[str, Mapping[int, str]]) -> int | None:
    """Print the replication state that each broker reports. Returns the exit status."""
    failed, groups = False, []
    for name, addresses in groups_by_name.items():
        members = await _answers(admin, out, name, addresses)
        failed |= len(members) < len(addresses)
        if name and not any(member.status.master for member in members):
            out.warn(f"{name}: no master answers, so nobody can send to it")
            failed = True
        groups.append(members)
    out.table(BROKERS, [row for members in groups for row in _broker_rows(members)])
    slaves = [row for members in groups for member in members for row in _slave_rows(member)]
    if slaves:
        out.line()
        out.table(SLAVES, slaves)
    return EXIT_PARTIAL if failed else None


async def _groups(admin: Admin, broker: str | None, cluster: str | None) -> Mapping[str, Mapping[int, str]]:
    """Addresses by id, by name of the group. The name is empty for a broker that is named by its address.

    Raises:
        NotFound: nothing is registered under these names.
    """
    if broker and ":" in broker:
        return {"": {UNKNOWN_ID: broker}}
    found = {
        name: data.broker_addrs
        for name, data in sorted((await admin.cluster_info()).broker_addr_table.items())
        if broker in (None, name) and cluster in (None, data.cluster)
    }
    if not found:
        what = f"broker {broker}" if broker else "broker"
        where = f"cluster {cluster}" if cluster else "any cluster"
        raise NotFound(f"no {what} is registered in {where}; mqadmin clusterList shows what is")
    return found


async def _answers(admin: Admin, out: Output, name: str, addresses: Mapping[int, str]) -> list[Member]:
    """Return the members that answer. Slaves are asked first, so that the lag that is shown is not too small."""
    members = []
    for broker_id, address in sorted(addresses.items(), reverse=True):
        try:
            status = await admin.ha_status(address)
            members.append(Member(name, address, status or await _of_reference(admin, broker_id, address)))
        except RocketError as error:
            out.warn(f"{name} {address}: {error}".strip())
    return members[::-1]


async def _of_reference(admin: Admin, broker_id: int, address: str) -> HaStatus:
    """Return the state of a broker that does not know request 907: the end of its log, and a role guessed from its
    id."""
    end = long_or((await admin.runtime_info(address)).get("commitLogMaxOffset"), 0)
    role = ROLES_OF_REFERENCE.get(broker_id, "SLAVE")
    return HaStatus(role=role, broker_id=broker_id, commit_log_max_offset=end, master=broker_id == MASTER_ID)


def _broker_rows(members: Sequence[Member]) -> Iterator[tuple[object, ...]]:
    end = max((member.status.commit_log_max_offset for member in members if member.status.master), default=None)
    for member in members:
        status = member.status
        lag = "-" if end is None else max(0, end - status.commit_log_max_offset)
        followed = status.ha_client_runtime_info.master_addr or "-"
        yield (
            member.broker_name or "-",
            "-" if status.broker_id == UNKNOWN_ID else status.broker_id,
            member.address,
            status.member_state or status.role,
            status.commit_log_max_offset,
            lag,
            followed,
        )


def _slave_rows(member: Member) -> Iterator[tuple[object, ...]]:
    for slave in member.status.ha_connection_info:
        acknowledged = slave.slave_ack_offset
        in_sync = "yes" if slave.in_sync else "no"
        yield member.address, slave.addr, slave.state, acknowledged, slave.diff, slave.lag_ms, in_sync
