"""docs/use/examples as modules, and a server for the one that needs one."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from types import ModuleType
from typing import Any

import pytest

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
