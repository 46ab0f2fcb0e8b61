"""The console in a cluster in memory, and a browser that asks it: the whole application, without a socket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlencode

import attrs

from rocketpy import aio
from rocketpy.codes import RequestCode
from rocketpy.console.alarm_file import AlarmSettings
from rocketpy.console.alarms import Alarms
from rocketpy.console.cluster import ClusterState
from rocketpy.console.guard import App, Guard
from rocketpy.console.login import AccountFile, Sessions
from rocketpy.console.message_views import MessagePages
from rocketpy.console.poller import Poller
from rocketpy.console.questions import Questions
from rocketpy.console.settings import ConsoleSettings
from rocketpy.console.views import Access, Console, application
from rocketpy.remoting.bodies.broker import BrokerStatsData
from rocketpy.remoting.bodies.group import GroupList, SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketpy.remoting.bodies.offset import ConsumeStats
from rocketpy.remoting.bodies.route import KVTable
from rocketpy.remoting.bodies.topic import TopicList, TopicStatsTable
from rocketpy.remoting.command import RemotingCommand
from tests.support import loops
from tests.support.clients import admin_client
from tests.support.cluster import FakeBroker, FakeCluster

FIGURES = {
    "msgPutTotalTodayNow": "100",
    "msgGetTotalTodayNow": "50",
    "putLatency99": "1.5",
    "commitLogDiskRatio": "0.4",
}


@attrs.frozen
class Reply:
    """An answer of the console."""

    status: int
    headers: dict[str, str]
    text: str


@attrs.define
class Browser:
    """Asks an ASGI application; keeps the cookie that it gets."""

    app: App
    host: str = "localhost:8180"
    cookie: str = ""

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.ask("GET", path, b"", headers)

    async def post(self, path: str, form: dict[str, str], **headers: str) -> Reply:
        headers = {"content_type": "application/x-www-form-urlencoded"} | headers
        return await self.ask("POST", path, urlencode(form).encode(), headers)

    async def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        bare, _, query = path.partition("?")
        sent = {"host": self.host} | {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            sent["cookie"] = self.cookie
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},  # it does not wait for a disconnect
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": bare,
            "raw_path": bare.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in sent.items() if value],
            "client": ("192.0.2.1", 5000),
            "server": ("localhost", 8180),
        }
        events: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(event: Any) -> None:
            events.append(event)

        await self.app(scope, receive, send)
        answered = {name.decode().lower(): value.decode() for name, value in events[0]["headers"]}
        if "set-cookie" in answered:
            self.cookie = answered["set-cookie"].partition(";")[0]
        data = b"".join(event.get("body", b"") for event in events[1:])
        return Reply(events[0]["status"], answered, data.decode())


@attrs.frozen
class Rig:
    """A console that watches `cluster`; `look` is a round of the poller over brokers and names."""

    cluster: FakeCluster
    broker: FakeBroker
    state: ClusterState
    poller: Poller
    alarms: Alarms
    browser: Browser

    async def look(self) -> None:
        await self.poller._brokers()
        await self.poller._names()


def prepare(broker: FakeBroker) -> None:
    """Let a broker answer what the console asks."""
    broker.answer(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable(table=FIGURES))
    broker.answer(RequestCode.VIEW_BROKER_STATS_DATA, BrokerStatsData())
    broker.answer(RequestCode.GET_TOPIC_STATS_INFO, TopicStatsTable())
    broker.answer(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList(group_list=[]))
    broker.answer(RequestCode.GET_CONSUME_STATS, ConsumeStats())
    groups = {"g": SubscriptionGroupConfig(group_name="g")}
    wrapper = SubscriptionGroupWrapper(subscription_group_table=groups)
    broker.answer(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, wrapper)


def run(
    test: Callable[[Rig], Awaitable[None]],
    *,
    settings: ConsoleSettings | None = None,
    alarms: AlarmSettings | None = None,
    with_threads: bool = False,
    **topics: int,
) -> None:
    """Run a test under asyncio, as the console does, in a cluster of one broker that has these topics.

    Args:
        with_threads: time is real; a clock that jumps would not wait for threads.
    """
    settings, alarms = settings or ConsoleSettings(), alarms or AlarmSettings()

    async def main() -> None:
        async with aio.open_nursery() as nursery:
            await aio.sleep(0 if with_threads else 1)  # a clock that jumps begins at 0, which means never
            cluster = FakeCluster(nursery)
            broker = cluster.add_broker(**topics)
            prepare(broker)
            cluster.name_server.answers[RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] = names_of(broker)
            state = ClusterState()
            async with admin_client(cluster) as admin:
                accounts = AccountFile(settings.accounts) if settings.accounts is not None else None
                access = Access(Sessions(aio.clock()), accounts, settings)
                console = Console(Questions(admin, state), Alarms(alarms), access)
                app = Guard(application(console, MessagePages(console).routes()), settings.allowed_hosts)
                poller = Poller(admin, state, alarms)
                await test(Rig(cluster, broker, state, poller, console.alarms, Browser(app)))
            nursery.cancel()

    if with_threads:
        aio.run(main)
    else:
        loops.run(main, backend="asyncio")


def names_of(broker: FakeBroker) -> Any:
    return lambda request, channel: RemotingCommand.response(body=TopicList(topic_list=list(broker.topics)).encode())
