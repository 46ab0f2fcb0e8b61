"""Statistics by name (315) and code 28 after the same load: rocketpy shows what the reference does.

Run it with ROCKETPY_INTEROP_TARGET=java to see the expectations hold for the official broker.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from rocketpy.remoting.command import RemotingCommand
from tests.interop.brokers import AnyBroker, NameMaker, wait_until
from tests.support.wire import Wire, max_offset, pull_request, records_of, send_request

MESSAGES, BODY = 30, b"x" * 100
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LEVEL_1 = "DELAY\x011\x02"
RATES = ("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferedTps")
WHOLE_NUMBERS = (
    "putMessageTimesTotal", "putMessageSizeTotal", "putMessageFailedTimes", "msgPutTotalTodayNow",
    "msgGetTotalTodayNow",
    "sendThreadPoolQueueSize", "sendThreadPoolQueueCapacity", "pullThreadPoolQueueSize", "pullThreadPoolQueueCapacity",
    "queryThreadPoolQueueSize", "queryThreadPoolQueueCapacity", "EndTransactionQueueSize",
    "EndTransactionThreadPoolQueueCapacity", "pageCacheLockTimeMills", "dispatchBehindBytes", "dispatchMaxBuffer",
    "sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueHeadWaitTimeMills", "getMessageEntireTimeMax", "putMessageEntireTimeMax", "bootTimestamp",
    "startAcceptSendRequestTimeStamp", "earliestMessageTimeStamp", "remainTransientStoreBufferNumbs",
    "commitLogMinOffset", "commitLogMaxOffset", "msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning",
    "msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning",
)  # fmt: skip


def minute(wire: Wire, name: str, key: str) -> dict[str, Any] | None:
    answer = wire.ask(RemotingCommand.request(315, ext_fields={"statsName": name, "statsKey": key}))
    return json.loads(answer.body or b"{}")["statsMinute"] if answer.code == 0 else None


def sums(wire: Wire, keys: list[tuple[str, str]]) -> dict[tuple[str, str], int | None]:
    found = {key: minute(wire, *key) for key in keys}
    return {key: value and value["sum"] for key, value in found.items()}


@pytest.fixture(scope="module")
def loaded(broker: AnyBroker, names: NameMaker) -> tuple[str, str, int]:
    """A topic with messages of known size, a group that has pulled some of them and committed nothing."""
    topic, group = names("counted"), names("reader")
    with Wire.open(broker.port) as wire:
        for _ in range(MESSAGES):
            assert wire.ask(send_request(topic, BODY)).code == 0
        wait_until(lambda: max_offset(wire, topic) == MESSAGES, "dispatch")
        record = records_of(wire.ask(pull_request(topic, 0, group=group, count=1)))[0]
        assert len(records_of(wire.ask(pull_request(topic, 1, group=group, count=20)))) == 20
        assert wire.ask(send_request(topic, BODY, properties=LEVEL_1)).code == 0
        wait_until(lambda: max_offset(wire, topic) == MESSAGES + 1, "delivery")
    return topic, group, record.size


def test_sums_of_the_last_minute(broker: AnyBroker, loaded: tuple[str, str, int]) -> None:
    """Holds: admin, statistics, metrics and alarms."""
    topic, group, size = loaded
    expected = {
        ("TOPIC_PUT_NUMS", topic): MESSAGES + 1,  # with the delivered one
        ("GROUP_GET_NUMS", f"{topic}@{group}"): 21,
        ("GROUP_GET_SIZE", f"{topic}@{group}"): 21 * size,
        ("TOPIC_PUT_NUMS", SCHEDULE): 1,
        ("QUEUE_PUT_NUMS", f"{SCHEDULE}@0"): 1,
        ("QUEUE_GET_NUMS", f"{SCHEDULE}@0@SCHEDULE_CONSUMER"): 1,
        ("GROUP_GET_NUMS", f"{SCHEDULE}@SCHEDULE_CONSUMER"): 1,
    }
    with Wire.open(broker.port) as wire:
        wait_until(lambda: sums(wire, list(expected)) == expected, f"sums, not {sums(wire, list(expected))}")
        put_size = minute(wire, "TOPIC_PUT_SIZE", topic)
        assert put_size is not None and MESSAGES * size < put_size["sum"] < (MESSAGES + 2) * size
        got = minute(wire, "GROUP_GET_NUMS", f"{topic}@{group}")
        assert got is not None and got["avgpt"] == 10.5 and got["tps"] > 0
        check_rates(wire, [key for key in expected if key[0] in ("TOPIC_PUT_NUMS", "GROUP_GET_NUMS", "GROUP_GET_SIZE")])
        latency = minute(wire, "GROUP_GET_LATENCY", f"0@{topic}@{group}")
        assert latency is not None and latency["sum"] >= 0
        assert minute(wire, "BROKER_PUT_NUMS", "DefaultCluster") is not None
        assert minute(wire, "GROUP_GET_NUMS", f"{topic}@nobody") is None


def check_rates(wire: Wire, keys: list[tuple[str, str]]) -> None:
    """A rate is the sum by the time between the first and the last sample of the minute; one is taken every 10 s. A
    machine under load takes them late, so the bounds are wide: they tell seconds from minutes and milliseconds."""
    for key in keys:
        found = minute(wire, *key)
        assert found is not None and found["tps"] > 0, key
        assert 5 < found["sum"] / found["tps"] < 150, (key, found)


def test_every_key_of_code_28_has_the_form_that_exporters_read(broker: AnyBroker, loaded: tuple[str, str, int]) -> None:
    with Wire.open(broker.port) as wire:
        begin_s = time.monotonic()
        while True:
            table = json.loads(wire.ask(RemotingCommand.request(28)).body or b"{}")["table"]
            if all(table[key].split() for key in RATES) or time.monotonic() - begin_s > 30:
                break
            time.sleep(0.5)
    assert all(float(word) >= 0 for key in RATES for word in table[key].split())
    assert all(table[key].lstrip("-").isdigit() for key in WHOLE_NUMBERS), [
        (key, table[key]) for key in WHOLE_NUMBERS if not table[key].lstrip("-").isdigit()
    ]
    assert int(table["putMessageTimesTotal"]) >= MESSAGES + 2 and int(table["msgGetTotalTodayNow"]) >= 21
    assert float(table["putMessageAverageSize"]) > len(BODY)
    assert table["commitLogDirCapacity"].startswith("Total : ") and table["commitLogDirCapacity"].endswith(".")
    assert table["remainHowManyDataToFlush"].split()[1] in ("B", "KiB", "MiB")
