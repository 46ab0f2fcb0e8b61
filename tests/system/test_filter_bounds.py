"""SQL92 subscriptions beyond their bounds: many of one topic, and messages that take long to evaluate. Each group gets
exactly its messages all the same."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import ResponseCode
from rocketpy.store.inspection.dump import StoreDump
from tests.support.broker import running_broker
from tests.support.filtered_pulls import FilteredGroup, put
from tests.support.wire import Wire, max_offset, pull_request, send_request, until

TOPIC = "Filtered"
WITH_BITS = {
    "enablePropertyFilter": "true",
    "enableCalcFilterBitMap": "true",
    "enableConsumeQueueExt": "true",
}
GROUPS_MAX = 128  # RP_TOPIC_FILTERS_MAX
EVALUATED_MAX = 1 << 18  # RP_TOPIC_FILTERS_WORK_MAX: bytes looked at for the bits of one message
PULL_WORK_MAX = 1 << 20  # RP_FETCH_WORK_MAX: bytes looked at by one pull
LARGE = 30_000  # characters of a property
ALL, NONE = b"\xff" * 14, b"\0" * 14


def put_large(wire: Wire, first: int, count: int) -> None:
    """Messages with a large property behind n and mod."""
    for n in range(first, first + count):
        properties = f"n\x01{n}\x02mod\x01{n % 10}\x02large\x01{'x' * LARGE}\x02"
        assert wire.ask(send_request(TOPIC, b"%d" % n, properties=properties)).code == ResponseCode.SUCCESS
    until(lambda: max_offset(wire, TOPIC) == first + count, "dispatch")


def bits_of(store: Path) -> list[bytes]:
    dump = StoreDump(store)
    (queue,) = [queue for queue in dump.queues(TOPIC) if queue.queue_id == 0]
    extensions = [dump.ext_unit(queue, unit) for _, unit in dump.units(queue)]
    assert None not in extensions
    return [extension.bitmap for extension in extensions if extension is not None]


@pytest.mark.parametrize("beyond", [0, 1])
def test_with_more_groups_than_are_evaluated_all_bits_are_set(tmp_path: Path, beyond: int) -> None:
    """Holds: filter, bit maps that spare evaluating SQL."""
    with running_broker(WITH_BITS, store=tmp_path / "store") as broker:
        with Wire.open(broker.port) as wire:
            put(wire, TOPIC, 0, 1)
            groups = [
                FilteredGroup(wire, TOPIC, f"mod = {number % 10} AND n > 10", group=f"Group{number}")
                for number in range(GROUPS_MAX + beyond)
            ]
            for group in groups:
                group.join()
            put(wire, TOPIC, 1, 30)
            for number in (0, 9, 64, GROUPS_MAX + beyond - 1):
                assert groups[number].get(31) == [n for n in range(11, 31) if n % 10 == number % 10]
        assert broker.stop() == 0
        bits = bits_of(broker.store)
    assert bits[0] == b""
    if beyond:
        assert set(bits[1:]) == {ALL}
    else:
        assert set(bits[1:11]) == {NONE} and not {ALL, NONE} & set(bits[11:])


def test_a_message_that_takes_too_long_to_evaluate_has_all_bits(tmp_path: Path) -> None:
    enough = EVALUATED_MAX // LARGE + 1  # of groups
    with running_broker(WITH_BITS, store=tmp_path / "store") as broker:
        with Wire.open(broker.port) as wire:
            put(wire, TOPIC, 0, 1)
            groups = [FilteredGroup(wire, TOPIC, f"mod = {number}", group=f"Group{number}") for number in range(enough)]
            for group in groups[:-2]:
                group.join()
            put_large(wire, 1, 20)
            for group in groups:
                group.join()
            put_large(wire, 21, 20)
            put(wire, TOPIC, 41, 10)  # small ones are evaluated again
            for number, group in enumerate(groups):
                assert group.get(51) == [n for n in range(51) if n % 10 == number]
        assert broker.stop() == 0
        bits = bits_of(broker.store)
    assert ALL not in bits[:21]
    assert set(bits[21:41]) == {ALL}
    assert ALL not in bits[41:]


def test_a_pull_ends_before_it_takes_too_long(tmp_path: Path) -> None:
    """It is answered 20, with the offset where the next one goes on. Other clients are served between the two."""
    count = 100
    with running_broker({"enablePropertyFilter": "true"}, store=tmp_path / "store") as broker:
        with Wire.open(broker.port) as wire, Wire.open(broker.port) as other:
            put_large(wire, 0, count)
            group = FilteredGroup(wire, TOPIC, "n < 0")
            group.join()
            looks, at = 0, 0
            while at < count:
                answer = wire.ask(group.request(at))
                assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
                passed = int((answer.ext_fields or {})["nextBeginOffset"]) - at
                assert 0 < passed <= PULL_WORK_MAX // LARGE + 1
                at, looks = at + passed, looks + 1
                assert other.ask(pull_request(TOPIC, 0, group="Other")).code == ResponseCode.SUCCESS
            assert looks >= count * LARGE // PULL_WORK_MAX
        assert broker.stop() == 0


def test_a_pull_passes_over_nothing_that_it_cannot_read(tmp_path: Path) -> None:
    """A pull worker without a descriptor for the next log file refuses pulls, suspended ones too, until it has one.
    Fault: A filtered pull skipped messages whose log file could not be mapped for a moment."""
    settings = {"enablePropertyFilter": "true", "mappedFileSizeCommitLog": str(1 << 20), "maxMessageSize": "600000"}
    with running_broker(settings, store=tmp_path / "store") as broker:
        with Wire.open(broker.port) as wire, Wire.open(broker.port) as producer:
            put(producer, TOPIC, 0, 2)
            group = FilteredGroup(wire, TOPIC, "n >= 0")
            group.join()
            assert group.get(2) == [0, 1]
            (waiting,) = wire.tell(group.request(2, hold_ms=60_000))
            pulls = [pid for name, pid in broker.workers().items() if name.startswith("pull")]
            before = resource.prlimit(pulls[0], resource.RLIMIT_NOFILE)
            for pid in pulls:
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, before[1]))
            filler = send_request("Filler", b"x" * (1 << 19))
            for _ in range(3):
                assert producer.ask(filler).code == ResponseCode.SUCCESS
            put(producer, TOPIC, 2, 1)  # in the second or third log file
            answer = wire.answers([waiting])[waiting]
            assert answer.code == ResponseCode.SYSTEM_ERROR and "cannot read its CommitLog" in (answer.remark or "")
            assert (answer.ext_fields or {})["nextBeginOffset"] == "2"
            assert wire.ask(group.request(2)).code == ResponseCode.SYSTEM_ERROR
            for pid in pulls:
                resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            assert group.get(3, begin=2) == [2]
        assert broker.stop() == 0
