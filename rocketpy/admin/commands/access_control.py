"""Access control: the commands of the reference, which say that brokers of rocketpy have none yet."""

from __future__ import annotations

import click

from rocketpy.errors import ClientError

from ..admin import Admin
from ..base import broker_or_cluster, command, option
from ..output import Output


def refuse(broker_addr: str | None, cluster_name: str | None) -> None:
    """Raises ClientError; UsageError unless exactly one of both is given, as in the reference."""
    if bool(broker_addr) == bool(cluster_name):
        raise click.UsageError("give either -b (broker address) or -c (cluster), not both")
    where = f"broker {broker_addr}" if broker_addr else f"cluster {cluster_name}"
    raise ClientError(
        f"{where} was not changed or asked: rocketpy has no access control yet (docs/understand/compatibility.md)"
    )


@command(example="mqadmin updateAclConfig -n 127.0.0.1:9876 -b 127.0.0.1:10911 -a someone -s 12345678")
@broker_or_cluster()
@option("-a", "--accessKey", required=True, help="Account.")
@option("-s", "--secretKey", required=True, help="Its secret.")
@option("-w", "--whiteRemoteAddress", help="Addresses that need no signature.")
@option("-i", "--defaultTopicPerm", help="DENY, PUB, SUB or PUB|SUB.")
@option("-u", "--defaultGroupPerm", help="DENY, PUB, SUB or PUB|SUB.")
@option("-t", "--topicPerms", help="topicA=DENY,topicB=PUB|SUB")
@option("-g", "--groupPerms", help="groupA=DENY,groupB=SUB")
@option("-m", "--admin", to="is_admin", type=bool, help="Administrator (true, false).")
async def update_acl_config(
    admin: Admin, out: Output, broker_addr: str | None, cluster_name: str | None, **account: object
) -> None:
    """Create or change an account. There is no access control yet: fails."""
    refuse(broker_addr, cluster_name)


@command(example="mqadmin deleteAclConfig -n 127.0.0.1:9876 -b 127.0.0.1:10911 -a someone")
@broker_or_cluster()
@option("-a", "--accessKey", required=True, help="Account.")
async def delete_acl_config(
    admin: Admin, out: Output, broker_addr: str | None, cluster_name: str | None, access_key: str
) -> None:
    """Delete an account. There is no access control yet: fails."""
    refuse(broker_addr, cluster_name)


@command(example="mqadmin clusterAclConfigVersion -n 127.0.0.1:9876 -b 127.0.0.1:10911")
@broker_or_cluster()
async def cluster_acl_config_version(
    admin: Admin, out: Output, broker_addr: str | None, cluster_name: str | None
) -> None:
    """Show the versions of the files of accounts. There is no access control yet: fails."""
    refuse(broker_addr, cluster_name)


@command(example="mqadmin getAclConfig -n 127.0.0.1:9876 -b 127.0.0.1:10911")
@broker_or_cluster()
async def get_acl_config(admin: Admin, out: Output, broker_addr: str | None, cluster_name: str | None) -> None:
    """Show the accounts. There is no access control yet: fails."""
    refuse(broker_addr, cluster_name)


@command(example="mqadmin updateGlobalWhiteAddr -n 127.0.0.1:9876 -b 127.0.0.1:10911 -g '10.0.0.*'")
@broker_or_cluster()
@option("-g", "--globalWhiteRemoteAddresses", required=True, help="Addresses that need no signature, with commas.")
@option("-p", "--aclFileFullPath", help="File of accounts on the broker.")
async def update_global_white_addr(
    admin: Admin,
    out: Output,
    broker_addr: str | None,
    cluster_name: str | None,
    global_white_remote_addresses: str,
    acl_file_full_path: str | None,
) -> None:
    """Set the addresses that need no signature. There is no access control yet: fails."""
    refuse(broker_addr, cluster_name)
