"""Name servers: KV configuration and their own configuration. Writes go to every server of the list."""

from __future__ import annotations

from ..admin import Admin
from ..base import command, option
from ..errors import NotFound
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
