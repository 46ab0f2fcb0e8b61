"""Registrations larger than a frame go in parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from rocketpy.broker.registration import outer_api, registration
from rocketpy.errors import ConnectionLost
from rocketpy.namesrv.registration import Registration
from rocketpy.namesrv.route_info import RouteInfoManager
from rocketpy.remoting.bodies.topic import DataVersion, TopicConfig
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import FRAME_SIZE_MAX
from rocketpy.remoting.headers.namesrv import QueryDataVersionResponseHeader
from rocketpy.remoting.work import result_of
from tests.support.registrations import registered
from tests.support.slow_path import SlowPathRig


class RouteTable:
    """A name server that keeps what it is told, as the reference does: topics of an equal version are not read."""

    def __init__(self) -> None:
        self.routes = RouteInfoManager()
        self.fails_at: int | None = None
        self.registrations = 0

    async def invoke(self, address: str, request: RemotingCommand, timeout_s: float) -> RemotingCommand:
        await trio.lowlevel.checkpoint()
        assert len(request.encode()) <= FRAME_SIZE_MAX
        addr = (request.ext_fields or {})["brokerAddr"]
        if request.code == 322:
            changed, _ = self.routes.query_data_version(addr, DataVersion.decode(request.body), 1, 0)
            return RemotingCommand.response(header=QueryDataVersionResponseHeader(changed=changed))
        self.registrations += 1
        if self.registrations == self.fails_at:
            raise ConnectionLost("gone")
        body = registered(request)
        wrapper = body.topic_config_serialize_wrapper
        registration = Registration("c", "broker-a", addr, 0, "", wrapper.data_version, wrapper.topic_config_table)
        self.routes.register(registration, 1, 0)
        return RemotingCommand.response()


def large_rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> tuple[SlowPathRig, RouteTable]:
    """A broker of 300 topics where a part holds some 30 and a table of 100 is large."""
    monkeypatch.setattr(registration, "PART_BYTES", 6_000)
    monkeypatch.setattr(outer_api, "LARGE_TOPICS", 100)
    rig, table = SlowPathRig(tmp_path, namesrv_addr="10.0.0.1:9876", **settings), RouteTable()
    for number in range(300):
        rig.services.topics.update(TopicConfig(topic_name=f"T{number}", topic_sys_flag=1))
    rig.broker._outer_api._client = table
    return rig, table


@pytest.mark.parametrize("compressed", [False, True])
def test_a_large_table_goes_in_parts_and_all_of_it_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compressed: bool
) -> None:
    """Fault: From about 97 000 topics on, a registration was larger than a frame and the broker left the routes."""
    rig, table = large_rig(tmp_path, monkeypatch, compressed_register=compressed)
    register = rig.services.registrar.register
    trio.run(register)
    parts = table.registrations
    assert parts >= (2 if compressed else 8)
    assert set(result_of(table.routes.topics())) == rig.services.topics.topics.keys()
    assert (result_of(table.routes.unit_topics()) == []) is compressed, "flags get lost only in the form that has none"
    statistics = rig.broker._outer_api.statistics
    assert (statistics.topics, statistics.parts) == (len(rig.services.topics.topics), parts)
    assert statistics.bytes > 1_000 and statistics.failures == 0
    assert statistics.last_success_ms == rig.clock.now_ms()
    trio.run(register)
    assert table.registrations == parts, "a name server that has all of it is only asked"
    rig.services.topics.update(TopicConfig(topic_name="T7", write_queue_nums=3))
    trio.run(register)
    assert table.registrations == 2 * parts
    route = table.routes.route("T7")
    assert route is not None and route.queue_datas[0].write_queue_nums == 3


def test_parts_that_did_not_all_arrive_are_all_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig, table = large_rig(tmp_path, monkeypatch)
    table.fails_at = 4
    trio.run(rig.services.registrar.register)
    assert table.registrations == 4 and table.routes.route("T299") is None
    assert rig.broker._outer_api.statistics.failures == 1
    assert rig.broker._outer_api.statistics.last_success_ms is None
    trio.run(rig.services.registrar.register)
    assert set(result_of(table.routes.topics())) == rig.services.topics.topics.keys()


def test_a_hundred_thousand_topics_fit_frames(tmp_path: Path) -> None:
    topics = {name: TopicConfig(topic_name=name) for name in (f"a-rather-long-name-{n:09}" for n in range(100_000))}

    async def main() -> None:
        version = DataVersion(counter=5, timestamp_ms=7)
        parts = await registration.registration_parts(topics, version, permission=6, is_compressed=False)
        assert sum(part.topics for part in parts) == 100_000 and len(parts) >= 4
        assert max(len(part.body) for part in parts) < FRAME_SIZE_MAX // 2
        versions = [part.data_version for part in parts]
        assert versions[-1] == version and len({(v.counter, v.timestamp_ms) for v in versions}) == len(parts)

    trio.run(main)
