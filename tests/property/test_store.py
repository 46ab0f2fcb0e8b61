"""The store against a dict: whatever is put, dispatched, restarted, killed or lost, reads give what the dict gives."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import attrs
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rocketpy.message.record import decode_record
from rocketpy.message.tags import string_hash
from rocketpy.store.inspection.dump import StoreDump
from rocketpy.store.reading.get_message import GetMessageStatus
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import close_store, open_store
from tests.support.budget import budget
from tests.support.store_writer import StoreWriter, small_config

Key = tuple[str, int]
TOPICS = st.sampled_from(["A", "B%DLQ%", "订单"])
QUEUE_IDS = st.sampled_from([0, 1, 1023])
TAGS = st.sampled_from(["", "a", "b"])
SIZES = st.integers(0, 9_000)


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="rocketpy-store-"))
        self.config = small_config(self.root / "store", mapped_file_size_consume_queue_ext=1_024)
        self.model: dict[Key, list[tuple[bytes, str]]] = {}  # (image, tag) by offset
        self.shown: dict[Key, int] = {}  # how many of them are dispatched
        self.open()

    def open(self) -> None:
        self.opened = open_store(self.config)
        self.writer = StoreWriter(self.config, self.opened.control)
        self.store = MessageStore(self.config, self.opened.control)
        shown = {key: self.store.max_offset(*key) for key in self.model}
        is_left = self.opened.report.dispatched_to < self.opened.report.log_end
        for key, images in self.model.items():  # what is left to dispatch hides nothing that was to be seen before
            assert shown[key] >= self.shown.get(key, 0) if is_left else shown[key] == len(images)
        self.shown = shown

    def shut(self, *, clean: bool) -> None:
        self.store.close()
        self.writer.close()
        close_store(self.opened, clean=clean)

    def teardown(self) -> None:
        self.shut(clean=True)
        assert StoreDump(self.root / "store").verify().problems == []
        shutil.rmtree(self.root)

    @rule(topic=TOPICS, queue_id=QUEUE_IDS, tag=TAGS, size=SIZES, count=st.integers(1, 30))
    def put(self, topic: str, queue_id: int, tag: str, size: int, count: int) -> None:
        properties = b"TAGS\x01" + tag.encode() if tag else b""
        images = self.model.setdefault((topic, queue_id), [])
        for _ in range(count):
            put = self.writer.put(topic, queue_id, bytes(size // count), properties, dispatch=False)
            assert put.queue_offset == len(images)
            images.append((put.image, tag))

    @rule()
    def dispatch(self) -> None:
        self.writer.dispatch.run_to_end()
        self.shown = {key: len(images) for key, images in self.model.items()}

    @rule(clean=st.booleans(), is_extended=st.booleans())
    def restart(self, clean: bool, is_extended: bool) -> None:
        self.shut(clean=clean)
        self.config = attrs.evolve(self.config, enable_consume_queue_ext=is_extended)
        self.open()

    @rule(clean=st.booleans(), units=st.booleans())
    def lose_what_can_be_rebuilt(self, clean: bool, units: bool) -> None:
        self.shut(clean=clean)
        self.opened.paths.control.unlink()
        if units:
            shutil.rmtree(self.opened.paths.consumequeue)
        self.open()

    @precondition(lambda self: bool(self.model))
    @rule(data=st.data(), wanted=st.sampled_from([None, "a", "b"]), count=st.integers(1, 40))
    def get(self, data: st.DataObject, wanted: str | None, count: int) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        shown = self.shown.get(key, 0)
        offset = data.draw(st.integers(0, shown + 2))
        hashes = None if wanted is None else {string_hash(wanted)}
        result = self.store.get_message(*key, offset, count, hashes)
        assert result.max_offset == shown
        expected = [image for image, tag in self.model[key][offset : result.next_begin_offset] if wanted in (None, tag)]
        if offset < shown:
            assert offset < result.next_begin_offset <= shown
            assert result.records == expected and len(expected) <= count
            assert (result.status is GetMessageStatus.FOUND) == bool(expected)
        else:
            assert result.records == []

    @precondition(lambda self: any(self.shown.values()))
    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(key for key, shown in self.shown.items() if shown)))
        offset = data.draw(st.integers(0, self.shown[key] - 1))
        image = self.model[key][offset][0]
        record = decode_record(image)
        assert record is not None and self.store.look_message_by_offset(record.phy_offset) == image
        (unit,) = self.store.consume_queue_units(*key, offset, 1)
        assert (unit.phy_offset, unit.size) == (record.phy_offset, len(image))

    @invariant()
    def positions_are_in_order(self) -> None:
        statistics = self.store.statistics()
        assert statistics.min_phy_offset <= statistics.dispatched_phy_offset <= statistics.published_phy_offset
        for key, images in self.model.items():
            assert 0 <= self.store.max_offset(*key) <= len(images)


StoreMachine.TestCase.settings = settings(
    max_examples=budget(8, 40),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
TestStore = StoreMachine.TestCase
