"""Registration: with all name servers, when, and what is told."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
import trio
import trio.testing

from rocketpy.remoting.bodies.register import RegisterBrokerBody
from rocketpy.remoting.bodies.topic import TopicConfig
from rocketpy.remoting.command import RemotingCommand
from tests.support.slow_lane import SlowLaneRig

TWO = {"namesrv_addr": "10.0.0.1:9876;10.0.0.2:9876"}


def registered(request: RemotingCommand) -> RegisterBrokerBody:
    fields = request.ext_fields or {}
    return RegisterBrokerBody.decode_registration(
        request.body, compressed=fields["compressed"] == "true", version=request.version
    )


def test_a_registration_is_whole_and_goes_to_all(tmp_path: Path) -> None:
    rig = SlowLaneRig(tmp_path, **TWO)
    rig.name_servers.answers["10.0.0.2:9876"] = RemotingCommand.response()
    trio.run(rig.services.registrar.register)
    assert sorted(address for address, _ in rig.name_servers.calls) == ["10.0.0.1:9876", "10.0.0.2:9876"]
    request = rig.name_servers.requests(103)[0]
    assert request.body is not None
    assert request.ext_fields == {
        "brokerName": "broker-a", "brokerAddr": "127.0.0.1:10911", "clusterName": "DefaultCluster",
        "haServerAddr": "127.0.0.1:10912", "brokerId": "0", "compressed": "false",
        "bodyCrc32": str(zlib.crc32(request.body) & 0x7FFFFFFF),
    }  # fmt: skip
    wrapper = registered(request).topic_config_serialize_wrapper
    assert wrapper.topic_config_table == rig.services.topics.topics
    assert wrapper.data_version == rig.services.topics.data_version


def test_a_compressed_registration(tmp_path: Path) -> None:
    rig = SlowLaneRig(tmp_path, **TWO, compressed_register=True)
    trio.run(rig.services.registrar.register)
    wrapper = registered(rig.name_servers.requests(103)[0]).topic_config_serialize_wrapper
    assert wrapper.topic_config_table.keys() == rig.services.topics.topics.keys()


def test_a_broker_that_is_not_read_write_publishes_its_own_permission(tmp_path: Path) -> None:
    rig = SlowLaneRig(tmp_path, **TWO, broker_permission=4)
    rig.services.topics.update(TopicConfig(topic_name="T", order=True, topic_sys_flag=1))
    trio.run(rig.services.registrar.register)
    table = registered(rig.name_servers.requests(103)[0]).topic_config_serialize_wrapper.topic_config_table
    assert {topic.perm for topic in table.values()} == {4}
    assert not table["T"].order and rig.services.topics.topics["T"].order


def test_ordered_topics_come_with_the_answer(tmp_path: Path) -> None:
    rig = SlowLaneRig(tmp_path, **TWO)
    rig.services.topics.update(TopicConfig(topic_name="T"))
    answer = RemotingCommand.response(body=b'{"table":{"T":"broker-a:4"}}')
    rig.name_servers.answers = {"10.0.0.1:9876": answer, "10.0.0.2:9876": RemotingCommand.response()}
    trio.run(rig.services.registrar.register)
    assert rig.services.topics.topics["T"].order
    rig.name_servers.answers["10.0.0.1:9876"] = RemotingCommand.response(body=b"{")
    trio.run(rig.services.registrar.register)
    assert rig.services.topics.topics["T"].order, "an unreadable table changes nothing"


def test_a_server_that_is_down_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = SlowLaneRig(tmp_path, namesrv_addr="10.0.0.1:9876")
    for _ in range(3):
        trio.run(rig.services.registrar.register)
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 1


def test_without_name_servers_nothing_is_called(tmp_path: Path) -> None:
    rig = SlowLaneRig(tmp_path)
    trio.run(rig.services.registrar.register)
    assert rig.name_servers.calls == []


def test_again_each_period_and_at_once_when_topics_change(tmp_path: Path) -> None:
    rig = SlowLaneRig(tmp_path, namesrv_addr="10.0.0.1:9876", register_name_server_period=1)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.broker._outer_api.run)
            await trio.sleep(9)
            assert len(rig.name_servers.calls) == 1
            await trio.sleep(2)
            assert len(rig.name_servers.calls) == 2, "a period below 10 s is 10 s"
            rig.services.topics.create_if_missing("T", queue_nums=1)
            rig.services.topics.create_if_missing("U", queue_nums=1)
            await trio.sleep(0.5)
            assert len(rig.name_servers.calls) == 3
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_not_forced_only_servers_with_other_data_are_told(tmp_path: Path) -> None:
    rig = SlowLaneRig(tmp_path, **TWO, force_register=False)
    rig.name_servers.answers = {
        "10.0.0.1:9876": RemotingCommand.response(ext_fields={"changed": "false"}),
        "10.0.0.2:9876": RemotingCommand.response(ext_fields={"changed": "true"}),
    }

    async def main() -> None:
        await rig.broker._outer_api.register(forced=False)

    trio.run(main)
    assert len(rig.name_servers.requests(322)) == 2
    assert [address for address, request in rig.name_servers.calls if request.code == 103] == ["10.0.0.2:9876"]
