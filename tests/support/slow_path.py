"""A broker's slow path without anything around it: fast path, store, connections and clocks are played by the test."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import trio

from rocketpy.broker.broker import BrokerController, ManagerProcess
from rocketpy.broker.managers.broker_stats import BrokerHealth, WorkerCounters
from rocketpy.codes import OUR_VERSION, LanguageCode
from rocketpy.config import BrokerConfig, BrokerSettings, MessageStoreConfig, RocketpyConfig, ServerConfig
from rocketpy.errors import ConnectFailed, RequestTimeout, RocketError
from rocketpy.message.record import encode_record
from rocketpy.remoting import fastjson
from rocketpy.remoting.abc import Peer, final_response
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import PullRequest, SendRequest
from rocketpy.remoting.limits import PoolLoad
from tests.support.fake_fast_path import FakeFastPath
from tests.support.fake_store import FakeStore

NOW_MS = 1_700_000_000_000
CREATE_TOPIC = {  # the fields of request 17
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": "1",
    "writeQueueNums": "1",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}


@attrs.define
class FakeClock:
    wall_ms: int = NOW_MS
    mono_ms: int = 5_000_000

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_ms(self) -> int:
        return self.mono_ms

    def advance(self, ms: int) -> None:
        self.wall_ms += ms
        self.mono_ms += ms


@attrs.define(eq=False)
class FakeChannel:
    connection: int
    peer: Peer = attrs.field(factory=lambda: Peer("10.0.0.1", 4000))
    is_vip: bool = False
    listener: str = ""
    pushed: list[RemotingCommand] = attrs.field(factory=list)
    invoked: list[RemotingCommand] = attrs.field(factory=list)
    answer: RemotingCommand | None = None  # None: the client never answers
    is_closed: bool = False
    is_writable: bool = True

    def push(self, command: RemotingCommand) -> None:
        self.pushed.append(command)

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        self.invoked.append(command)
        await trio.lowlevel.checkpoint()
        if self.answer is None:
            raise RequestTimeout(f"no answer within {timeout_s:g} s")
        return self.answer

    def close(self) -> None:
        self.is_closed = True

    @property
    def last(self) -> RemotingCommand:
        return self.pushed[-1]


class FakeNameServers:
    """Answers registrations; an address that is not in `answers` cannot be reached."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, RemotingCommand]] = []
        self.answers: dict[str, RemotingCommand] = {}

    async def invoke(self, address: str, request: RemotingCommand, timeout_s: float) -> RemotingCommand:
        self.calls.append((address, request))
        await trio.lowlevel.checkpoint()
        if address not in self.answers:
            raise ConnectFailed(f"connect to <{address}> failed")
        return self.answers[address]

    def requests(self, code: int) -> list[RemotingCommand]:
        return [request for _, request in self.calls if request.code == code]


class SlowPathRig:
    """A BrokerController in a directory of its own, and what surrounds it. `store`, `fast_path`: instead of fakes."""

    def __init__(self, root: Path, *, store: Any = None, fast_path: Any = None, **settings: Any) -> None:
        self.clock = FakeClock()
        self.fast_path = fast_path or FakeFastPath()
        self.store = store or FakeStore(self.clock.now_ms)
        self.name_servers = FakeNameServers()
        self.counters = WorkerCounters()
        self.pool_loads: dict[str, PoolLoad] = {}
        self.health = BrokerHealth()
        self.refused: list[int] = []  # codes of sends that the manager refused
        store_names = {field.name for field in attrs.fields(MessageStoreConfig)}
        store = {key: value for key, value in settings.items() if key in store_names}
        own = settings.pop("rocketpy", {})  # fields of RocketpyConfig
        broker = {key: value for key, value in settings.items() if key not in store_names}
        self.settings = BrokerSettings(
            broker=BrokerConfig(broker_ip1="127.0.0.1", broker_ip2="127.0.0.1", broker_name="broker-a", **broker),
            store=MessageStoreConfig(
                store_path_root_dir=str(root),
                store_path_commit_log=str(root / "commitlog"),
                ha_listen_port=10912,
                **store,
            ),
            server=ServerConfig(listen_port=10911),
            rocketpy=RocketpyConfig(admin_addresses="10.0.0.1", **own),  # where the channels of tests come from
        )
        self.broker = BrokerController(
            self.settings,
            self.store,
            self.fast_path,
            self.name_servers,
            self.process(),
        )
        self.services = self.broker.services
        self.processors = self.broker.processors()
        self.channel = FakeChannel(1)

    def process(self) -> ManagerProcess:
        """The process of a manager, with memory of its own."""
        return ManagerProcess(
            self.clock,
            random.Random(1),
            lambda: self.counters,
            lambda: self.pool_loads,
            count_refused=self.refused.append,
            health=lambda: self.health,
        )

    def tell_members(self) -> None:
        """What the duty of that name does."""
        for _ in self.broker.notifier.tell():
            pass

    async def ask(
        self,
        code: int,
        ext_fields: dict[str, str] | None = None,
        body: Any = None,
        *,
        channel: FakeChannel | None = None,
        version: int = OUR_VERSION,
        language: LanguageCode = LanguageCode.JAVA,
    ) -> RemotingCommand:
        """The response, through the processor's own door; a refusal is turned into one as the reactor does."""
        data = body if body is None or isinstance(body, bytes) else fastjson.dumps(body)
        request = RemotingCommand(code=code, ext_fields=ext_fields, body=data, version=version, language=language)
        try:
            inline = self.broker.inline().get(code, lambda request, channel: None)
            response = inline(request, channel or self.channel)
            if response is None:
                response = await final_response(await self.processors[code].process(request, channel or self.channel))
        except RocketError as exc:
            return RemotingCommand.response(exc.response_code, str(exc))
        assert response is not None
        return response

    async def heartbeat(
        self,
        client_id: str,
        *,
        group: str | None = None,
        topics: dict[str, str] | None = None,
        producer: str | None = None,
        channel: FakeChannel | None = None,
        model: str = "CLUSTERING",
        sub_version: int = 1,
    ) -> RemotingCommand:
        subscriptions = [
            {"topic": topic, "subString": sub, "subVersion": sub_version} for topic, sub in (topics or {}).items()
        ]
        consumers = [{"groupName": group, "messageModel": model, "subscriptionDataSet": subscriptions}] if group else []
        producers = [{"groupName": producer}] if producer else []
        body = {"clientID": client_id, "consumerDataSet": consumers, "producerDataSet": producers}
        return await self.ask(34, None, body, channel=channel)

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        """Run `main` beside the broker's own tasks for sends (but none of its timed duties)."""

        async def run() -> None:
            async with trio.open_nursery() as nursery:
                self.broker._slow_send.open(nursery)
                await main()
                nursery.cancel_scope.cancel()

        trio.run(run)

    def send(self, topic: str = "T", **changes: Any) -> SendRequest:
        fields: dict[str, Any] = {
            "channel": self.channel,
            "opaque": 7,
            "code": 310,
            "version": OUR_VERSION,
            "received_ms": self.clock.monotonic_ms(),
            "is_oneway": False,
            "is_rocketmq": False,
            "is_batch": False,
            "wait_store": True,
            "has_wait": False,
            "topic": topic,
            "producer_group": "P",
            "default_topic": "TBW102",
            "default_topic_queue_nums": 4,
            "queue_id": 0,
            "sys_flag": 0,
            "born_timestamp_ms": 11,
            "message_flag": 3,
            "reconsume_times": 0,
            "max_reconsume_times": None,
            "unit_mode": False,
            "properties": b"",
            "body": b"hello",
            "raw": b"",
        }
        return SendRequest(**(fields | changes))

    def pull(self, **changes: Any) -> PullRequest:
        fields: dict[str, Any] = {
            "channel": self.channel,
            "opaque": 9,
            "code": 11,
            "version": OUR_VERSION,
            "is_oneway": False,
            "is_rocketmq": False,
            "consumer_group": "G",
            "topic": "T",
            "queue_id": 0,
            "queue_offset": 0,
            "max_msg_nums": 32,
            "sys_flag": 0,
            "commit_offset": 0,
            "suspend_timeout_ms": 0,
            "subscription": "*",
            "sub_version": 1,
            "expression_type": "",
            "raw": b"",
        }
        return PullRequest(**(fields | changes))


def record(phy_offset: int = 1000, *, topic: str = "T", properties: bytes = b"", reconsume_times: int = 0) -> bytes:
    """A stored message."""
    return encode_record(
        topic=topic,
        queue_id=1,
        body=b"body",
        properties=properties,
        born_timestamp_ms=NOW_MS - 5,
        born_host=("10.1.1.1", 99),
        store_timestamp_ms=NOW_MS,
        store_host=("127.0.0.1", 10911),
        queue_offset=4,
        phy_offset=phy_offset,
        flag=2,
        sys_flag=0,
        reconsume_times=reconsume_times,
    )


def body_of(response: RemotingCommand) -> Any:
    assert response.body is not None
    return fastjson.loads(response.body)
