"""`rocketpy console` while brokers die, clients are slow, and certificates change."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import time
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)
pytest.importorskip("uvicorn")

from tests.support.broker import running_broker
from tests.support.certificates import Authority
from tests.support.pair import running_pair
from tests.support.running_console import ACCOUNTS, LOGIN, RunningConsole, running_console
from tests.support.wire import until
from tests.unit.console.test_notices import Hook, serving


def test_a_broker_that_dies_and_comes_back(tmp_path: Path) -> None:
    with running_broker() as broker, running_console(broker.namesrv, tmp_path / "log") as console:
        until(lambda: '<span class="up">up</span>' in console.page("/brokers"), "the broker is up", 60)
        assert broker.process is not None
        stopped = [broker.process.pid, *broker.workers().values()]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            until(lambda: "does not answer" in console.page("/"), "the broker is shown as hanging", 60)
            assert "Traceback" not in console.page("/topic?name=TBW102")
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        until(lambda: '<span class="up">up</span>' in console.page("/brokers"), "the broker is up again", 60)
        broker.kill_all()
        until(lambda: "The name servers do not answer" in console.page("/"), "nobody answers", 60)
        broker.start()
        until(lambda: '<span class="up">up</span>' in console.page("/brokers"), "the broker is up again", 60)


def test_tls_and_a_renewed_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued, other = authority.issue(), authority.issue()
    trust = ssl.create_default_context(cafile=authority.ca_file)
    arguments = ("--certificate", str(issued.certificate), "--key", str(issued.key))
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    with (
        running_broker() as broker,
        running_console(
            broker.namesrv, tmp_path / "log", *arguments, "--accounts", str(accounts), context=trust
        ) as console,
    ):
        _, _, headers = console.ask("POST", "/login", LOGIN)
        assert "secure" in headers["set-cookie"].lower()
        first = ssl.get_server_certificate(("127.0.0.1", console.port))
        issued.replace(other)
        until(lambda: ssl.get_server_certificate(("127.0.0.1", console.port)) != first, "the new one is served", 60)
        assert "Overview" in console.page("/")


def test_a_foreign_host_and_slow_clients(tmp_path: Path) -> None:
    """More clients than there are connections send their heads byte by byte; after a time the console is free again."""

    def is_free(console: RunningConsole) -> bool:
        with contextlib.suppress(ConnectionError):  # a connection too many is closed
            return console.ask("GET", "/")[0] == 200
        return False

    with running_broker() as broker, running_console(broker.namesrv, tmp_path / "log") as console:
        assert console.ask("GET", "/", Host="evil.example.com")[0] == 421
        with contextlib.ExitStack() as stack:
            slow = [stack.enter_context(socket.create_connection(("127.0.0.1", console.port))) for _ in range(300)]
            begun_s = time.monotonic()
            while not is_free(console):
                for client in slow:
                    with contextlib.suppress(OSError):
                        client.sendall(b"G")
                assert time.monotonic() - begun_s < 60
                time.sleep(1)
        with socket.create_connection(("127.0.0.1", console.port), 30) as large:
            with contextlib.suppress(OSError):
                large.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000)
            with contextlib.suppress(ConnectionResetError):
                assert large.recv(100).startswith(b"HTTP/1.1 4")


def test_a_pair_whose_master_dies(tmp_path: Path) -> None:
    """The page names both and the lag between them; an alarm without a master reaches a webhook, and is cleared."""
    hook = Hook()
    with serving(hook.handler()) as port, running_pair(tmp_path, "SYNC_MASTER", {}) as pair:
        pair.slave.start()
        alarms = tmp_path / "alarms.toml"
        url, link = f"http://127.0.0.1:{port}/", "http://console.example.com"
        alarms.write_text(f'link = "{link}"\n[webhook]\nurl = "{url}"\n[broker]\nno_master_seconds = 1\n')
        log = tmp_path / "console.log"
        with running_console(pair.namesrv.namesrv, log, "--alarms", str(alarms)) as console:
            until(lambda: "1 in sync" in console.page("/failover"), "the slave is in sync", 90)
            pair.master.kill_all()
            until(lambda: bool(hook.got), "the webhook is told", 90)
            assert "no master answers" in console.page("/alarms")
            assert "gone since" in console.page("/brokers")
            pair.master.start()
            until(lambda: len(hook.got) > 1, "the webhook is told of the end", 90)
    told = [notice for _, _, notice in hook.got]
    assert [(notice["state"], notice["kind"]) for notice in told] == [("raised", "no_master"), ("cleared", "no_master")]
    assert told[0]["link"] == f"{link}/broker?name=broker-a"
