"""A broker's slow path without anything around it: fast path, store, connections and clocks are played by the test."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import attrs
import trio

from rocketpy.broker.broker import BrokerController
from rocketpy.broker.managers.broker_stats import WorkerCounters
from rocketpy.codes import OUR_VERSION, LanguageCode
from rocketpy.config import BrokerConfig, BrokerSettings, MessageStoreConfig, RocketpyConfig, ServerConfig
from rocketpy.errors import ConnectFailed, RequestTimeout, RocketError
from rocketpy.message.record import encode_record
from rocketpy.remoting import fastjson
from rocketpy.remoting.abc import Detached, Peer
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import Delivery, EndTransaction, MessageToPut, PullRequest, PutResult, SendRequest
from rocketpy.remoting.limits import PoolLoad
from tests.support.half_states import FakeHalfStates

NOW_MS, UNITS_PER_FILE = 1_700_000_000_000, 8


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


@attrs.frozen(eq=False)
class FakePut:
    fast_path: FakeFastPath
    result: PutResult

    async def wait(self) -> PutResult:
        await trio.lowlevel.checkpoint()
        if self.fast_path.put_gate is not None:
            await self.fast_path.put_gate.wait()
        return self.result


class FakeFastPath:
    """Remembers every call, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.puts: list[MessageToPut] = []
        self.put_code = 0
        self.put_codes: dict[str, int] = {}  # of topics that differ
        self.put_gate: trio.Event | None = None
        self.is_store_away = False
        self.last_deliveries: dict[int, Delivery] = {}
        self.half_states = FakeHalfStates()
        self.ends: list[EndTransaction] = []
        self.end_code = 0

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in {
            "topic_changed",
            "topic_removed",
            "group_changed",
            "group_removed",
            "subscription_changed",
            "filter_changed",
            "filter_removed",
            "subscription_removed",
            "broker_changed",
            "store_settings_changed",
            "tables_end",
            "resend",
            "complete",
            "repull",
        }:
            raise AttributeError(name)

        def record(*args: Any, **kwargs: Any) -> None:
            self.calls.append((name, (*args, kwargs) if kwargs else args[0] if len(args) == 1 else args))

        return record

    def delete_queues(self, topic: str, below: int | None = None) -> trio.Event:
        self.calls.append(("delete_queues", topic if below is None else (topic, below)))
        done = trio.Event()
        if not self.is_store_away:
            done.set()
        return done

    async def clean_expired_queues(self) -> None:
        self.calls.append(("clean_expired_queues", ()))
        await trio.lowlevel.checkpoint()

    async def end_transaction(self, end: EndTransaction) -> PutResult:
        self.ends.append(end)
        await trio.lowlevel.checkpoint()
        if self.end_code == 0:
            self.half_states.ended.add(end.queue_offset)
        return PutResult(self.end_code)

    def last_delivery(self, level: int) -> Delivery | None:
        return self.last_deliveries.get(level)

    def begin_put(self, message: MessageToPut) -> FakePut:
        self.puts.append(message)
        code = self.put_codes.get(message.topic, self.put_code)
        result = PutResult(
            code=code,
            phy_offset=900,
            queue_id=message.queue_id,
            queue_offset=len(self.puts) + 6,
            size=100,
            store_timestamp_ms=NOW_MS,
            message_id="7F00000100002A9F0000000000000384",
        )
        return FakePut(self, result)

    async def put(self, message: MessageToPut) -> PutResult:
        return await self.begin_put(message).wait()

    def named(self, name: str) -> list[Any]:
        return [args for call, args in self.calls if call == name]


@attrs.frozen
class Unit:
    phy_offset: int
    size: int
    tags_code: int = 0


@attrs.frozen
class Query:
    records: list[bytes]
    index_last_update_timestamp_ms: int = 1
    index_last_update_phy_offset: int = 2


@attrs.frozen
class State:
    topic: str
    queue_id: int = 0
    next_offset: int = 0


@attrs.frozen
class Statistics:
    min_phy_offset: int = 0
    published_phy_offset: int = 4096
    dispatch_behind_bytes: int = 5
    flush_behind_bytes: int = 2048
    commitlog_disk_ratio: float = 0.25
    consume_queue_disk_ratio: float = 0.5


class FakeStore:
    """Queues are lists of (unit, store time); records lie at the offsets that the test says."""

    def __init__(self) -> None:
        self.queues: dict[tuple[str, int], list[tuple[Unit, int]]] = {}
        self.low: dict[tuple[str, int], int] = {}
        self.begins: dict[tuple[str, int], int] = {}  # offset of the first message of the topic, if not 0
        self.deleted: dict[str, bool] = {}
        self.records: dict[int, bytes] = {}
        self.on_disk_below = 0
        self.found: list[bytes] = []
        self.queried: list[tuple[str, str, int, int, int]] = []
        self.trimmed, self.behind_bytes, self.delete_requests = 0, 5, 0
        self.queue_count: Callable[[], int] = lambda: len(self.queues)
        self.now_ms: Callable[[], int] = lambda: NOW_MS
        self.slowed_from_ms: int | None = None

    def clock_ms(self) -> int:
        return self.now_ms()

    def clock_slowed_from_ms(self) -> int | None:
        return self.slowed_from_ms

    def request_delete_expired(self) -> None:
        self.delete_requests += 1

    def fill(self, topic: str, queue_id: int, count: int, *, low: int = 0, tags_code: int = 0) -> None:
        self.queues[topic, queue_id] = [(Unit(1000 + i, 50, tags_code), NOW_MS + i) for i in range(count)]
        self.low[topic, queue_id] = low

    def queue_states(self, topic: str | None = None) -> list[State]:
        known = self.queues.items()
        return [State(name, queue_id, len(units)) for (name, queue_id), units in known if topic in (None, name)]

    def used_topics(self) -> dict[str, int]:
        used = sorted(queue for queue, units in self.queues.items() if units)
        return {topic: queue_id + 1 for topic, queue_id in used}

    def deleted_topics(self) -> dict[str, bool]:
        return self.deleted

    def is_whole(self, topic: str, queue_id: int) -> bool:
        return self.min_offset(topic, queue_id) == self.begins.get((topic, queue_id), 0)

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self.low.get((topic, queue_id), 0)

    def max_offset(self, topic: str, queue_id: int) -> int:
        return len(self.queues.get((topic, queue_id), []))

    def message_store_timestamp(self, topic: str, queue_id: int, offset: int) -> int:
        entries = self.queues.get((topic, queue_id), [])
        return entries[offset][1] if 0 <= offset < len(entries) else -1

    def earliest_store_timestamp(self, topic: str, queue_id: int) -> int:
        return self.message_store_timestamp(topic, queue_id, self.min_offset(topic, queue_id))

    def earliest_message_time(self) -> int:
        return NOW_MS

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        entries = self.queues.get((topic, queue_id), [])
        return next((i for i, (_, stored) in enumerate(entries) if stored >= timestamp_ms), len(entries))

    def look_message_by_offset(self, phy_offset: int, size_max: int | None = None) -> bytes | None:
        record = self.records.get(phy_offset)
        return None if record is None or (size_max is not None and len(record) > size_max) else record

    def message_query(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int, bytes_max: int
    ) -> Generator[None, None, Query]:
        self.queried.append((topic, key, max_num, begin_ms, end_ms))
        yield
        return Query(self.found)

    def consume_queue_units(self, topic: str, queue_id: int, index: int, count: int) -> list[Unit]:
        if index < self.min_offset(topic, queue_id):
            return []
        return [unit for unit, _ in self.queues.get((topic, queue_id), [])[index : index + count]]

    def next_queue_file(self, offset: int) -> int:
        return offset - offset % UNITS_PER_FILE + UNITS_PER_FILE

    def is_in_disk(self, phy_offset: int) -> bool:
        return phy_offset < self.on_disk_below

    def statistics(self) -> Statistics:
        return Statistics(dispatch_behind_bytes=self.behind_bytes)

    def trim(self) -> None:
        self.trimmed += 1


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
    """A BrokerController in a directory of its own, and what surrounds it."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.clock = FakeClock()
        self.fast_path = FakeFastPath()
        self.store = FakeStore()
        self.store.now_ms = self.clock.now_ms
        self.name_servers = FakeNameServers()
        self.counters = WorkerCounters()
        self.pool_loads: dict[str, PoolLoad] = {}
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
            self.clock,
            lambda: self.counters,
            random.Random(1),
            pool_loads=lambda: self.pool_loads,
        )
        self.services = self.broker.services
        self.processors = self.broker.processors()
        self.channel = FakeChannel(1)

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
            response = await self.processors[code].process(request, channel or self.channel)
            if isinstance(response, Detached):
                response = await response.finish()
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
