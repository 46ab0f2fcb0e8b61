"""`rocketpy console` in front of official servers: its pages have their data, and alarms that need nothing of rocketpy
come."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

from rocketpy.client import START_FIRST, Message, ProducerOptions, PushOptions, ReceivedMessage
from rocketpy.client.sync import Producer, PushConsumer
from tests.interop.java_broker import running_java_broker
from tests.support.running_console import running_console
from tests.support.wire import until

SENDS = 5
ALARMS = f'[broker]\ndisk_percent = 1\n[[group]]\nname = "slow"\nbacklog = {SENDS - 1}\n'


def test_pages_and_alarms_of_a_java_broker(tmp_path: Path) -> None:
    alarms = tmp_path / "alarms.toml"
    alarms.write_text(ALARMS)

    def fail(message: ReceivedMessage) -> None:
        raise ValueError("a handler that fails")

    with (
        running_java_broker() as broker,
        running_console(broker.namesrv, tmp_path / "log", "--alarms", str(alarms)) as console,
        Producer("shop", ProducerOptions(name_servers=broker.namesrv, send_timeout=30)) as producer,
    ):

        def shows(path: str, *texts: str) -> None:
            """Wait until a page has the texts."""
            last = ""

            def has_all() -> bool:
                nonlocal last
                last = " ".join(html.unescape(re.sub("<[^>]*>", " ", console.ask("GET", path)[1])).split())
                return all(text in last for text in texts)

            try:
                until(has_all, "the texts", 120)
            except AssertionError:
                raise AssertionError(f"{path} never had {texts}: {last}") from None

        failing = PushOptions(name_servers=broker.namesrv, start=START_FIRST, reconsume_times_max=0)
        with PushConsumer("failing", {"Orders": "*"}, fail, options=failing):
            for number in range(SENDS):
                sent = producer.send(Message("Orders", b"order", keys=f"order-{number}"))
            shows("/dead-letters/group?name=failing", "order-0", f"order-{SENDS - 1}")
            shows("/group?name=failing", "Orders", "Subscribes to")
        slow = PushOptions(name_servers=broker.namesrv, start=START_FIRST)
        with PushConsumer("slow", {"Later": "*"}, lambda message: None, options=slow):
            producer.send(Message("Later", b"makes the topic, and is consumed"))
            shows("/group?name=slow", "Later")
        for _ in range(SENDS):
            producer.send(Message("Later", b"waits"))
        shows("/brokers", "broker-a", "V4_9_7", "up", "%")
        shows("/topics", "Orders", "Later")
        shows("/messages?topic=Orders&key=order-1", "order-1")
        shows(f"/messages?topic=Orders&id={sent.msg_id}", sent.msg_id)
        shows("/failover", "broker-a", "master 0")
        shows("/alarms", "disk", f"group slow: {SENDS} messages not consumed")
        broker.kill_all()
        shows("/alarms", "no master answers")
