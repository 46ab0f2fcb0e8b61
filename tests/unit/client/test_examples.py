"""docs/use/examples: each is run in a cluster in memory, as its server would run it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from rocketpy import aio
from rocketpy.client.cluster import lifetime
from rocketpy.codes import RequestCode
from tests.support import loops
from tests.support.cluster import NAME_SERVER, FakeBroker, FakeCluster
from tests.support.loops import settled
from tests.support.rules import ROOT


def example(name: str, *needed: str) -> ModuleType:
    """Import an example anew; skip the test if a package is missing."""
    for package in needed:
        pytest.importorskip(package)
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs/use/examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # some frameworks look it up
    spec.loader.exec_module(module)
    return module


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


class Asgi:
    """The server of an ASGI application: its lifespan, and requests one after the other."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._from_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._task: asyncio.Future[None]

    async def lifespan(self, phase: str) -> None:
        if phase == "startup":
            scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
            self._task = asyncio.ensure_future(self._app(scope, self._to_app.get, self._from_app.put))
        await self._to_app.put({"type": f"lifespan.{phase}"})
        assert (await self._from_app.get())["type"] == f"lifespan.{phase}.complete"
        if phase == "shutdown":
            await self._task

    async def request(self, method: str, path: str) -> Any:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        answers: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            answers.append(message)

        await self._app(scope, receive, send)
        assert answers[0]["status"] == 200
        return json.loads(b"".join(answer.get("body", b"") for answer in answers))


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
