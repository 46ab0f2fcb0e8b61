"""disableConsumeIfConsumerReadSlowly: groups that read far behind the end of the log are switched off."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rocketpy.broker.pulling.backlog import ROWS_PER_STEP, SlowReaders
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig
from rocketpy.remoting.fast_path import Traffic
from tests.support.slow_path import SlowPathRig

THRESHOLD = 1000


def rig_of(path: Path, *, is_on: bool = True) -> SlowPathRig:
    return SlowPathRig(path, disable_consume_if_consumer_read_slowly=is_on, consumer_fallbehind_threshold=THRESHOLD)


def got(rig: SlowPathRig, group: str, behind_bytes: int, *, topic: str = "T", queue_id: int = 0) -> None:
    """The group got a message so far before the end of the log."""
    if rig.services.groups.select(group) is None:
        rig.services.groups.update(SubscriptionGroupConfig(group_name=group))
    rig.services.stats.count_traffic(
        Traffic(topic=topic, queue_id=queue_id, messages=1, bytes=1, requests=1, group=group, behind_bytes=behind_bytes)
    )


def look(rig: SlowPathRig) -> int:
    """Returns the number of steps."""
    services = rig.services
    return sum(1 for _ in SlowReaders(services.settings, services.groups, services.stats).switch_off_slow_groups())


def is_on(rig: SlowPathRig, group: str) -> bool:
    config = rig.services.groups.select(group)
    assert config is not None
    return config.consume_enable


def test_a_group_beyond_the_threshold_is_switched_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = rig_of(tmp_path)
    got(rig, "far", THRESHOLD + 1)
    got(rig, "near", THRESHOLD)
    version = rig.services.groups.data_version
    with caplog.at_level(logging.WARNING):
        look(rig)
        look(rig)
    assert not is_on(rig, "far") and is_on(rig, "near")
    [record] = caplog.records
    assert "switched off consumer group far: in topic T it reads 1001 bytes behind" in record.getMessage()
    assert "`mqadmin updateSubGroup -c DefaultCluster -g far -s true`" in record.getMessage()
    assert rig.services.groups.data_version != version, "it is saved, and registered"


def test_the_queue_that_is_furthest_behind_counts(tmp_path: Path) -> None:
    rig = rig_of(tmp_path)
    got(rig, "far", THRESHOLD + 1, queue_id=1)
    got(rig, "far", 0, queue_id=0)
    look(rig)
    assert not is_on(rig, "far")


def test_a_group_that_caught_up_and_was_switched_on_stays_on(tmp_path: Path) -> None:
    rig = rig_of(tmp_path)
    got(rig, "far", THRESHOLD + 1)
    look(rig)
    rig.services.groups.update(SubscriptionGroupConfig(group_name="far"))
    got(rig, "far", 10)
    look(rig)
    assert is_on(rig, "far")


def test_nothing_happens_unless_it_is_asked_for(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, is_on=False)
    got(rig, "far", THRESHOLD + 1)
    look(rig)
    assert is_on(rig, "far")


def test_groups_that_are_gone_are_passed_over_and_many_take_several_steps(tmp_path: Path) -> None:
    rig = rig_of(tmp_path)
    for number in range(ROWS_PER_STEP * 2):
        got(rig, f"g{number}", THRESHOLD + 1)
    rig.services.groups.delete("g0")
    assert look(rig) == 2
    assert rig.services.groups.select("g0") is None and not is_on(rig, f"g{ROWS_PER_STEP * 2 - 1}")
