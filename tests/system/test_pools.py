"""Three pull and three query workers with the client as users have it: messages are sent, consumed and queried. A
connection with thousands of admin requests ends its own, not those of another connection."""

from __future__ import annotations

import re
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.client.messages import Message, ReceivedMessage
from rocketpy.client.options import START_FIRST, ProducerOptions, PushOptions
from rocketpy.client.producer import Producer
from rocketpy.client.push_consumer import PushConsumer
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import RunningBroker, free_ports, running_broker
from tests.support.large_cluster import write_tables
from tests.support.wire import Wire, until

MESSAGES = 60
PIPELINED = 4_000


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    port, _ = free_ports()
    settings = {"pullWorkers": "3", "queryWorkers": "3", "metricsPort": str(port)}
    with running_broker(settings) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.text()


def test_the_client_finds_everything_once(broker: RunningBroker) -> None:
    got: list[ReceivedMessage] = []

    async def main() -> None:
        everything = trio.Event()

        async def handle(message: ReceivedMessage) -> None:
            got.append(message)
            if len(got) == MESSAGES:
                everything.set()

        options = PushOptions(name_servers=broker.namesrv, start=START_FIRST)
        async with Producer(
            "pools-producer", ProducerOptions(name_servers=broker.namesrv, send_timeout=10.0)
        ) as producer:
            for n in range(MESSAGES // 2):
                await producer.send(Message("pools", b"%d" % n, keys=f"key-{n}"))
            async with PushConsumer("pools-consumer", {"pools": "*"}, handle, options=options):
                for n in range(MESSAGES // 2, MESSAGES):  # these end long polls
                    await producer.send(Message("pools", b"%d" % n, keys=f"key-{n}"))
                with trio.fail_after(60):
                    await everything.wait()

    trio.run(main)
    assert sorted(int(message.body) for message in got) == list(range(MESSAGES))
    with Wire.open(broker.port) as wire:
        for message in got:
            fields = {"topic": "pools", "key": message.keys[0], "maxNum": "4", "beginTimestamp": "0"}
            fields["endTimestamp"] = str(message.store_timestamp_ms + 1)
            query = RemotingCommand.request(RequestCode.QUERY_MESSAGE, ext_fields=fields)
            until(lambda query=query: wire.ask(query).code == 0, "the index")  # type: ignore[misc]
            fields = {"offset": str(message.phy_offset)}
            view = wire.ask(RemotingCommand.request(RequestCode.VIEW_MESSAGE_BY_ID, ext_fields=fields))
            assert view.code == 0 and message.body in (view.body or b"")


def test_metrics_show_every_worker_and_pool(broker: RunningBroker) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.settings['metricsPort']}/metrics", timeout=60) as answer:
        page = answer.read().decode()
    for worker in ("pull-0", "pull-1", "pull-2", "query-0", "query-1", "query-2"):
        role = worker.partition("-")[0]
        assert f'rocketpy_worker_ready{{role="{role}",worker="{worker}"}} 1.0' in page
    for pool in ("send", "pull", "query", "client", "consumer", "reply", "send_back", "admin"):
        assert f'rocketpy_pool_waiting_requests{{pool="{pool}"}} 0.0' in page
    assert len(re.findall(r'rocketpy_worker_loops_total\{worker="pull-\d"\}', page)) == 3


def test_code_28_shows_that_nothing_waits(broker: RunningBroker) -> None:
    with Wire.open(broker.port) as wire:
        answer = wire.ask(RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO))
    assert b'"queryThreadPoolQueueSize":"0"' in (answer.body or b"").replace(b" ", b"")


def test_thousands_of_expensive_admin_requests_of_one_connection_are_refused_by_age(tmp_path: Path) -> None:
    """Another connection is served meanwhile: its request waits for one turn.
    Fault: Pipelined admin requests were all served, however long it took, and kept the console out for minutes."""
    write_tables(tmp_path / "store", 3_000, 0)
    codes: Counter[int] = Counter()
    with (
        running_broker({"waitTimeMillsInAdminBrokerQueue": "1000"}, store=tmp_path / "store") as running,
        Wire.open(running.port) as greedy,
        Wire.open(running.port) as other,
    ):
        request = RemotingCommand.request(RequestCode.GET_ALL_TOPIC_CONFIG)

        def read_all() -> None:
            for _ in range(PIPELINED):
                answer = greedy.read()
                codes[answer.code] += 1
                assert answer.code == 0 or (answer.remark or "").startswith("[TIMEOUT_CLEAN_QUEUE]"), answer

        reader = threading.Thread(target=read_all)
        reader.start()
        greedy.tell(*(RemotingCommand.request(RequestCode.GET_ALL_TOPIC_CONFIG) for _ in range(PIPELINED)))
        until(lambda: other.ask(request).code == 0, "an answer to the other connection")
        reader.join()
    assert codes.total() == PIPELINED and codes[0] > 0 and codes[ResponseCode.SYSTEM_BUSY] > 0, codes
