"""A console as operators run it: its process, and a browser without scripts."""

from __future__ import annotations

import contextlib
import http.client
import signal
import ssl
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from tests.support.broker import free_ports
from tests.support.wire import until

ACCOUNTS = "accounts:\n- accessKey: operator\n  secretKey: operator-secret\n  admin: true\n"
LOGIN = {"user": "operator", "secret": "operator-secret"}
COMMAND = [sys.executable, "-c", "from rocketpy.cli.main import rocketpy; rocketpy()", "console"]
START_S = 60.0


@attrs.define
class RunningConsole:
    """The process of a console, and a browser with its cookie."""

    process: subprocess.Popen[str]
    port: int
    context: ssl.SSLContext | None = None
    cookie: str = ""

    def ask(self, method: str, path: str, form: dict[str, str] | None = None, **headers: str) -> tuple[int, str, Any]:
        """Return status, text and headers."""
        kind: Any = http.client.HTTPConnection
        options = {}
        if self.context is not None:
            kind, options = http.client.HTTPSConnection, {"context": self.context}
        with contextlib.closing(kind("127.0.0.1", self.port, timeout=60, **options)) as connection:
            sent = {name.replace("_", "-"): value for name, value in headers.items()} | {"Cookie": self.cookie}
            body = urllib.parse.urlencode(form) if form is not None else None
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            if cookie := answer.getheader("set-cookie"):
                self.cookie = cookie.partition(";")[0]
            return answer.status, answer.read().decode(), answer.headers

    def page(self, path: str) -> str:
        status, text, _ = self.ask("GET", path)
        assert status == 200, (path, status, text)
        return text


@contextlib.contextmanager
def running_console(
    name_servers: str, log: Path, *arguments: str, context: ssl.SSLContext | None = None
) -> Iterator[RunningConsole]:
    port, _ = free_ports()
    with log.open("w") as output:
        command = [*COMMAND, "-n", name_servers, "--port", str(port), *arguments]
        process = subprocess.Popen(command, stderr=output, text=True)
    try:
        until(
            lambda: "console on http" in log.read_text() or process.poll() is not None, "the console listens", START_S
        )
        yield RunningConsole(process, port, context)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()
        process.wait()
