"""A name server and brokers in memory, for tests of clients: real frames over memory streams, no sockets.

Each broker (fake_broker.py) serves what clients ask, as the reference does. A test scripts trouble: `refuse` (answers
for a code, used up one by one), `unreachable`, `mute`.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator

import attrs

from rocketpy import aio
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import ConnectFailed
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.answers import RequestTable
from rocketpy.remoting.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.namesrv import GetRouteInfoRequestHeader
from rocketpy.transport.byte_stream import ByteStream
from rocketpy.transport.channel import ChannelOwner, StreamChannel
from tests.support import loops
from tests.support.fake_broker import FakeBroker
from tests.support.memory_streams import memory_streams
from tests.support.scripted_server import ScriptedServer, no

NAME_SERVER = "ns:9876"
CLUSTER = "DefaultCluster"


@attrs.define(eq=False)
class FakeCluster:
    """The name server `ns:9876` and brokers by name; `connect` is the connector for a client's Lifetime."""

    nursery: aio.OpenNursery
    name_server: ScriptedServer = attrs.field(factory=lambda: ScriptedServer(NAME_SERVER))
    brokers: dict[str, FakeBroker] = attrs.field(factory=dict)
    perms: dict[tuple[str, str], int] = attrs.field(factory=dict)
    _connections: Iterator[int] = attrs.field(factory=lambda: itertools.count(1))

    def __attrs_post_init__(self) -> None:
        self.name_server.answers |= {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster_info,
        }

    def add_broker(self, name: str = "broker-a", **topics: int) -> FakeBroker:
        address = f"10.0.0.{len(self.brokers) + 1}:10911"
        broker = FakeBroker(address, name=name, now_ms=lambda: round(aio.now_s() * 1000))
        broker.topics |= {"TBW102": 8, **topics}
        self.brokers[name] = broker
        return broker

    @property
    def servers(self) -> dict[str, ScriptedServer]:
        return {NAME_SERVER: self.name_server} | {broker.address: broker for broker in self.brokers.values()}

    async def connect(self, address: str) -> ByteStream:
        await aio.sleep(0)
        server = self.servers.get(address)
        if server is None or server.unreachable:
            raise ConnectFailed(f"connect to <{address}> failed: scripted")
        ours, theirs = memory_streams()
        owner = ChannelOwner(RequestTable({}, default=server))
        self.nursery.start_soon(StreamChannel(theirs, owner, connection=next(self._connections)).run)
        return ours

    def route(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        topic = GetRouteInfoRequestHeader.of(request).topic
        having = [broker for broker in self.brokers.values() if topic in broker.topics]
        if not having:
            return no(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic}")
        route = TopicRouteData(
            broker_datas=[broker_data(broker) for broker in having],
            queue_datas=[
                QueueData(
                    broker_name=broker.name,
                    read_queue_nums=broker.topics[topic],
                    write_queue_nums=broker.topics[topic],
                    perm=self.perms.get((topic, broker.name), 7 if topic == "TBW102" else 6),
                )
                for broker in having
            ],
        )
        return RemotingCommand.response(body=route.encode())

    def cluster_info(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        info = ClusterInfo(
            broker_addr_table={broker.name: broker_data(broker) for broker in self.brokers.values()},
            cluster_addr_table={CLUSTER: list(self.brokers)},
        )
        return RemotingCommand.response(body=info.encode())


def broker_data(broker: FakeBroker) -> BrokerData:
    return BrokerData(broker_addrs={0: broker.address}, broker_name=broker.name, cluster=CLUSTER)


def run(test: Callable[[FakeCluster], Awaitable[None]]) -> None:
    """Run an async test in a cluster without brokers, on a clock that jumps when everybody sleeps."""

    async def main() -> None:
        async with aio.open_nursery() as nursery:
            await test(FakeCluster(nursery))
            nursery.cancel()

    loops.run(main)


__all__ = ["CLUSTER", "NAME_SERVER", "FakeBroker", "FakeCluster", "ScriptedServer", "no", "run"]
