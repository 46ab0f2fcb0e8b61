"""`python -m bench.loop_steps`: how long the event loops of manager and name server are blocked, with large tables.

A million consumer offsets, a hundred thousand topics and groups (`--scale` makes them smaller) are put into a manager
without a store and into a name server. Every duty is run and every question asked that goes through a table; the
longest step of the loop meanwhile is what all other requests had to wait. Processor time is what the step took by
itself, wall time has what the machine did besides. The bar is 20 ms.

Fault: A collection of cyclic garbage blocked the manager's loop for 51 ms after 50 000 topics had changed.
Fault: Registering 100 000 topics, or the end of their broker, blocked the name server for a second.
Fault: Saving a million offsets blocked the manager for 8 s, until the supervisor replaced it.
"""

from __future__ import annotations

import gc
import json
import logging
import sys
import tempfile
import time
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import click
import trio
from rich.console import Console
from rich.table import Table

from rocketpy.broker.registration.registration import registration_parts
from rocketpy.codes import OUR_VERSION, RequestCode
from rocketpy.config import NamesrvConfig, NamesrvSettings, RocketpyConfig, ServerConfig
from rocketpy.errors import BodyInvalid
from rocketpy.namesrv.kv_config import KVConfigManager
from rocketpy.namesrv.processor import NamesrvProcessor
from rocketpy.namesrv.route_info import RouteInfoManager
from rocketpy.processes.workers.forked_copy import ForkedCopy
from rocketpy.processes.workers.garbage_collection import short_collections
from rocketpy.processes.workers.scrapes import COPY_MAX_S
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig
from rocketpy.remoting.bodies.register import TOPICS_MAX, RegisterBrokerBody
from rocketpy.remoting.bodies.topic import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rocketpy.remoting.command import RemotingCommand
from tests.support.slow_path import FakeChannel, SlowPathRig

from . import report

BAR_MS = 20.0
ONE_TOPIC_QUEUES = 10_000
BUILT_IN_MAX = 32
Work = Callable[[], Awaitable[object]]


@attrs.define(eq=False)
class Held(trio.abc.Instrument):
    """The longest step of a loop since `reset`, ms."""

    wall_ms: float = 0.0
    cpu_ms: float = 0.0
    collector_ms: float = 0.0  # the longest collection of cyclic garbage; it is part of a step
    _began: tuple[int, int] = (0, 0)
    _collecting: int = 0

    def reset(self) -> None:
        self.wall_ms = self.cpu_ms = self.collector_ms = 0.0

    def collects(self, phase: str, info: dict[str, int]) -> None:
        """Time a collection; for gc.callbacks."""
        if phase == "start":
            self._collecting = time.thread_time_ns()
        else:
            self.collector_ms = max(self.collector_ms, (time.thread_time_ns() - self._collecting) / 1e6)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = time.perf_counter_ns(), time.thread_time_ns()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        wall, cpu = self._began
        self.wall_ms = max(self.wall_ms, (time.perf_counter_ns() - wall) / 1e6)
        self.cpu_ms = max(self.cpu_ms, (time.thread_time_ns() - cpu) / 1e6)


@attrs.frozen
class Row:
    """One duty or question: the longest step, and how long all of it took."""

    loop: str
    name: str
    step_cpu_ms: float
    step_wall_ms: float
    collector_ms: float
    total_s: float


@attrs.define
class Bench:
    """Runs work one by one, each in a loop of its own."""

    rows: list[Row] = attrs.field(factory=list)

    def measure(self, loop: str, name: str, work: Work) -> None:
        held = Held()

        async def main() -> None:
            await trio.lowlevel.checkpoint()
            held.reset()
            await work()
            await trio.lowlevel.checkpoint()

        began = time.perf_counter()
        gc.callbacks.append(held.collects)
        with short_collections():  # as manager and name server do
            trio.run(main, instruments=[held])
        gc.callbacks.remove(held.collects)
        times = (held.cpu_ms, held.wall_ms, held.collector_ms, time.perf_counter() - began)
        self.rows.append(Row(loop, name, *(round(figure, 2) for figure in times)))
        print(
            f"{loop:12} {name:44} CPU {times[0]:6.1f}  wall {times[1]:6.1f}  collector {times[2]:6.1f} ms"
            f"  all {times[3]:6.2f} s",
            file=sys.stderr,
        )


def topic_name(number: int) -> str:
    return f"a-topic-of-some-length-{number:06}"


def group_name(number: int) -> str:
    return f"a-group-of-some-length-{number:06}"


def large_manager(root: Path, topics: int, offsets: int) -> SlowPathRig:
    """Make a manager with as many groups as topics; each has offsets in one topic, the first in very many."""
    rig = SlowPathRig(root, namesrv_addr="10.0.0.1:9876")
    rig.name_servers.answers["10.0.0.1:9876"] = RemotingCommand.response()
    services = rig.services
    queues = max(1, offsets // topics)
    wide = min(ONE_TOPIC_QUEUES, topics)
    services.topics.update(TopicConfig(topic_name="wide", read_queue_nums=wide, write_queue_nums=wide))
    for number in range(topics - BUILT_IN_MAX):  # with those that every broker has, as many as topicsMax allows
        topic, group = topic_name(number), group_name(number)
        services.topics.update(TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues))
        services.groups.update(SubscriptionGroupConfig(group_name=group))
        for queue_id in range(queues):
            services.offsets.commit(group, topic, queue_id, 1_000 + number)
        services.offsets.commit("many", topic, 0, 1)
        services.stats.count_send_back(group, topic)
    rig.fast_path.calls.clear()
    gc.freeze()  # as the manager does once its tables are loaded
    gc.collect()  # of nothing; else the next one would wait for a quarter of the objects that were there
    return rig


MANAGER_QUESTIONS: dict[RequestCode, dict[str, str]] = {
    RequestCode.GET_ALL_TOPIC_CONFIG: {},
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: {},
    RequestCode.GET_ALL_CONSUMER_OFFSET: {},
    RequestCode.GET_BROKER_CONSUME_STATS: {"isOrder": "false"},
    RequestCode.GET_CONSUME_STATS: {"consumerGroup": "many"},
    RequestCode.GET_TOPIC_STATS_INFO: {"topic": "wide"},
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: {"topic": topic_name(1)},
    RequestCode.QUERY_CORRECTION_OFFSET: {"topic": topic_name(1), "compareGroup": group_name(1)},
    RequestCode.QUERY_CONSUME_TIME_SPAN: {"topic": "wide", "group": "many"},
    RequestCode.CLONE_GROUP_OFFSET: {"srcGroup": "many", "destGroup": "copy"},
    RequestCode.DELETE_SUBSCRIPTIONGROUP: {"groupName": "copy", "removeOffset": "true"},
    RequestCode.DELETE_TOPIC_IN_BROKER: {"topic": topic_name(2)},
    RequestCode.GET_BROKER_RUNTIME_INFO: {},
}
DUTIES = ("closing silent clients", "dropping expired locks", "sampling minutes", "sampling hours", "sampling days")


def manager(bench: Bench, root: Path, topics: int, offsets: int) -> None:
    rig = large_manager(root, topics, offsets)
    services, loop = rig.services, "manager"
    bench.measure(loop, "announce topics", services.topics.announce)
    bench.measure(loop, "announce groups", services.groups.announce)
    rig.fast_path.calls.clear()  # what the fakes remember is none of the manager's
    files = {"topics": services.topics.file, "groups": services.groups.file, "offsets": services.offsets.file}
    for name, file in files.items():
        file.changed()
        bench.measure(loop, f"save {name}", file.save)
    bench.measure(loop, "register with a name server", services.registrar.register)
    ordered = {topic_name(number) for number in range(0, topics, 2)}
    bench.measure(loop, "take the order of half of the topics", lambda: services.topics.update_order_topics(ordered))
    rig.fast_path.calls.clear()
    rig.name_servers.calls.clear()
    for duty in rig.broker.duties():
        if duty.name in DUTIES:
            bench.measure(loop, duty.name, duty.run)
    bench.measure(loop, "fork a copy for a scrape", fork)
    for code, fields in MANAGER_QUESTIONS.items():

        async def ask(code: RequestCode = code, fields: dict[str, str] = fields) -> None:
            (await rig.ask(code, fields)).encode_response()

        bench.measure(loop, f"{code.name} ({code.value})", ask)


async def fork() -> None:
    copy = ForkedCopy.begin(bytes, "copy")
    await trio.to_thread.run_sync(copy.result, COPY_MAX_S)


class FirstChannel(FakeChannel):
    """The connection by which the brokers have registered."""


class NameServer:
    """A name server without sockets, asked by one connection."""

    loop = "name server"

    def __init__(self, bench: Bench, root: Path) -> None:
        settings = NamesrvSettings(
            namesrv=NamesrvConfig(kv_config_path=str(root / "kv.json")),
            server=ServerConfig(),
            rocketpy=RocketpyConfig(admin_addresses="10.0.0.1"),
        )
        self.bench, self.routes = bench, RouteInfoManager()
        self.processor = NamesrvProcessor(settings, self.routes, KVConfigManager(root / "kv.json"), lambda: 0)
        self._channel = FirstChannel(1)

    def ask(self, code: RequestCode, fields: dict[str, str], body: bytes | None = None) -> Work:
        async def run() -> None:
            request = RemotingCommand(code=code, ext_fields=fields, body=body, version=OUR_VERSION)
            response = await self.processor.process(request, self._channel)
            assert response is not None
            response.encode_response()

        return run

    def register(self, name: str, compressed: bool, body: bytes) -> Work:
        fields = {
            "brokerName": name,
            "brokerAddr": f"{name}:10911",
            "clusterName": "C",
            "haServerAddr": "h:1",
            "brokerId": "0",
            "compressed": "true" if compressed else "false",
        }
        return self.ask(RequestCode.REGISTER_BROKER, fields, body)

    def measure(self, text: str, work: Work) -> None:
        self.bench.measure(self.loop, text, work)


def name_server(bench: Bench, root: Path, topics: int) -> None:
    server = NameServer(bench, root)
    registrations(server, topics)
    server.measure(*refused_bomb(server))
    for code, fields in {
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: {},
        RequestCode.GET_TOPICS_BY_CLUSTER: {"cluster": "C"},
        RequestCode.GET_UNIT_TOPIC_LIST: {},
        RequestCode.GET_BROKER_CLUSTER_INFO: {},
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: {},
        RequestCode.WIPE_WRITE_PERM_OF_BROKER: {"brokerName": "plain"},
        RequestCode.ADD_WRITE_PERM_OF_BROKER: {"brokerName": "plain"},
    }.items():
        server.measure(f"{code.name} ({code.value})", server.ask(code, fields))

    async def closed() -> None:
        server.routes.connection_closed(1, int(time.time() * 1000))

    server.measure("the connection of all brokers closes", closed)
    server.measure("their topics are forgotten", server.processor.forget_gone_brokers)


def registrations(server: NameServer, topics: int) -> None:
    """Whole tables, plain and deflated, and a part of one."""
    table = {topic_name(number): TopicConfig(topic_name=topic_name(number)) for number in range(topics)}
    fitting = dict(list(table.items())[: topics * 9 // 10])
    for name, compressed, some in (("plain", False, fitting), ("deflated", True, table)):
        wrapper = TopicConfigSerializeWrapper(data_version=DataVersion(counter=1), topic_config_table=some)
        whole = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
        body = whole.encode_compressed() if compressed else whole.encode()
        gc.freeze()  # what this script holds is none of the name server's garbage
        gc.collect()
        text = f"REGISTER_BROKER, {len(some)} topics, {name}"
        server.measure(text, server.register(name, compressed, body))
    parts = trio.run(
        lambda: registration_parts(table, DataVersion(counter=1, timestamp_ms=1), permission=6, is_compressed=False)
    )
    work = server.register("part", False, parts[0].body)
    server.measure(f"REGISTER_BROKER, a part of {parts[0].topics} topics", work)


def refused_bomb(server: NameServer) -> tuple[str, Work]:
    """Return the refusal of a small registration that would inflate to gigabytes, as work to time."""
    block = b"T 4 4 6 SINGLE_TAG"
    version = DataVersion(counter=1).encode()
    head = len(version).to_bytes(4, "big") + version + TOPICS_MAX.to_bytes(4, "big")
    bomb = zlib.compress(head + (len(block).to_bytes(4, "big") + block) * 20_000_000, 9)

    async def refused() -> None:
        try:
            await server.register("bomb", True, bomb)()
        except BodyInvalid:
            return
        raise AssertionError("the bomb was taken")

    return f"REGISTER_BROKER, a bomb of {len(bomb) >> 10} KiB", refused


def page(rows: list[Row], setting: str) -> str:
    """Return the page bench/results/loop-steps.md."""
    lines = [
        report.page_head("How long an event loop is blocked", "bench.loop_steps"),
        "The tables of a manager (with a simulated store) and of a name server are filled:",
        f"{setting}. Then each duty is run, and each question asked that goes",
        f"through a table. Another request waits for the longest step at most; its bar is {BAR_MS:g} ms of CPU time.",
        "Wall time includes other programs.",
        "",
        "| loop | work | longest step, CPU ms | wall ms | longest collection, ms | all of it, s |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        times = (row.step_cpu_ms, row.step_wall_ms, row.collector_ms, row.total_s)
        lines.append(f"| {row.loop} | {row.name} | {' | '.join(map(str, times))} |")
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--scale", default=1.0, help="Fraction of the full table sizes.")
@click.option("--docs", type=click.Path(path_type=Path), help="Also write this page of bench/results.")
@click.option("--only", type=click.Choice(["manager", "namesrv"]), help="Measure this server only.")
def main(scale: float, docs: Path | None, only: str | None) -> None:
    logging.disable(logging.CRITICAL)  # a line per topic made would be most of the work
    topics, offsets = int(100_000 * scale), int(1_000_000 * scale)
    bench = Bench()
    with tempfile.TemporaryDirectory() as directory:
        if only != "namesrv":
            manager(bench, Path(directory), topics, offsets)
        gc.unfreeze()
        gc.collect()
        if only != "manager":
            name_server(bench, Path(directory), topics)
    table: Any = Table("loop", "work", "CPU ms", "wall ms", "collector ms", "all, s")
    for row in bench.rows:
        mark = "" if row.step_cpu_ms <= BAR_MS else " !"
        times = (row.step_wall_ms, row.collector_ms, row.total_s)
        table.add_row(row.loop, row.name, f"{row.step_cpu_ms}{mark}", *map(str, times))
    Console(width=120).print(table)
    Path("bench-loop-steps.json").write_text(json.dumps([attrs.asdict(row) for row in bench.rows], indent=1))
    if docs is not None:
        setting = f"{offsets} offsets, {topics} topics and {topics} groups"
        docs.write_text(page(bench.rows, setting), encoding="utf-8")


if __name__ == "__main__":
    main()
