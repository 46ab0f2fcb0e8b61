"""The controller: what it serves, tells the fast path at start, does in the background and leaves behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
import trio.testing

from rocketpy.broker.managers.config_file import ConfigFile
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.config import BrokerRole
from rocketpy.errors import ConfigError
from rocketpy.remoting.abc import Peer
from rocketpy.remoting.fast_path import SlowPath
from tests.support.slow_path import FakeChannel, SlowPathRig

CODES = {
    10, 11, 12, 14, 15, 17, 21, 25, 26, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 41, 42, 43, 45, 46, 50, 51,
    52, 53, 54, 200, 201, 202, 203, 204, 207, 208, 215, 222, 223, 300, 303, 305, 306, 307, 308, 309, 310, 314,
    315, 316, 317, 320, 321, 323, 324, 325, 328, 329, 351, 352, 361, 907, 30001, 30002,
}  # fmt: skip


def test_every_code_is_served(tmp_path: Path) -> None:
    """Holds: broker, processors and pools; network, request code, processor and pool."""
    assert set(SlowPathRig(tmp_path).processors) == CODES


def test_the_controller_is_a_slow_path(tmp_path: Path) -> None:
    slow_path: SlowPath = SlowPathRig(tmp_path).broker
    slow_path.connection_closed(99)


def test_start_tells_all_tables_and_ends_them(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)

    async def main() -> None:
        rig.broker.load()
        async with trio.open_nursery() as nursery:
            await nursery.start(rig.broker.run)
            names = [name for name, _ in rig.fast_path.calls]
            assert names.count("topic_changed") == 8 and names.count("group_changed") == 7
            assert names[-2:] == ["broker_changed", "tables_end"]
            await rig.broker.stop()

    trio.run(main)


def test_transactions_are_checked_as_often_as_configured(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path, transaction_check_interval=2_500)
    assert {duty.name: duty.interval_s for duty in rig.broker.duties()}["checking transactions"] == 2.5


def test_stop_leaves_the_name_servers_and_saves_everything(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path, namesrv_addr="10.0.0.1:9876")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(rig.broker.run)
            rig.broker.commit_offset("G", "T", 0, 5, rig.clock.monotonic_ms())
            rig.services.topics.create_if_missing("T", queue_nums=1)
            await rig.broker.stop()

    trio.run(main)
    request = rig.name_servers.calls[-1][1]
    assert request.code == 104
    assert request.ext_fields == {
        "brokerName": "broker-a",
        "brokerAddr": "127.0.0.1:10911",
        "clusterName": "DefaultCluster",
        "brokerId": "0",
    }
    again = SlowPathRig(tmp_path)
    again.broker.load()
    assert again.services.offsets.query("G", "T", 0) == 5
    assert again.services.topics.select("T") is not None


def test_duties_by_the_clock(tmp_path: Path) -> None:
    """Holds: store, tables saved in config."""
    rig = SlowPathRig(tmp_path)
    path = tmp_path / "config" / "consumerOffset.json"
    client = FakeChannel(3)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(rig.broker.run)
            await rig.heartbeat("a", group="G", topics={"T": "*"}, channel=client)
            rig.broker.commit_offset("G", "T", 0, 5, rig.clock.monotonic_ms())
            for second in range(1, 5):  # without a standstill
                rig.clock.advance(2_500)
                await clock_to(float(second))
            for _ in range(23):
                rig.clock.advance(5_000)
                rig.broker._pauses.check()
            await clock_to(5.5)
            while not path.exists():
                await trio.lowlevel.checkpoint()
            await clock_to(11)
            assert client.is_closed
            await clock_to(61)
            assert rig.store.trimmed == 1
            await rig.broker.stop()

    clock = trio.testing.MockClock()

    async def clock_to(seconds: float) -> None:
        clock.jump(seconds - trio.current_time())
        await trio.testing.wait_all_tasks_blocked()

    trio.run(main, clock=clock)
    assert "T@G" in path.read_text()


@pytest.mark.parametrize(
    ("setting", "name"),
    [("flush_consumer_offset_interval", "consumerOffset.json"), ("flush_delay_offset_interval", "delayOffset.json")],
)
def test_how_often_offsets_are_saved(tmp_path: Path, setting: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = SlowPathRig(tmp_path, **{setting: 3_000})
    saved: list[float] = []

    async def save(file: ConfigFile, *, last: bool = False) -> None:
        if file.path.name == name:
            saved.append(trio.current_time())

    monkeypatch.setattr(ConfigFile, "save", save)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(rig.broker.run)
            began = trio.current_time()
            await trio.sleep(10)
            assert [round(at - began) for at in saved] == [3, 6, 9]
            await rig.broker.stop()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_slave_neither_delivers_delays_nor_takes_offsets_from_pulls(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path, broker_role=BrokerRole.SLAVE)
    rig.broker.commit_offset("G", "T", 0, 5, rig.clock.monotonic_ms())
    assert rig.services.offsets.query("G", "T", 0) == -1


def test_a_slave_on_another_machine_may_read_the_settings(tmp_path: Path) -> None:
    """Fault: A slave on another machine was refused the size of log files and never followed."""
    rig = SlowPathRig(tmp_path, ha_addresses="10.0.0.9")
    slave, stranger = (FakeChannel(number, Peer(f"10.0.0.{number}", 4000)) for number in (9, 8))

    async def main() -> None:
        read, write = RequestCode.GET_BROKER_CONFIG, RequestCode.UPDATE_BROKER_CONFIG
        assert b"mappedFileSizeCommitLog=" in ((await rig.ask(read, channel=slave)).body or b"")
        refused = await rig.ask(read, channel=stranger)
        assert refused.code == ResponseCode.NO_PERMISSION and "haAddresses" in (refused.remark or "")
        assert (await rig.ask(write, body=b"a=b", channel=slave)).code == ResponseCode.NO_PERMISSION

    rig.run(main)


@pytest.mark.parametrize("name", ["topics", "consumerOffset", "subscriptionGroup", "delayOffset"])
def test_a_damaged_table_refuses_to_start(tmp_path: Path, name: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / f"{name}.json").write_text("{")
    with pytest.raises(ConfigError, match=name):
        SlowPathRig(tmp_path).broker.load()


def test_files_are_written_where_java_reads_them(tmp_path: Path) -> None:
    """Holds: store, files of the directory."""
    rig = SlowPathRig(tmp_path)

    async def main() -> None:
        await rig.heartbeat("a", group="G", topics={"T": "*"})
        await rig.ask(15, {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "3"})
        await rig.services.offsets.file.save()

    trio.run(main)
    config = tmp_path / "config"
    assert {path.name for path in config.iterdir() if path.suffix == ".json"} == {
        "topics.json",
        "subscriptionGroup.json",
        "consumerOffset.json",
    }
    topics = json.loads((config / "topics.json").read_text())
    assert list(topics) == ["dataVersion", "topicConfigTable"]
