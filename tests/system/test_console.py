"""`rocketpy console` as operators run it: its command line, and a real cluster behind it."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)
pytest.importorskip("uvicorn")

from rocketpy.client import Message
from rocketpy.client.options import START_FIRST, ProducerOptions, PushOptions
from rocketpy.client.sync import Producer, PushConsumer
from tests.support.broker import free_ports, running_broker
from tests.support.running_console import ACCOUNTS, COMMAND, LOGIN, running_console
from tests.support.wire import until


def refused(*arguments: str) -> str:
    """Return the line that the command ends with."""
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    return done.stderr


def test_what_the_command_refuses_is_one_line(tmp_path: Path) -> None:
    assert refused("-n", "127.0.0.1:9", "--bind", "0.0.0.0").startswith("rocketpy: --bind 0.0.0.0 lets other hosts in")
    assert refused("-n", "127.0.0.1:9", "--allow-changes").startswith("rocketpy: --allow-changes needs a login")
    assert refused("--proxy", "0.0.0.0/0").startswith("rocketpy: --proxy 0.0.0.0/0 trusts every client")
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
