"""Access control: the accounts of brokers, and the addresses that need none.

Every broker has files of its own, so changes go to masters and slaves alike.
Source: RocketMQ 4.9.7 `org.apache.rocketmq.tools.command.acl`.
"""

from __future__ import annotations

import click

from rocketpy.remoting.bodies.acl import PlainAccessConfig
from rocketpy.remoting.headers.acl import CreateAccessConfigRequestHeader

from ..admin import Admin
from ..base import broker_or_cluster, brokers_named, command, option
from ..java_text import plain
from ..output import Output, second_text

VERSION_LINE = "%-16s  %-22s  %-22s  %-20s  %-22s  %-22s"
VERSION_TITLES = (
    *("#Cluster Name", "#Broker Name", "#Broker Addr"),
    *("#AclFilePath", "#AclConfigVersionNum", "#AclLastUpdateTime"),
)


async def _asked(
    admin: Admin, broker_addr: str | None, cluster_name: str | None, *, masters_only: bool = False
) -> list[str]:
    """The addresses meant by -b or -c. Raises UsageError unless exactly one of both is given, as in the reference."""
    if bool(broker_addr) == bool(cluster_name):
        raise click.UsageError("give either -b (broker address) or -c (cluster), not both")
    return await brokers_named(admin, broker_addr, cluster_name, masters_only=masters_only)


@command(example="mqadmin updateAclConfig -n 127.0.0.1:9876 -b 127.0.0.1:10911 -a shop-orders -s 12345678")
@broker_or_cluster()
@option("-a", "--accessKey", required=True, help="Account, of more than 6 characters.")
@option("-s", "--secretKey", required=True, help="Its secret, of more than 6 characters.")
@option("-w", "--whiteRemoteAddress", help="Addresses that need no signature.")
@option("-i", "--defaultTopicPerm", help="DENY, PUB, SUB or PUB|SUB, for topics without a permission by name.")
@option("-u", "--defaultGroupPerm", help="The same for groups.")
@option("-t", "--topicPerms", help="topicA=DENY,topicB=PUB|SUB: all permissions of the account by name.")
@option("-g", "--groupPerms", help="groupA=DENY,groupB=SUB: the same for groups.")
@option("-m", "--admin", to="is_admin", type=bool, default=False, help="Administrator (true, false).")
async def update_acl_config(
    admin: Admin,
    out: Output,
    broker_addr: str | None,
    cluster_name: str | None,
    access_key: str,
    secret_key: str,
    is_admin: bool,
    **given: str | None,
) -> None:
    """Create or change an account. What is not given stays as it is, but for --admin."""
    header = CreateAccessConfigRequestHeader(access_key=access_key, secret_key=secret_key, admin=is_admin, **given)
    shown = {name: value for name, value in header.to_ext_fields().items() if name != "secretKey"}
    for address in await _asked(admin, broker_addr, cluster_name):
        await admin.update_account(address, header)
        out.done(f"create or update plain access config to {address} success.", address=address, **shown)
    out.line(f"PlainAccessConfig [{', '.join(f'{name}={value}' for name, value in shown.items())}]")


@command(example="mqadmin deleteAclConfig -n 127.0.0.1:9876 -b 127.0.0.1:10911 -a shop-orders")
@broker_or_cluster()
@option("-a", "--accessKey", required=True, help="Account.")
async def delete_acl_config(
    admin: Admin, out: Output, broker_addr: str | None, cluster_name: str | None, access_key: str
) -> None:
    """Delete an account."""
    for address in await _asked(admin, broker_addr, cluster_name):
        await admin.delete_account(address, access_key)
        text = f"delete plain access config account from {address} success."
        out.done(text, address=address, access_key=access_key)
    out.line(f"account's accesskey is:{access_key}")


@command(example="mqadmin clusterAclConfigVersion -n 127.0.0.1:9876 -b 127.0.0.1:10911")
@broker_or_cluster()
async def cluster_acl_config_version(
    admin: Admin, out: Output, broker_addr: str | None, cluster_name: str | None
) -> None:
    """Show the versions of the files of accounts."""
    addresses = await _asked(admin, broker_addr, cluster_name, masters_only=True)
    if cluster_name:
        out.line((VERSION_LINE % VERSION_TITLES).rstrip())
    for address in addresses:
        broker, versions = await admin.account_versions(address)
        for path, version in sorted(versions.items()):
            updated = second_text(version.timestamp_ms)
            row = (broker.cluster_name, broker.broker_name, broker.broker_addr, path, version.counter, updated)
            out.done(
                (VERSION_LINE % row).rstrip(),
                cluster=broker.cluster_name,
                broker_name=broker.broker_name,
                address=broker.broker_addr,
                path=path,
                version=version.counter,
                updated=updated,
            )
    out.line(f"get {'cluster' if cluster_name else 'broker'}'s plain access config version success.")


@command(example="mqadmin getAclConfig -n 127.0.0.1:9876 -b 127.0.0.1:10911")
@broker_or_cluster()
async def get_acl_config(admin: Admin, out: Output, broker_addr: str | None, cluster_name: str | None) -> None:
    """Show the accounts. Brokers of rocketpy leave out the secrets."""
    for address in await _asked(admin, broker_addr, cluster_name, masters_only=True):
        config = await admin.accounts(address)
        out.line(f"\nglobalWhiteRemoteAddresses: {_shown(config.global_white_addrs)}\n\naccounts:")
        for account in config.plain_access_configs:
            for name, value in _members(account):
                out.line(f"  {name:<18}: {_shown(value)}".rstrip())
            out.line()
            out.record(address=address, **dict(account.wire_members()))
        out.record(address=address, global_white_addrs=config.global_white_addrs)


@command(example="mqadmin updateGlobalWhiteAddr -n 127.0.0.1:9876 -b 127.0.0.1:10911 -g '10.0.0.*'")
@broker_or_cluster()
@option("-g", "--globalWhiteRemoteAddresses", required=True, help="Addresses that need no signature, with commas.")
@option("-p", "--aclFileFullPath", help="File of accounts on the broker.  [conf/plain_acl.yml]")
async def update_global_white_addr(
    admin: Admin,
    out: Output,
    broker_addr: str | None,
    cluster_name: str | None,
    global_white_remote_addresses: str,
    acl_file_full_path: str | None,
) -> None:
    """Set the addresses that need no signature."""
    for address in await _asked(admin, broker_addr, cluster_name):
        await admin.update_white_addresses(address, global_white_remote_addresses, acl_file_full_path)
        text = f"update global white remote addresses to {address} success."
        out.done(text, address=address, global_white_addrs=global_white_remote_addresses)


def _members(account: PlainAccessConfig) -> list[tuple[str, object]]:
    """Return the fields of an account, in the order of the reference's class."""
    found = dict(account.wire_members())
    first = ("accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm")
    return [(name, found[name]) for name in (*first, "topicPerms", "groupPerms")]


def _shown(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(value)}]"
    return "" if value is None else plain(value)
