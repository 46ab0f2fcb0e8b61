"""A broker and a client look their name servers up: one that serves, one that never answers, and a dead one."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trio

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.client.messages import Message
from rocketpy.client.options import ProducerOptions
from rocketpy.client.producer import Producer
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import free_ports
from tests.support.wire import Wire, until
from tests.system.test_start_up import COMMANDS


@contextlib.contextmanager
def address_server(addresses: list[str]) -> Iterator[str]:
    """An HTTP service that names these; its own address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/rocketmq/nsaddr" else 404)
            self.end_headers()
            self.wfile.write(";".join(addresses).encode() + b"\n")

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def create_topic(port: int, topic: str) -> int:
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    with Wire.open(port) as wire:
        return wire.ask(RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=fields)).code


def is_served(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def has_route(namesrv_port: int, topic: str) -> bool:
    with Wire.open(namesrv_port) as wire:
        request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic})
        return wire.ask(request).code == ResponseCode.SUCCESS


@pytest.mark.long
def test_the_healthy_one_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Holds: name server, no traffic between name servers."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    (port, healthy), (dead, _), log = free_ports(), free_ports(), tmp_path / "log"
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(log.open("wb"))
        slow = stack.enter_context(socket.create_server(("127.0.0.1", 0)))  # connects, and nobody ever reads
        addresses = [f"127.0.0.1:{number}" for number in (slow.getsockname()[1], dead, healthy)]
        domain = stack.enter_context(address_server(addresses))

        def start(command: str, **settings: str) -> None:
            words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
            process = subprocess.Popen(
                [sys.executable, "-c", COMMANDS[command], *words],
                stdout=out,
                stderr=out,
                env=os.environ | {"HOME": str(tmp_path)},
                start_new_session=True,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)

        start("mqnamesrv", listenPort=str(healthy), bindAddress="127.0.0.1")
        # A name server that refused the first registration is not waited for when a topic is made.
        until(lambda: is_served(healthy), "the name server serves")
        start(
            "mqbroker",
            storePathRootDir=str(tmp_path / "store"),
            listenPort=str(port),
            bindAddress="127.0.0.1",
            metricsPort="0",
            mappedFileSizeCommitLog=str(64 << 20),
            fetchNamesrvAddrByAddressServer="true",
            rmqAddressServerDomain=domain,
            registerBrokerTimeoutMills="5000",
        )
        until(lambda: b"names the name servers" in log.read_bytes(), "the name servers are looked up")
        for number in range(3):
            assert create_topic(port, f"T{number}") == ResponseCode.SUCCESS
            assert has_route(healthy, f"T{number}"), "registered before the answer, whatever the others do"

        async def send() -> int:
            options = ProducerOptions(name_server_domain=domain)
            async with Producer("PG", options) as producer:
                result = await producer.send(Message("T0", b"found"))
                return result.queue_offset

        assert trio.run(send) == 0
    assert "Traceback" not in log.read_text()
