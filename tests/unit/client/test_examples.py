"""docs/use/examples: each is run in a cluster in memory, as its server would run it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketpy import aio
from rocketpy.client import TransactionProducer
from rocketpy.client.cluster import lifetime
from rocketpy.client.typed import SqliteSeenIds
from rocketpy.codes import RequestCode
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.send import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from tests.support import loops
from tests.support.clients import remember_channel
from tests.support.cluster import NAME_SERVER, FakeBroker, FakeCluster
from tests.support.example_programs import Asgi, example
from tests.support.loops import settled

CHECK = CheckTransactionStateRequestHeader(tran_state_table_offset=7, commit_log_offset=8, msg_id="x")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", NAME_SERVER)


def in_cluster(test: Callable[[FakeBroker], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test under asyncio beside a broker that every client finds."""

    async def main() -> None:
        async with aio.open_nursery() as nursery:
            cluster = FakeCluster(nursery)
            monkeypatch.setattr(lifetime, "connect", cluster.connect)
            await test(cluster.add_broker(Orders=2))
            nursery.cancel()

    loops.run(main, backend="asyncio")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asyncio_worker(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = example("asyncio_worker")

    async def test(broker: FakeBroker) -> None:
        running = asyncio.ensure_future(worker.main())
        await settled()
        broker.store("Orders", 0, b"order 1")
        await settled()
        os.kill(os.getpid(), number)  # the handler has the message: it ends first
        await running
        assert not broker.members["billing"]
        assert broker.offsets["billing", "Orders", 0] == 1

    in_cluster(test, monkeypatch)
    assert capsys.readouterr().out == "order 1\n"


def test_encryption(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    encryption = example("encryption", "cryptography")
    old, new = (encryption.Fernet.generate_key().decode() for _ in range(2))

    async def test(broker: FakeBroker) -> None:
        monkeypatch.setenv("ORDERS_KEYS", old)
        await encryption.main()
        assert b"order 1" not in b"".join(image for images in broker.records.values() for image in images)
        broker.offsets.clear()
        monkeypatch.setenv("ORDERS_KEYS", f"{new},{old}")
        await encryption.main()

    in_cluster(test, monkeypatch)
    assert capsys.readouterr().out == "order 1\norder 1\n"


def test_fastapi(monkeypatch: pytest.MonkeyPatch) -> None:
    application = example("fastapi_orders", "fastapi")

    async def test(broker: FakeBroker) -> None:
        server = Asgi(application.app)
        await server.lifespan("startup")
        await settled()
        assert await server.request("GET", "/orders/7") == {"paid": False}
        sent = await server.request("POST", "/orders/7")
        assert len(sent["message"]) == 32
        await settled()
        assert await server.request("GET", "/orders/7") == {"paid": True}
        await server.lifespan("shutdown")
        assert not broker.members["billing"]

    in_cluster(test, monkeypatch)


@pytest.mark.parametrize(("is_committed", "told"), [(True, 8), (False, 12)])
def test_outbox_answers_from_its_database_after_a_crash(
    is_committed: bool, told: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The producer died after the half message; the next one of the group is asked."""
    outbox = example("outbox_orders")
    path = str(tmp_path / "shop.db")

    async def test(broker: FakeBroker) -> None:
        channels = remember_channel(broker)
        sent = outbox.ORDERS.message({"number": 7, "total": 12}, keys="order-7")
        crashed = outbox.Outbox(path)
        if is_committed:
            assert crashed.execute(sent, {"number": 7, "total": 12}).value == 8
        crashed.close()
        properties = b"PGROUP\x01shop\x02KEYS\x01order-7\x02"
        broker.store("Orders", 0, sent.body, properties, sys_flag=4)
        found = outbox.Outbox(path)
        async with TransactionProducer("shop", found) as producer:
            await producer.send(sent)  # it is known to the broker now
            await aio.sleep(2)
            channels[0].push(
                RemotingCommand.oneway(RequestCode.CHECK_TRANSACTION_STATE, CHECK, body=broker.records["Orders", 0][0])
            )
            while not broker.got(RequestCode.END_TRANSACTION):
                await aio.sleep(1)
            late = found.execute(sent, {"number": 7, "total": 12})
        found.close()
        (end,) = map(EndTransactionRequestHeader.of, broker.got(RequestCode.END_TRANSACTION))
        assert (end.commit_or_rollback, end.from_transaction_check) == (told, True)
        assert late.value == 12, "what was rolled back cannot be committed later"

    in_cluster(test, monkeypatch)


def test_orders_of_the_outbox_are_shipped_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outbox = example("outbox_orders")

    async def test(broker: FakeBroker) -> None:
        with SqliteSeenIds(tmp_path / "shipped.db") as seen:
            async with outbox.shipping(seen):
                await aio.sleep(1)
                states = [(await outbox.order(str(tmp_path / "shop.db"), 7)).name for _ in range(2)]
                while sum(broker.offsets.get(("shipping", "Orders", number), 0) for number in (0, 1)) < 2:
                    await aio.sleep(1)
            assert states == ["COMMIT", "ROLLBACK"]
            with seen.transaction("look") as database:
                assert database is not None
                assert database.execute("SELECT number FROM shipments").fetchall() == [(7,)]

    in_cluster(test, monkeypatch)


class OwnTasks:
    """The tasks of a cluster beside a blocking client, in its loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()

    def start_soon(self, function: Any, *args: Any) -> None:
        self._tasks.add(asyncio.ensure_future(function(*args)))


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBroker]:
    """The broker of a blocking client."""
    cluster = FakeCluster(OwnTasks())  # type: ignore[arg-type]  # all that the cluster uses of a nursery
    monkeypatch.setattr(lifetime, "connect", cluster.connect)
    yield cluster.add_broker(Orders=2)


def test_flask(broker: FakeBroker) -> None:
    application = example("flask_orders", "flask")
    try:
        answer = application.app.test_client().post("/orders/7")
    finally:
        application.producer().close()
    assert answer.status_code == 200 and len(answer.get_json()["message"]) == 32
    assert len(broker.got(RequestCode.SEND_MESSAGE_V2)) == 1


def test_django(broker: FakeBroker) -> None:
    application = example("django_orders", "django")
    import django
    from django.test import Client

    django.setup()
    try:
        answer = Client().post("/orders/7")
    finally:
        application.producer().close()
    assert answer.status_code == 200 and len(answer.json()["message"]) == 32
    assert len(broker.got(RequestCode.SEND_MESSAGE_V2)) == 1
