"""Name servers: KV configuration, their own configuration, write permission in the routes.

Writes go to every server of the list.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy.remoting.bodies.route import BrokerData

from ..admin import Admin
from ..base import command, option
from ..core import NotFound
from ..output import Output


@command(example="mqadmin updateKvConfig -n 127.0.0.1:9876 -s ORDER_TOPIC_CONFIG -k OrderTopic -v broker-a:8")
@option("-s", "--namespace", required=True, help="Namespace.")
@option("-k", "--key", required=True, help="Key.")
@option("-v", "--value", required=True, help="Value.")
async def update_kv_config(admin: Admin, out: Output, namespace: str, key: str, value: str) -> None:
    """Put a key of the KV configuration."""
    await admin.put_kv(namespace, key, value)
    out.done("create or update kv config to namespace success.", namespace=namespace, key=key, value=value)


@command(
    example="mqadmin deleteKvConfig -n 127.0.0.1:9876 -s ORDER_TOPIC_CONFIG -k OrderTopic",
    destructive="Delete key {key} of namespace {namespace}?",
)
@option("-s", "--namespace", required=True, help="Namespace.")
@option("-k", "--key", required=True, help="Key.")
async def delete_kv_config(admin: Admin, out: Output, namespace: str, key: str) -> None:
    """Delete a key of the KV configuration."""
    await admin.delete_kv(namespace, key)
    out.done("delete kv config from namespace success.", namespace=namespace, key=key)


@command(example="mqadmin getNamesrvConfig -n 127.0.0.1:9876")
async def get_namesrv_config(admin: Admin, out: Output) -> None:
    """Show the configuration of every name server of the list."""
    for address, config in (await admin.namesrv_config()).items():
        out.line(f"============{address}============")
        if out.is_json:
            out.record(address=address, **config)
        else:
            out.mapping(sorted(config.items()), "%-50s=  %s")


@command(example="mqadmin updateNamesrvConfig -n 127.0.0.1:9876 -k orderMessageEnable -v true")
@option("-k", "--key", required=True, help="Key.")
@option("-v", "--value", required=True, help="Value.")
async def update_namesrv_config(admin: Admin, out: Output, key: str, value: str) -> None:
    """Change one key on every name server of the list; an unknown key is refused here, not ignored."""
    for address, config in (await admin.namesrv_config()).items():
        if key not in config:
            raise NotFound(f"name server {address} has no configuration key {key}")
    await admin.update_namesrv_config({key: value})
    addresses = ", ".join(admin.options.name_server_list)
    out.line(f"update name server config success![{addresses}]")
    out.done(f"{key} : {value}", key=key, value=value)


@command(example="mqadmin wipeWritePerm -n 127.0.0.1:9876 -b broker-a")
@option("-b", "--brokerName", required=True, help="Broker name.")
async def wipe_write_perm(admin: Admin, out: Output, broker_name: str) -> None:
    """Take a broker's write permission out of the routes. drainBroker also waits for the readers."""
    await known_broker(admin, broker_name)
    tell_write_perm(out, "wipe", broker_name, await admin.wipe_write_perm(broker_name))


@command(example="mqadmin addWritePerm -n 127.0.0.1:9876 -b broker-a")
@option("-b", "--brokerName", required=True, help="Broker name.")
async def add_write_perm(admin: Admin, out: Output, broker_name: str) -> None:
    """Give a broker its write permission back: all its topics get permission 6."""
    await known_broker(admin, broker_name)
    tell_write_perm(out, "add", broker_name, await admin.add_write_perm(broker_name))


def tell_write_perm(out: Output, what: str, broker_name: str, topics: Mapping[str, int]) -> None:
    """Report a changed write permission. `topics`: how many were changed, by name server."""
    for address, count in topics.items():
        text = f"{what} write perm of broker[{broker_name}] in name server[{address}] OK, {count}"
        out.done(text, name_server=address, broker_name=broker_name, topics=count)


async def known_broker(admin: Admin, broker_name: str) -> BrokerData:
    """Return the addresses of a broker.

    Raises:
        NotFound: none of this name is registered.
    """
    known = (await admin.cluster_info()).broker_addr_table
    if broker_name not in known:
        raise NotFound(f"no broker {broker_name} is registered; there are: {', '.join(sorted(known)) or 'none'}")
    return known[broker_name]
