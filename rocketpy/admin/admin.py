"""Admin: the requests of operators to name servers and brokers, as awaitable methods.

    async with Admin(name_servers="127.0.0.1:9876") as admin:
        for queue, offsets in (await admin.topic_stats("OrderTopic")).items(): ...

Where Java asks one broker at random, this asks all and merges (`consumer_connection`, `who_consumes`).
Source: RocketMQ 4.9 `DefaultMQAdminExtImpl`.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.config.properties import as_mapping, format_mapping
from rocketpy.errors import BodyInvalid, BrokerError
from rocketpy.remoting.bodies.acl import AclConfig
from rocketpy.remoting.bodies.broker import BrokerStatsData, HaStatus
from rocketpy.remoting.bodies.route import KVTable
from rocketpy.remoting.bodies.topic import DataVersion
from rocketpy.remoting.fastjson import loads_text
from rocketpy.remoting.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from rocketpy.remoting.headers.admin import ViewBrokerStatsDataRequestHeader
from rocketpy.remoting.headers.namesrv import (
    AddWritePermOfBrokerResponseHeader,
    BrokerNameRequestHeader,
    GetKVConfigResponseHeader,
    KVConfigRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)

from .core import read_answer
from .group_requests import GroupRequests

FIGURES_BYTES_MAX = 1 << 20  # of a broker's figures; the console keeps those of all brokers
ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"


class Admin(GroupRequests):
    """An operator's client. Brokers never see it in a group: it sends no heartbeats.

    Args:
        timeout: seconds for ordinary requests.
        options: as of a producer; by default the name servers are the environment's NAMESRV_ADDR.
        lifetime: for tests: how connections, clocks and randomness are made.
        settings: single options by their names, `name_servers="host:port;host:port"` above all.
    """

    # --- access control ---

    async def update_account(self, address: str, header: CreateAccessConfigRequestHeader) -> None:
        """Create or change an account of a broker."""
        await self.ask(address, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header)

    async def delete_account(self, address: str, access_key: str) -> None:
        header = DeleteAccessConfigRequestHeader(access_key=access_key)
        await self.ask(address, RequestCode.DELETE_ACL_CONFIG, header)

    async def accounts(self, address: str) -> AclConfig:
        """The accounts of a broker, and the addresses that need none."""
        return AclConfig.decode((await self.ask(address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)).body)

    async def account_versions(self, address: str) -> tuple[GetBrokerAclConfigResponseHeader, dict[str, DataVersion]]:
        """Return a broker's names and address, and the versions of its files of accounts by their paths."""
        answer = await self.ask(address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        header = GetBrokerAclConfigResponseHeader.of(answer)
        versions = loads_text(header.all_acl_file_version or "{}")
        if not isinstance(versions, dict):
            raise BodyInvalid(f"{address}: allAclFileVersion is not an object but {type(versions).__name__}")
        return header, {str(path): DataVersion.from_json(version) for path, version in versions.items()}

    async def update_white_addresses(self, address: str, addresses: str, path: str | None) -> None:
        """Set the addresses that need no signature, in a file of accounts; None: the default file."""
        header = UpdateGlobalWhiteAddrsConfigRequestHeader(global_white_addrs=addresses, acl_file_full_path=path)
        await self.ask(address, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header)

    # --- brokers and name servers: figures, configuration, KV configuration, write permission ---

    async def runtime_info(self, address: str) -> dict[str, str]:
        answer = await self.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return (await read_answer(KVTable, answer.body, FIGURES_BYTES_MAX)).table

    async def ha_status(self, address: str) -> HaStatus | None:
        """A broker's part in replication; None: it is no broker of rocketpy."""
        try:
            answer = await self.ask(address, RequestCode.GET_BROKER_HA_STATUS)
            return await read_answer(HaStatus, answer.body, FIGURES_BYTES_MAX)
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise

    async def broker_stats(self, address: str, name: str, key: str) -> BrokerStatsData:
        header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
        return BrokerStatsData.decode((await self.ask(address, RequestCode.VIEW_BROKER_STATS_DATA, header)).body)

    async def broker_config(self, address: str) -> dict[str, str]:
        return read_properties((await self.ask(address, RequestCode.GET_BROKER_CONFIG)).body)

    async def update_broker_config(self, address: str, changes: Mapping[str, str]) -> None:
        await self.ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=format_mapping(changes).encode())

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
        await self.each_name_server(RequestCode.PUT_KV_CONFIG, header)

    async def kv(self, namespace: str, key: str) -> str | None:
        """The value, None when there is none. Any other failure is raised: it must not read as "no value"."""
        header = KVConfigRequestHeader(namespace=namespace, key=key)
        try:
            response = await self.ask_name_server(RequestCode.GET_KV_CONFIG, header)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return GetKVConfigResponseHeader.of(response).value

    async def delete_kv(self, namespace: str, key: str) -> None:
        header = KVConfigRequestHeader(namespace=namespace, key=key)
        await self.each_name_server(RequestCode.DELETE_KV_CONFIG, header)

    async def namesrv_config(self) -> dict[str, dict[str, str]]:
        answers = await self.each_name_server(RequestCode.GET_NAMESRV_CONFIG)
        return {address: read_properties(answer.body) for address, answer in answers.items()}

    async def update_namesrv_config(self, changes: Mapping[str, str]) -> None:
        await self.each_name_server(RequestCode.UPDATE_NAMESRV_CONFIG, body=format_mapping(changes).encode())

    async def wipe_write_perm(self, broker_name: str) -> dict[str, int]:
        """Take the write permission of a broker's topics out of the routes. Returns: topics per name server."""
        header = BrokerNameRequestHeader(broker_name=broker_name)
        answers = await self.each_name_server(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        return {
            address: WipeWritePermOfBrokerResponseHeader.of(answer).wipe_topic_count
            for address, answer in answers.items()
        }

    async def add_write_perm(self, broker_name: str) -> dict[str, int]:
        """Undo `wipe_write_perm`: the permission of each topic of the broker becomes 6."""
        header = BrokerNameRequestHeader(broker_name=broker_name)
        answers = await self.each_name_server(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        return {
            address: AddWritePermOfBrokerResponseHeader.of(answer).add_topic_count
            for address, answer in answers.items()
        }


def read_properties(body: bytes | None) -> dict[str, str]:
    """Java properties text as a mapping."""
    return as_mapping((body or b"").decode("utf-8", "replace"))
