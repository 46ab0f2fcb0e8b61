"""`rocketpy console` as operators run it: its command line, and a real cluster behind it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)
pytest.importorskip("uvicorn")

from rocketpy.client import Message
from rocketpy.client.options import START_FIRST, ProducerOptions, PushOptions
from rocketpy.client.sync import Producer, PushConsumer
from tests.support.broker import free_ports, running_broker
from tests.support.certificates import Authority
from tests.support.pair import running_pair
from tests.support.running_console import ACCOUNTS, COMMAND, LOGIN, running_console
from tests.support.wire import until
from tests.unit.console.test_notices import Hook, serving


def refused(*arguments: str) -> str:
    """Return the line that the command ends with."""
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    return done.stderr


def test_what_the_command_refuses_is_one_line(tmp_path: Path) -> None:
    assert refused("-n", "127.0.0.1:9", "--bind", "0.0.0.0").startswith("rocketpy: --bind 0.0.0.0 lets other hosts in")
    assert refused("-n", "127.0.0.1:9", "--allow-changes").startswith("rocketpy: --allow-changes needs a login")
    assert "no name server is named" in refused()
    assert "correct --accounts" in refused("-n", "127.0.0.1:9", "--accounts", str(tmp_path / "none"))
    alarms = tmp_path / "alarms.toml"
    alarms.write_text("link = 1\n[broker]\ndisk_percent = 500\n")
    lines = refused("-n", "127.0.0.1:9", "--alarms", str(alarms)).splitlines()
    assert len(lines) == 2, lines
    port, other = free_ports()
    with contextlib.closing(socket.create_server(("127.0.0.1", port))):
        taken = refused("-n", f"127.0.0.1:{other}", "--port", str(port))
    assert taken.startswith(f"rocketpy: cannot listen on 127.0.0.1:{port}: Address already in use; choose another")


def test_a_dead_letter_is_found_sent_again_and_handled(tmp_path: Path) -> None:
    """From the handler that failed to the handler that is repaired, through the pages alone."""
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    handled: list[str] = []
    is_repaired = False

    def handler(message: Any) -> None:
        if not is_repaired:
            raise ValueError("not yet")
        handled.append(f"{message.topic} {message.body.decode()} {message.msg_id}")

    with running_broker() as broker, contextlib.ExitStack() as stack:
        producer = stack.enter_context(Producer("shop", ProducerOptions(name_servers=broker.namesrv, trace=True)))
        sent = producer.send(Message("Orders", b"order 1", keys="order-1"))
        options = PushOptions(name_servers=broker.namesrv, start=START_FIRST, reconsume_times_max=0)
        stack.enter_context(PushConsumer("billing", {"Orders": "*"}, handler, options=options))
        arguments = ("--accounts", str(accounts), "--allow-changes")
        console = stack.enter_context(running_console(broker.namesrv, tmp_path / "log", *arguments))
        assert console.ask("GET", "/")[0] == 303
        assert console.ask("POST", "/login", LOGIN)[0] == 303
        until(lambda: sent.msg_id in console.page("/dead-letters/group?name=billing"), "the dead letter is there", 60)
        text = console.page("/dead-letters/group?name=billing")
        fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', text.rpartition("<td>")[2]))
        is_repaired = True
        status, _, headers = console.ask("POST", "/dead-letters/send-again", fields)
        assert (status, "Sent again" in console.page(headers["location"])) == (303, True)
        until(lambda: bool(handled), "the handler has it", 60)
        assert handled == [f"Orders order 1 {sent.msg_id}"]
        for path in ("/messages?topic=Orders&key=order-1", f"/messages?topic=Orders&id={sent.msg_id}"):
            assert "/message?" in console.page(path)
        assert sent.offset_msg_id in console.page(
            f"/message?topic=Orders&broker={sent.queue.broker_name}"
            f"&queue={sent.queue.queue_id}&offset={sent.queue_offset}&groups=1"
        )
        until(lambda: "billing" in console.page("/groups"), "the group is named", 90)
        page = console.page("/group?name=billing")
        assert "@" in page
        member = re.search(r'href="(/member[^"]*)"', page)
        assert member is not None
        assert "PROP_" in console.page(member[1].replace("&amp;", "&"))


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
    with running_broker() as broker, running_console(broker.namesrv, tmp_path / "log") as console:
        assert console.ask("GET", "/", Host="evil.example.com")[0] == 421
        with contextlib.ExitStack() as stack:
            slow = [stack.enter_context(socket.create_connection(("127.0.0.1", console.port))) for _ in range(300)]
            begun_s = time.monotonic()
            while console.ask("GET", "/")[0] != 200:
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
