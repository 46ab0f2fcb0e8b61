"""The examples of docs/use do on the official broker what they do on ours.

tests/system/test_client_page.py runs the page and its notebook against ours, tests/unit/client/test_examples.py the
programs in a cluster in memory; here the programs have real servers of both kinds, one broker of each for all.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketpy.client.typed import SqliteSeenIds
from tests.interop.brokers import AnyBroker, committed_offsets, create_topic, running_target, wait_until
from tests.support.doc_examples import ROOT
from tests.support.doc_programs import check_client_page
from tests.support.example_programs import Asgi, example

QUEUES = 2
PATIENCE_S = 60.0


@pytest.fixture(scope="module", params=["rocketpy", "java"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[str, AnyBroker]]:
    """(kind, broker) with the topic of the examples."""
    with running_target(request.param, settings={"enablePropertyFilter": "true"}) as broker:
        create_topic(broker, "Orders", QUEUES)
        yield request.param, broker


@pytest.fixture
def broker(served: tuple[str, AnyBroker], monkeypatch: pytest.MonkeyPatch) -> AnyBroker:
    monkeypatch.setenv("NAMESRV_ADDR", served[1].namesrv)
    return served[1]


@pytest.mark.parametrize("served", ["java"], indirect=True)
def test_the_page(broker: AnyBroker) -> None:
    """Before the others: its new groups begin with the oldest message."""
    check_client_page()


def wait_consumed(broker: AnyBroker, group: str) -> None:
    """Until the group has committed the message of a queue at least."""
    wait_until(lambda: max(committed_offsets(broker, group, "Orders", QUEUES)) > 0, f"an offset of {group}")


def test_a_pushing_worker_ends_with_sigterm(broker: AnyBroker) -> None:
    """Beside it a Flask and a Django application send."""
    worker = [sys.executable, str(ROOT / "docs/use/examples/asyncio_worker.py")]
    with (
        subprocess.Popen(worker, stdout=subprocess.PIPE, text=True, env=os.environ) as process,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(process.kill)  # after a failure; else it has ended
        assert process.stdout is not None
        flask, django = example("flask_orders", "flask"), example("django_orders", "django")
        import django as framework
        from django.test import Client
        from django.urls import clear_url_caches

        framework.setup()
        clear_url_caches()  # of the module of an earlier test
        try:
            answers = [flask.app.test_client().post("/orders/7").get_json(), Client().post("/orders/8").json()]
        finally:
            flask.producer().close()
            django.producer().close()
        assert all(len(answer["message"]) == 32 for answer in answers)
        orders = (line for line in process.stdout if line == "...\n")  # the page has left others
        assert len(list(itertools.islice(orders, len(answers)))) == len(answers)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    wait_consumed(broker, "billing")


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 -- another client's doing
            await asyncio.sleep(0.05)


def test_fastapi(broker: AnyBroker) -> None:
    application = example("fastapi_orders", "fastapi")

    async def use() -> None:
        server = Asgi(application.app)
        await server.lifespan("startup")
        assert await server.request("GET", "/orders/9") == {"paid": False}
        await server.request("POST", "/orders/9")

        async def is_paid() -> bool:
            return await server.request("GET", "/orders/9") == {"paid": True}

        await until(is_paid)
        await server.lifespan("shutdown")

    asyncio.run(use())


def test_encryption(broker: AnyBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    encryption = example("encryption", "cryptography")
    monkeypatch.setenv("ORDERS_KEYS", encryption.Fernet.generate_key().decode())
    asyncio.run(encryption.main())
    assert capsys.readouterr().out == "order 1\n"


def test_outbox(broker: AnyBroker, tmp_path: Path) -> None:
    outbox = example("outbox_orders")
    shipped = tmp_path / "shipped.db"

    async def use() -> None:
        with SqliteSeenIds(shipped) as seen:
            async with outbox.shipping(seen):
                states = [(await outbox.order(str(tmp_path / "shop.db"), 7)).name for _ in range(2)]
                assert states == ["COMMIT", "ROLLBACK"]

                async def is_shipped() -> bool:
                    with contextlib.closing(sqlite3.connect(shipped)) as database:
                        return database.execute("SELECT number FROM shipments").fetchall() == [(7,)]

                await until(is_shipped)

    asyncio.run(use())
