"""A name server without sockets, and what brokers tell it."""

import json
from pathlib import Path

import trio

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.config import Machine, load_namesrv_config
from rocketpy.namesrv.kv_config import KVConfigManager
from rocketpy.namesrv.processor import NamesrvProcessor
from rocketpy.namesrv.route_info import RouteInfoManager
from rocketpy.remoting.abc import Peer
from rocketpy.remoting.command import RemotingCommand


class FakeChannel:
    """A connection that only has a number."""

    def __init__(self, connection: int, host: str = "127.0.0.1", listener: str = "") -> None:
        self.connection = connection
        self.peer = Peer(host, 50_000 + connection)
        self.is_vip = False
        self.listener = listener
        self.is_writable = True

    def push(self, command: RemotingCommand) -> None:
        raise AssertionError("the name server pushes nothing")

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        raise AssertionError("the name server asks nothing")

    def close(self) -> None:
        raise AssertionError("the processor closes nothing")


class Asker:
    """A name server's processor, asked one request at a time."""

    def __init__(self, directory: Path, text: str = "") -> None:
        self.path = directory / "namesrv.conf"
        self.path.write_text(text)
        settings = load_namesrv_config(
            self.path, {"kvConfigPath": str(directory / "kv.json")}, {}, machine=Machine(2, "h", lambda: "")
        )
        self.now_ms = 0
        self.routes = RouteInfoManager()
        kv = KVConfigManager.load(Path(settings.namesrv.kv_config_path))
        self.processor = NamesrvProcessor(settings, self.routes, kv, lambda: self.now_ms)

    def ask(
        self,
        code: int,
        ext_fields: dict[str, str] | None = None,
        body: bytes | None = None,
        *,
        version: int = 409,
        connection: int = 1,
        host: str = "127.0.0.1",
        listener: str = "",
    ) -> RemotingCommand:
        request = RemotingCommand.request(code, body=body, ext_fields=ext_fields)
        request.version = version
        response = trio.run(self.processor.process, request, FakeChannel(connection, host, listener))
        assert response is not None
        return response

    def register(
        self,
        topics: dict[str, dict[str, object]] | None = None,
        broker_id: int = 0,
        addr: str = "127.0.0.1:4444",
        **fields: str,
    ) -> RemotingCommand:
        """Register a broker of `topics`, with more fields of the header."""
        topics = topics or {}
        body = {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": {"counter": len(topics), "timestamp": 1_700_000_000_000},
                "topicConfigTable": {name: {"topicName": name, **config} for name, config in topics.items()},
            },
        }
        fields = registration_fields(brokerId=str(broker_id), brokerAddr=addr, **fields)
        return self.ask(RequestCode.REGISTER_BROKER, fields, json.dumps(body).encode(), connection=broker_id + 1)


FOUR_QUEUES: dict[str, object] = {"perm": 6, "readQueueNums": 4, "writeQueueNums": 4}


def registration_fields(**changes: str) -> dict[str, str]:
    return {
        "brokerName": "pb",
        "brokerAddr": "127.0.0.1:4444",
        "clusterName": "PC",
        "haServerAddr": "127.0.0.1:4445",
        "brokerId": "0",
        "compressed": "false",
        "bodyCrc32": "0",
    } | changes


def text(response: RemotingCommand) -> str:
    assert response.code == ResponseCode.SUCCESS
    return (response.body or b"").decode()
