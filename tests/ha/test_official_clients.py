"""The official Java clients over a failover: they follow brokerId 0, and get every message that was acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.interop import toolchain
from tests.interop.programs import Launcher, Program
from tests.support.etcd import MISSING, is_installed
from tests.support.ha.group import real_group

pytestmark = pytest.mark.skipif(not is_installed(), reason=MISSING)
TOPIC = "Official"
STORED = ("SEND_OK", "SLAVE_NOT_AVAILABLE")  # the second by a master that is alone in sync


def test_producer_and_consumer_follow_the_master(tmp_path: Path) -> None:
    try:
        toolchain.java_directory("4.9.8")
    except toolchain.Missing as missing:
        toolchain.skip_or_fail(str(missing))
    with real_group(tmp_path) as group:
        first = group.master()
        assert first is not None
        (second,) = set(group.members) - {first}
        launcher = Launcher(group.namesrv.namesrv, tmp_path)
        try:
            consumer = launcher.start("java-4.9.8", "push", topic=TOPIC, group="official_consumers")
            consumer.wait_ready()
            producer = launcher.start(
                "java-4.9.8", "send", mode="stream", topic=TOPIC, group="official_producers", prefix="m", poll=1000
            )
            producer.wait_until(lambda: len(acknowledged(producer)) > 200, "messages before the failover")
            group.history.happened(f"kill -9 of all of {first}")
            group.members[first].kill_all()
            before = len(acknowledged(producer))
            producer.wait_until(lambda: len(acknowledged(producer)) > before + 200, "messages after the failover")
            group.wait_for(lambda: group.master() == second, "the failover")
            group.members[first].begin()
            group.wait_in_sync()
            producer.leave()
            wanted = acknowledged(producer)
            consumer.wait_until(lambda: wanted <= {event["key"] for event in consumer.messages}, "all messages")
            consumer.leave()
        finally:
            launcher.close()
    places: dict[tuple[int, int], set[str]] = {}
    for event in consumer.messages:
        places.setdefault((event["queueId"], event["queueOffset"]), set()).add(event["key"])
    assert [keys for keys in places.values() if len(keys) > 1] == [], "two messages at one place"


def acknowledged(producer: Program) -> set[str]:
    return {event["key"] for event in producer.of_kind("sent") if event["status"] in STORED}
