"""Filter bits: RocketMQ's own broker (4.9.7) and ours write the same ones, byte by byte, and each reads the other's."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from rocketpy.filter.bloom import BloomFilter
from rocketpy.filter.evaluate import EvaluationError, evaluate
from rocketpy.filter.parser import parse
from rocketpy.store.files import file_name
from rocketpy.store.formats.consume_queue_ext import EXT_UNIT, real_offset
from rocketpy.store.inspection.dump import StoreDump
from tests.interop.brokers import AnyBroker, running_target
from tests.support.filtered_pulls import FilteredGroup, put
from tests.support.wire import Wire

TOPIC = "Filtered"
EXT_FILE_SIZE = 4096
BITS = 112
SETTINGS = {
    "enablePropertyFilter": "true",
    "enableCalcFilterBitMap": "true",
    "enableConsumeQueueExt": "true",
    "mappedFileSizeConsumeQueueExt": str(EXT_FILE_SIZE),
}
EXPRESSIONS = {  # by group
    "Sevens": "mod = 7",
    "Late": "n > 12 AND NOT (mod BETWEEN 3 AND 5)",
    "Everything": "missing IS NULL",
    "Same": "n = mod",
    "Never": "n < 0",
    "Unknown": "missing > 3",
    "Fault": "TRUE = n",
}
UNKNOWN, KNOWN, LEFT = 5, 180, 15  # messages before the subscriptions, with them, and behind the groups
TOTAL = UNKNOWN + KNOWN + LEFT
BORN_LATER_S = 1.2  # bits count in Java for messages stored behind bornTime


def matches(expression: str, n: int) -> bool:
    try:
        return evaluate(parse(expression), {"n": str(n), "mod": str(n % 10)}) is True
    except EvaluationError:
        return False


def numbers(group: str, end: int = TOTAL) -> list[int]:
    return [n for n in range(end) if matches(EXPRESSIONS[group], n)]


def groups_of(wire: Wire) -> list[FilteredGroup]:
    return [FilteredGroup(wire, TOPIC, expression, group=group) for group, expression in EXPRESSIONS.items()]


def fill(broker: AnyBroker) -> None:
    """The groups come, and leave before the last messages: their bits go on."""
    with Wire.open(broker.port) as wire:
        put(wire, TOPIC, 0, UNKNOWN)
        groups = groups_of(wire)
        for group in groups:
            group.join()
        put(wire, TOPIC, UNKNOWN, KNOWN)
        for group in groups:
            group.leave()
        put(wire, TOPIC, UNKNOWN + KNOWN, LEFT)
    broker.stop()


def extension_files(store: Path) -> dict[str, bytes]:
    """The files of the queue, without the times at which messages were stored."""
    found = {}
    for path in sorted((store / "consumequeue_ext" / TOPIC / "0").iterdir()):
        data, at = bytearray(path.read_bytes()), 0
        while (size := int.from_bytes(data[at : at + 2], "big", signed=True)) > 0:
            data[at + 10 : at + 18] = bytes(8)
            at += size
        found[path.name] = bytes(data)
    return found


def filter_lines(store: Path) -> list[str]:
    """Lines of consumerFilter.json without times and without the order of its tables, which is that of a hash map."""
    text = (store / "config" / "consumerFilter.json").read_text()
    text, count = re.subn(r'("(?:bornTime|deadTime)":)\d+', r"\1TIME", text)
    assert count == 2 * len(EXPRESSIONS)
    return sorted(line.rstrip(",") for line in text.splitlines())


def test_both_brokers_write_the_same_bytes(tmp_path: Path) -> None:
    """Holds: filter, bit maps that spare evaluating SQL."""
    for target in ("java", "rocketpy"):
        with running_target(target, settings=SETTINGS, store=tmp_path / target) as broker:
            fill(broker)
    java, ours = extension_files(tmp_path / "java"), extension_files(tmp_path / "rocketpy")
    assert len(java) > 1 and ours == java
    assert filter_lines(tmp_path / "rocketpy") == filter_lines(tmp_path / "java")
    bloom, dump = BloomFilter.of(20, 32), StoreDump(tmp_path / "java")
    (queue,) = [queue for queue in dump.queues(TOPIC) if queue.queue_id == 0]
    for n, unit in dump.units(queue):
        extension = dump.ext_unit(queue, unit)
        assert extension is not None
        found = {bit for bit in range(8 * len(extension.bitmap)) if extension.bitmap[bit // 8] >> bit % 8 & 1}
        wanted = {g for g, expression in EXPRESSIONS.items() if n >= UNKNOWN and matches(expression, n)}
        assert found == {bit for group in wanted for bit in bloom.positions(group, TOPIC)}, n
        assert len(extension.bitmap) == (BITS // 8 if n >= UNKNOWN else 0)


@pytest.mark.parametrize(("writer", "reader"), [("java", "rocketpy"), ("rocketpy", "java")])
def test_each_broker_goes_on_with_the_other_ones_store(tmp_path: Path, writer: str, reader: str) -> None:
    store, more = tmp_path / "store", 30
    with running_target(writer, settings=SETTINGS, store=store) as broker:
        fill(broker)
    with running_target(reader, settings=SETTINGS, store=store) as broker, Wire.open(broker.port) as wire:
        for group in groups_of(wire):
            group.join()
            assert group.get(TOTAL) == numbers(group.group)
        put(wire, TOPIC, TOTAL, more)
        for group in groups_of(wire):
            assert group.get(TOTAL + more) == numbers(group.group, TOTAL + more)
        broker.stop()
    assert StoreDump(store).verify().problems == []


def clear_bits(store: Path, n: int) -> None:
    """As if message n matched no subscription."""
    dump = StoreDump(store)
    (queue,) = [queue for queue in dump.queues(TOPIC) if queue.queue_id == 0]
    unit = next(unit for offset, unit in dump.units(queue) if offset == n)
    number, at = divmod(real_offset(unit.tags_code), EXT_FILE_SIZE)
    path = store / "consumequeue_ext" / TOPIC / "0" / file_name(number * EXT_FILE_SIZE)
    with path.open("r+b") as file:
        file.seek(at + EXT_UNIT.size)
        file.write(bytes(BITS // 8))


def test_java_relies_on_our_bits(tmp_path: Path) -> None:
    """A message whose bits are cleared on the disk is lost for its group, and no other: Java looks at each of them.
    Holds: filter, bit maps that spare evaluating SQL."""
    store, lost = tmp_path / "store", 27
    with running_target("rocketpy", settings=SETTINGS, store=store) as broker:
        with Wire.open(broker.port) as wire:
            put(wire, TOPIC, 0, UNKNOWN)
            for group in groups_of(wire):
                group.join()
            time.sleep(BORN_LATER_S)
            put(wire, TOPIC, UNKNOWN, TOTAL - UNKNOWN)
        broker.stop()
    clear_bits(store, lost)
    with running_target("java", settings=SETTINGS, store=store) as broker, Wire.open(broker.port) as wire:
        for group in groups_of(wire):
            group.join()
            assert group.get(TOTAL) == [n for n in numbers(group.group) if n != lost]
