"""The broker as a whole: configuration, figures, cleaning, replication."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio

from rocketpy.broker.managers.broker_stats import BrokerHealth, WorkerCounters, WorkerHealth
from rocketpy.codes import REPLICATION_VERSION, REPLICATION_VERSION_LOWEST
from rocketpy.remoting.bodies.broker import HaStatus
from rocketpy.remoting.bodies.topic import TopicConfig
from rocketpy.remoting.fast_path import Traffic
from rocketpy.remoting.work import result_of
from tests.support.slow_path import NOW_MS, SlowPathRig, body_of, record

RUNTIME_KEYS = [
    "brokerVersionDesc",
    "brokerVersion",
    "bootTimestamp",
    "runtime",
    "putMessageEntireTimeMax",
    "getMessageEntireTimeMax",
    "putMessageTimesTotal",
    "putMessageFailedTimes",
    "putMessageSizeTotal",
    "putMessageAverageSize",
    "putMessageDistributeTime",
    "dispatchMaxBuffer",
    "dispatchBehindBytes",
    "putTps",
    "getFoundTps",
    "getMissTps",
    "getTransferedTps",
    "getTotalTps",
    "putLatency99",
    "putLatency999",
    "commitLogDiskRatio",
    "consumeQueueDiskRatio",
    "commitLogMinOffset",
    "commitLogMaxOffset",
    "msgPutTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
    "sendThreadPoolQueueSize",
    "sendThreadPoolQueueCapacity",
    "pullThreadPoolQueueSize",
    "pullThreadPoolQueueCapacity",
    "queryThreadPoolQueueSize",
    "queryThreadPoolQueueCapacity",
    "EndTransactionQueueSize",
    "EndTransactionThreadPoolQueueCapacity",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "pageCacheLockTimeMills",
    "earliestMessageTimeStamp",
    "startAcceptSendRequestTimeStamp",
    "remainTransientStoreBufferNumbs",
    "remainHowManyDataToFlush",
    "commitLogDirCapacity",
]


def test_runtime_info_has_every_key_as_text(tmp_path: Path) -> None:
    """Holds: admin, statistics, metrics and alarms; trap, exporters read code 28 without checks."""
    rig = SlowPathRig(tmp_path)
    buckets = (1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1)
    rig.counters = WorkerCounters(messages_put=4, bytes_put=1000, put_latency_buckets=buckets, get_time_max_us=2_900)
    table = body_of(trio.run(lambda: rig.ask(28)))["table"]
    missing = set(RUNTIME_KEYS) - table.keys()
    assert not missing
    assert all(isinstance(value, str) for value in table.values())
    assert table["brokerVersionDesc"] == "V4_9_8" and table["brokerVersion"] == "409"
    assert table["runtime"] == "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"
    assert table["putMessageAverageSize"] == "250.0" and table["getMessageEntireTimeMax"] == "2"
    assert table["putMessageDistributeTime"].startswith("[<=0ms]:3 [0~10ms]:1 [10~50ms]:0 ")
    assert table["putMessageDistributeTime"].endswith("[10s~]:0 ")
    assert table["remainHowManyDataToFlush"] == "2.0 KiB"
    assert table["commitLogDirCapacity"].startswith("Total : ") and table["commitLogDirCapacity"].endswith("B.")
    assert table[f"commitLogDiskRatio_{tmp_path}/commitlog"] == "0.25"
    float(table["putTps"].split(" ")[0])


def test_runtime_info_tells_of_workers_and_refusals_to_the_console(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    table = body_of(trio.run(lambda: rig.ask(28)))["table"]
    assert table["connectionsRefused"] == "0" and "certificateNotAfter" not in table
    rig.health = BrokerHealth(
        [WorkerHealth("send", True, 12, 3), WorkerHealth("pull", False, 4, 0)], 7, 8, 1_800_000_000
    )
    table = body_of(trio.run(lambda: rig.ask(28)))["table"]
    assert {key: value for key, value in table.items() if key.startswith("worker_")} == {
        "worker_send": "ready, silent 12 ms, restarts 3",
        "worker_pull": "starting, silent 4 ms, restarts 0",
    }
    assert (table["connectionsRefused"], table["unreadConnectionsClosed"]) == ("7", "8")
    assert table["certificateNotAfter"] == "1800000000000"


def test_runtime_info_tells_of_timers_where_there_have_been_some(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    assert not [key for key in body_of(trio.run(lambda: rig.ask(28)))["table"] if key.startswith("timer")]
    rig.store.fill("rmq_sys_wheel_timer", 0, 3)
    rig.store.records[1000] = record(1000)
    rig.counters = WorkerCounters(timers_pending=2, timers_next_due_ms=NOW_MS + 5, timers_oldest_phy_offset=1000)
    table = body_of(trio.run(lambda: rig.ask(28)))["table"]
    assert {key: value for key, value in table.items() if key.startswith("timer")} == {
        "timerPending": "2",
        "timerNextDueTime": str(NOW_MS + 5),
        "timerOldestStoreTime": str(NOW_MS),
        "timerHeldBytes": str(4096 - 1000),
    }
    rig.counters = WorkerCounters()
    table = body_of(trio.run(lambda: rig.ask(28)))["table"]
    assert {table[key] for key in table if key.startswith("timer")} == {"0"}


def test_a_change_takes_effect_and_is_kept(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)

    async def main() -> None:
        response = await rig.ask(25, None, b"brokerPermission=4\nautoCreateTopicEnable=false\nfileReservedTime=48\n")
        assert response.code == 0
        assert (await rig.ask(25, None, b"maxMessageSize=1000\n")).code == 0
        assert (await rig.ask(25, None, b"maxMessageSize=9\n")).code == 1
        assert rig.services.settings.broker.broker_permission == 4
        sizes = [call[-1] for call in rig.fast_path.named("broker_changed")]
        told = {"permission": 4, "reject_transactions": False}
        assert sizes == [told | {"max_message_size": size} for size in (4_194_304, 1000)]
        assert rig.fast_path.named("store_settings_changed") == [{"fileReservedTime": "48"}, {"maxMessageSize": "1000"}]
        text = rig.settings.update_path.read_text()
        assert "brokerPermission=4" in text and "fileReservedTime=48" in text
        assert rig.services.topics.data_version.counter == 1
        answer = await rig.ask(26)
        assert b"brokerPermission=4\n" in (answer.body or b"")
        version = (answer.ext_fields or {})["version"]
        assert version.startswith('{"counter":2,"timestamp":')

    trio.run(main)


def test_a_change_is_logged_by_its_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Fault: The log line of a change had tuples of Python, `()` where it had no key."""
    caplog.set_level(logging.INFO)
    rig = SlowPathRig(tmp_path)
    assert trio.run(lambda: rig.ask(25, None, b"fileReservedTime=48\nbrokerPermission=4\n")).code == 0
    (line,) = [line for line in caplog.messages if line.startswith("configuration changed")]
    kinds = "in effect now: fileReservedTime, brokerPermission; at the next start: -; without effect: -"
    assert line == f"configuration changed; {kinds}"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"brokerConfigPath=/x", 16),
        (b"rocketmqHome=/x\nbrokerPermission=4", 16),
        (b"noSuchKey=1", 1),
        (b"brokerPermission=99", 1),
        (b"flushDiskType=SYNC_FLUSH", 16),
        (b"\xff", 1),
        (b"a=\\uZZZZ", 1),
        (b"brokerIP1=10.0.0.1\\nrocketmqHome=/x", 1),
        (b"brokerIP1=10.0.0.1\\r", 1),
        ("brokerIP1=10.0.0.1\u2028rocketmqHome=/x".encode(), 1),
        ("brokerIP1=10.0.0.1\x85".encode(), 1),
        (b"deleteWhen=" + b"9" * 5000, 1),
        (b"maxMessageSize=" + b"9" * 5000, 1),
        (b"maxMessageSize=" + "\u0664".encode(), 1),
        (b"x" * 100_000, 1),
    ],
)
def test_a_change_that_is_refused_changes_nothing(tmp_path: Path, body: bytes, code: int) -> None:
    """Holds: answer, settings and figures (25, 26, 28, 315); trap, updateBrokerConfig takes anything."""
    rig = SlowPathRig(tmp_path)
    assert trio.run(lambda: rig.ask(25, None, body)).code == code
    assert rig.services.settings.value is rig.settings and not rig.settings.update_path.exists()


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    """Fault: One of two simultaneous configuration changes could be lost."""
    rig = SlowPathRig(tmp_path)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for body in (b"brokerPermission=4", b"maxMessageSize=1000", b"fileReservedTime=48"):
                nursery.start_soon(rig.ask, 25, None, body)

    trio.run(main)
    settings = rig.services.settings
    assert (settings.broker.broker_permission, settings.store.max_message_size, settings.store.file_reserved_time) == (
        4,
        1000,
        48,
    )
    assert len(rig.settings.update_path.read_text().splitlines()) == 3


def test_a_file_that_somebody_has_damaged_is_left_as_it_is(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    path = rig.settings.update_path
    path.parent.mkdir(parents=True)
    for damage, reason in ((b"a=\\u12", "four hexadecimal digits"), (b"a=\xff", "not UTF-8")):
        path.write_bytes(damage)
        response = trio.run(lambda: rig.ask(25, None, b"brokerPermission=4"))
        assert response.code == 1 and reason in (response.remark or "") and str(path) in (response.remark or "")
        assert path.read_bytes() == damage and rig.services.settings.broker.broker_permission == 6


def test_stats_of_an_item(tmp_path: Path) -> None:
    """Holds: answer, settings and figures (25, 26, 28, 315); trap, rates of the first ten seconds and of unsampled
    items."""
    rig = SlowPathRig(tmp_path)
    traffic = Traffic(topic="T", queue_id=0, group="G", messages=30, bytes=900, requests=1, wait_ms=5)
    rig.broker.count_traffic(traffic)
    result_of(rig.services.stats.sample_minute())

    async def main() -> None:
        body = body_of(await rig.ask(315, {"statsName": "GROUP_GET_NUMS", "statsKey": "T@G"}))
        assert body["statsMinute"] == {"sum": 30, "tps": 3.0, "avgpt": 30.0}
        latency = body_of(await rig.ask(315, {"statsName": "GROUP_GET_LATENCY", "statsKey": "0@T@G"}))
        assert latency["statsMinute"]["avgpt"] == 5.0
        assert body["statsDay"] == {"sum": 0, "tps": 0.0, "avgpt": 0.0}
        missing = await rig.ask(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "none"})
        assert (missing.code, missing.remark) == (1, "The stats <TOPIC_PUT_NUMS> <none> not exist")

    trio.run(main)


def test_queues_of_topics_without_configuration_are_dropped(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    rig.services.topics.update(TopicConfig(topic_name="KNOWN"))
    for topic in ("KNOWN", "GONE", "RMQ_SYS_TRANS_HALF_TOPIC"):
        rig.store.fill(topic, 0, 1)
    assert trio.run(lambda: rig.ask(316)).code == 0
    assert rig.fast_path.named("delete_queues") == ["GONE"]


def test_expired_queues_are_dropped_by_the_store(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    assert trio.run(lambda: rig.ask(306)).code == 0
    assert rig.fast_path.named("clean_expired_queues") == [()]


def test_expired_log_files_are_deleted_when_asked_for(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    assert trio.run(lambda: rig.ask(329)).code == 0
    assert rig.store.delete_requests == 1


def test_which_frames_a_broker_speaks_on_the_replication_port(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    assert body_of(trio.run(lambda: rig.ask(30_001))) == {
        "version": REPLICATION_VERSION_LOWEST,
        "lowest": REPLICATION_VERSION_LOWEST,
        "highest": REPLICATION_VERSION,
    }


def test_the_state_of_replication_is_the_one_of_the_moment(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    for end in (7, 8):
        rig.broker.replication_status = lambda end=end: HaStatus(role="SYNC_MASTER", commit_log_max_offset=end)
        body = body_of(trio.run(lambda: rig.ask(907)))
        assert (body["role"], body["commitLogMaxOffset"], body["haConnectionInfo"]) == ("SYNC_MASTER", end, [])
