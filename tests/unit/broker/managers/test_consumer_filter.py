"""SQL92 subscriptions: born, changed, dead, alive again, and in the reference's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from rocketpy.broker.managers import consumer_filter
from rocketpy.broker.managers.consumer_filter import MARKS, ConsumerFilterManager
from rocketpy.filter.bloom import BloomFilter
from rocketpy.remoting.bodies.client import SubscriptionData
from rocketpy.remoting.bodies.group import ConsumerFilterData
from rocketpy.transport.steps import finished
from tests.support.slow_path import SlowPathRig

BITS = {"enable_property_filter": True, "enable_calc_filter_bit_map": True, "enable_consume_queue_ext": True}


def rig_of(root: Path, **settings: Any) -> tuple[SlowPathRig, ConsumerFilterManager]:
    rig = SlowPathRig(root, **(BITS | settings))
    rig.clock.wall_ms = 1_700_000_000_000
    return rig, rig.services.filters


def subscriptions(version: int = 1, **expressions: str) -> dict[str, SubscriptionData]:
    return {
        topic: SubscriptionData(topic=topic, sub_string=text, expression_type="SQL92", sub_version=version)
        for topic, text in expressions.items()
    }


def found(filters: ConsumerFilterManager, topic: str = "T") -> ConsumerFilterData:
    data = filters.find("G", topic)
    assert data is not None
    return data


def test_a_subscription_is_born_with_its_filter_bits(tmp_path: Path) -> None:
    rig, filters = rig_of(tmp_path)
    filters.register("G", subscriptions(T="a > 1", U="a > 2"))
    data = found(filters)
    assert (data.expression, data.client_version, data.is_dead) == ("a > 1", 1, False)
    assert data.born_time > rig.clock.now_ms()  # the store worker knows it by then
    bits = data.bloom_filter_data
    assert bits is not None and tuple(bits.bit_pos) == BloomFilter.of(20, 32).positions("G", "T")
    told = rig.fast_path.named("filter_changed")
    assert [(group, topic) for group, topic, _ in told] == [("G", "T"), ("G", "U")]
    assert told[0][2]["place"].mark != told[1][2]["place"].mark
    assert filters.place("G", subscriptions(T="a > 1")["T"]) == told[0][2]["place"]
    assert filters.place("G", subscriptions(T="a > 9")["T"]) is None


@pytest.mark.parametrize(
    ("version", "text", "expected"),
    [
        (1, "a > 9", ("a > 1", 2)),  # older
        (2, "a > 9", ("a > 1", 2)),  # as old
        (3, "a > 1", ("a > 1", 3)),
        (3, "a > 9", ("a > 9", 3)),
    ],
)
def test_a_newer_version_counts(tmp_path: Path, version: int, text: str, expected: tuple[str, int]) -> None:
    rig, filters = rig_of(tmp_path)
    filters.register("G", subscriptions(2, T="a > 1"))
    before = filters.place("G", subscriptions(T="a > 1")["T"])
    filters.register("G", subscriptions(version, T=text))
    assert (found(filters).expression, found(filters).client_version) == expected
    is_new = expected[0] != "a > 1"
    assert [call for call, _ in rig.fast_path.calls].count("filter_removed") == is_new
    after = filters.place("G", subscriptions(T=expected[0])["T"])
    assert before is not None and after is not None and (after.id != before.id) is is_new


def test_a_newer_text_that_does_not_compile_removes_the_filter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig, filters = rig_of(tmp_path)
    filters.register("G", subscriptions(1, T="a > 1"))
    filters.register("G", subscriptions(2, T="a LIKE 'x'"))
    assert filters.find("G", "T") is None
    assert rig.fast_path.named("filter_removed") == [("G", "T")]
    assert "group G cannot filter topic T by SQL92: character 3: 'LIKE' does not fit" in caplog.text


def test_dead_and_alive_again(tmp_path: Path) -> None:
    rig, filters = rig_of(tmp_path)
    filters.register("G", subscriptions(1, T="a > 1", U="a > 2"))
    rig.clock.wall_ms += 5_000
    filters.register("G", subscriptions(1, T="a > 1"))
    assert found(filters, "U").is_dead and not found(filters).is_dead
    filters.unregister("G")
    assert found(filters).is_dead and found(filters).dead_time == rig.clock.now_ms()
    assert rig.fast_path.named("filter_removed") == []  # its bits go on
    filters.register("G", subscriptions(1, T="a > 1"))
    assert not found(filters).is_dead


def test_the_old_dead_are_dropped(tmp_path: Path) -> None:
    rig, filters = rig_of(tmp_path, filter_data_clean_time_span=10_000)
    filters.register("G", subscriptions(1, T="a > 1", U="a > 2"))
    rig.clock.wall_ms += 2_000
    filters.unregister("G")
    filters.register("G", subscriptions(1, U="a > 2"))
    rig.clock.wall_ms += 10_000
    trio.run(lambda: finished(filters.clean()))
    assert filters.find("G", "T") is not None
    rig.clock.wall_ms += 1
    trio.run(lambda: finished(filters.clean()))
    assert filters.find("G", "T") is None and not found(filters, "U").is_dead


def test_the_file_is_the_references(tmp_path: Path) -> None:
    rig, filters = rig_of(tmp_path)
    filters.register("G", subscriptions(7, T="a > 1"))
    trio.run(filters.file.save)
    document = json.loads(filters.file.path.read_text())
    born = rig.clock.now_ms() + 1_000
    assert document == {
        "filterDataByTopic": {
            "T": {
                "groupFilterData": {
                    "G": {
                        "bloomFilterData": {"bitNum": 112, "bitPos": list(BloomFilter.of(20, 32).positions("G", "T"))},
                        "bornTime": born,
                        "clientVersion": 7,
                        "consumerGroup": "G",
                        "dead": False,
                        "deadTime": 0,
                        "expression": "a > 1",
                        "expressionType": "SQL92",
                        "topic": "T",
                    }
                },
                "topic": "T",
            }
        }
    }
    rig, filters = rig_of(tmp_path)
    rig.clock.wall_ms = born + 100_000
    filters.load()
    assert found(filters).dead_time == born + 70_000  # live until 30 s before the start
    assert len(rig.fast_path.named("filter_changed")) == 1
    filters.register("G", subscriptions(7, T="a > 1"))
    assert not found(filters).is_dead and found(filters).born_time == born


def test_filters_with_bits_of_another_size_are_dropped_at_the_start(tmp_path: Path) -> None:
    _, filters = rig_of(tmp_path)
    filters.register("G", subscriptions(T="a > 1"))
    trio.run(filters.file.save)
    rig, filters = rig_of(tmp_path, expect_consumer_num_use_filter=64)
    filters.load()
    assert filters.find("G", "T") is None and rig.fast_path.named("filter_changed") == []


def test_without_filter_bits_the_store_is_told_nothing(tmp_path: Path) -> None:
    rig, filters = rig_of(tmp_path, enable_calc_filter_bit_map=False)
    filters.register("G", subscriptions(T="a > 1"))
    assert rig.fast_path.named("filter_changed") == []
    assert found(filters).born_time == rig.clock.now_ms()
    assert filters.place("G", subscriptions(T="a > 1")["T"]) is None


def test_the_number_of_filters_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_filter, "FILTERS_MAX", 3)
    _, filters = rig_of(tmp_path)
    for group in ("A", "B", "C"):
        filters.register(group, subscriptions(T="a > 1"))
    filters.register("D", subscriptions(T="a > 1"))
    assert filters.find("D", "T") is None
    filters.unregister("B")
    filters.register("D", subscriptions(2, T="a > 1"))
    assert filters.find("D", "T") is not None and filters.find("B", "T") is None


def test_the_number_of_marks_is_that_of_the_compiled_core() -> None:
    core = pytest.importorskip("rocketpy.native.core", exc_type=ImportError)
    assert core.lib.RP_FILTER_MARKS == MARKS


def test_tag_subscriptions_are_none_of_its_business(tmp_path: Path) -> None:
    _, filters = rig_of(tmp_path)
    filters.register("G", {"T": SubscriptionData(topic="T", sub_string="A || B")})
    assert filters.find("G", "T") is None and not filters.file.is_dirty
