"""Figures by name are bounded where clients choose the names."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from rocketpy.broker.managers.client_channel import ClientChannelInfo, LastHeartbeat
from rocketpy.processes.workers import traffic_rows
from rocketpy.processes.workers.traffic_rows import clients_by_kind, producer_counts
from rocketpy.remoting.bodies.client import ConsumeFromWhere, ConsumeType, MessageModel
from rocketpy.transport.steps import Steps
from tests.support.slow_path import FakeChannel, SlowPathRig


def info(connection: int, version: int = 409) -> ClientChannelInfo:
    return ClientChannelInfo(FakeChannel(connection), f"client-{connection}", "JAVA", version, LastHeartbeat(0, 0))


def test_producer_groups_are_bounded_and_those_that_came_first_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: One host whose connections named 200,000 producer groups made each scrape fail."""
    monkeypatch.setattr(traffic_rows, "PRODUCER_GROUPS_MAX", 2)
    services = SlowPathRig(tmp_path).services
    for group, connection in (("Z", 1), ("Y", 1), ("A", 2), ("Z", 2)):
        services.producers.register(group, info(connection))
    assert trio.run(producer_counts, services, Steps()) == {"Z": 2, "Y": 1}


def test_kinds_of_consumers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_rows, "KINDS_MAX", 1)
    services = SlowPathRig(tmp_path).services
    for connection, version in ((1, 409), (2, 1), (3, 409)):
        services.consumers.register(
            "G",
            info(connection, version),
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            subscriptions=[],
            notify=False,
        )
    _, consumers = trio.run(clients_by_kind, services, Steps())
    assert consumers == {("G", "java", "v4_9_8", "push", False): 2}
