"""What was put into a store, and what a store that opens after a crash must therefore be.

log      from its beginning to its end exactly the bytes that were put, in their order, zero behind; nothing that
         was kept for certain (`Bounds`) is missing; of what was on its way whole records may be there
queues   for each message in the log its unit, in its place; offsets go on without hole or repetition
reads    every message of every queue comes back; a key finds its message, wherever the index cannot have lost it
"""

from __future__ import annotations

from pathlib import Path

import attrs

from rocketpy.config import MessageStoreConfig
from rocketpy.message.record import encode_blank
from rocketpy.remoting.work import result_of
from rocketpy.store.control_block import ControlBlock
from rocketpy.store.files import DiskFiles, StorePaths
from rocketpy.store.formats.consume_queue_ext import is_ext_address, read_ext_unit, real_offset
from rocketpy.store.formats.unit import CQ_STORE_UNIT_SIZE, CQ_UNIT, ConsumeQueueUnit
from rocketpy.store.inspection.dump import StoreDump
from rocketpy.store.reading.message_store import MessageStore
from tests.support.store_writer import small_config

NO_OFFSET = -1
KEYS_LOOKED_UP = 4
EXTENDED = "extended-"
UNINDEXED = "unindexed-"
EXT_FILE_SIZE = 1_024  # of extension units: files roll after 51
Key = tuple[str, int]


def life_config(root: Path) -> MessageStoreConfig:
    """Of the store at `root`. The name of the directory above says what else its life has, or lacks."""
    name = root.parent.name
    return small_config(
        root,
        enable_consume_queue_ext=EXTENDED in name,
        mapped_file_size_consume_queue_ext=EXT_FILE_SIZE,
        message_index_enable=UNINDEXED not in name,
    )


@attrs.frozen
class Put:
    """A message; `queue_offset` is NO_OFFSET where it gets no unit."""

    phy_offset: int
    image: bytes
    key: Key
    queue_offset: int
    tags_code: int
    message_keys: tuple[str, ...]
    store_timestamp_ms: int

    @property
    def end(self) -> int:
        return self.phy_offset + len(self.image)


@attrs.frozen
class Bounds:
    """What must be there: records between `begin` and `end`."""

    begin: int
    end: int


@attrs.define
class Model:
    """Everything put so far, in the log's order, and what is on its way."""

    file_size: int
    queue_file_size: int
    puts: list[Put] = attrs.field(factory=list)
    on_their_way: list[Put] = attrs.field(factory=list)
    dropped: dict[Key, int] = attrs.field(factory=dict)  # queues that were removed, and where the log ended then
    unsynced: set[Key] = attrs.field(factory=set)  # those whose removal is not on the disk yet
    came_back: set[Key] = attrs.field(factory=set)  # those that an ending found so: their files may be there in part
    lost_begin: set[Key] = attrs.field(factory=set)  # queues with messages in a first log file whose name was lost

    def copy(self) -> Model:
        return attrs.evolve(
            self,
            puts=[*self.puts],
            on_their_way=[*self.on_their_way],
            dropped=dict(self.dropped),
            unsynced=set(self.unsynced),
            came_back=set(self.came_back),
            lost_begin=set(self.lost_begin),
        )

    def cut(self, end: int) -> None:
        """What is not in the log now never was."""
        puts = [put for put in [*self.puts, *self.on_their_way] if put.end <= end]
        self.puts, self.on_their_way = puts, []
        self.dropped = {key: min(at, end) for key, at in self.dropped.items()}
        self.came_back |= self.unsynced
        self.unsynced = set()

    def lives(self) -> dict[Key, list[Put]]:
        """Of each queue the messages since it began. Offsets go on when its topic is deleted; after a power failure
        they may be forgotten with the queue's files, or with the last of them."""
        lives: dict[Key, list[Put]] = {}
        for put in self.puts:
            if put.queue_offset == NO_OFFSET:
                continue
            life = lives.setdefault(put.key, [])
            if life and put.queue_offset != life[-1].queue_offset + 1:
                may_go_back = put.key in self.came_back and life[-1].end <= self.dropped.get(put.key, 0)
                assert put.queue_offset == 0 or may_go_back, "the generator left a hole"
                life.clear()
            life.append(put)
        return lives


@attrs.frozen
class Validate:
    """One look at one recovered store; raises AssertionError with what does not hold."""

    model: Model  # cut to the log's end as it goes
    root: Path
    control: ControlBlock
    index_from: int  # keys of records from here on must be found; others the index may have lost

    def look(self, store: MessageStore, bounds: Bounds, *, thorough: bool) -> None:
        begin, end = self.control.min_phy_offset, self.control.published_phy_offset
        assert self.control.dispatched_phy_offset == end, "not everything is dispatched"
        assert self.control.durable_phy_offset <= end
        puts = [put for put in [*self.model.puts, *self.model.on_their_way] if put.end <= end]
        missing = [put.phy_offset for put in self.model.puts if put.end <= bounds.end and put.end > end]
        assert not missing, f"lost: records at {missing}; the log ends at {end}, {bounds.end} was kept"
        if begin > bounds.begin:  # the name of the first file was lost, and nothing in it was certain
            gone = [put for put in puts if bounds.begin <= put.phy_offset < begin]
            assert all(put.end > bounds.end for put in gone), f"the log begins at {begin}, not at {bounds.begin}"
            puts = [put for put in puts if put not in gone]
            self.model.puts = [put for put in self.model.puts if put not in gone]
            self.model.lost_begin |= {put.key for put in gone}
        self._look_at_log(puts, begin, end)
        self.model.cut(end)
        for key, life in self.model.lives().items():
            self._look_at_queue(store, key, life, begin)
        self._look_at_other_queues()
        if life_config(self.root).message_index_enable:
            self._look_up(store, [put for put in puts if put.phy_offset >= begin and put.message_keys])
        if thorough and not any(int(path.name) < begin for path in StorePaths.of(self.root).commitlog.iterdir()):
            problems = list(map(str, StoreDump(self.root).verify().problems))
            assert not problems or self.model.dropped, problems

    # --- the log ---

    def _look_at_log(self, puts: list[Put], begin: int, end: int) -> None:
        size = self.model.file_size
        ends_at = puts[-1].end if puts else 0
        if end > ends_at and end % size == 0:  # behind a blank
            assert end - ends_at < size or not puts, (end, ends_at)
        else:
            assert end == max(ends_at, begin), f"ends at {end}, its last record at {ends_at}"
        files = {int(path.name): path.read_bytes() for path in StorePaths.of(self.root).commitlog.iterdir()}
        starts = sorted(start for start in files if begin <= start < end)  # the cleaner will find what is before
        assert starts == list(range(begin, end, size)), f"files {sorted(files)} for {begin}..{end}"
        expected = {start: bytearray(size) for start in starts}
        for put in puts:
            at = put.phy_offset % size
            if put.phy_offset - at in expected:
                expected[put.phy_offset - at][at : at + len(put.image)] = put.image
        ends = {put.phy_offset // size * size: put.end for put in puts}
        for start in starts:
            if end >= start + size and ends.get(start, start) < start + size:
                at = ends.get(start, start) - start
                expected[start][at : at + 8] = encode_blank(size - at)
            if files[start] != expected[start]:
                differs = next(at for at in range(size) if files[start][at] != expected[start][at])
                raise AssertionError(f"log file {start} differs at {start + differs}; the log ends at {end}")
        for start in [start for start in files if start >= end]:
            assert not any(files[start]), f"log file {start} lies behind the end {end} and is not empty"

    # --- the queues ---

    def _look_at_queue(self, store: MessageStore, key: Key, life: list[Put], begin: int) -> None:
        queue = self.control.queue(*key)
        dropped_at = self.model.dropped.get(key, 0)  # what was put before may come back after a crash, in part
        if dropped_at >= life[-1].end and (queue is None or queue.min_offset == queue.max_offset):
            return
        if dropped_at >= life[-1].end and key in self.model.came_back:  # its last files may be gone, and not the others
            life = [put for put in life if put.queue_offset < queue.max_offset]
        assert queue is not None, f"{key} is not there"
        assert queue.max_offset == life[-1].queue_offset + 1, (
            f"{key} is [{queue.min_offset}, {queue.max_offset}), ends at {queue.max_phy_offset}; the log has "
            f"{[(put.queue_offset, put.phy_offset) for put in life]}, dropped {self.model.dropped}"
        )
        assert queue.next_offset == queue.max_offset, (key, queue.next_offset, queue.max_offset)
        in_log = [
            put
            for put in life
            if put.phy_offset >= begin and (put.end > dropped_at or put.queue_offset >= queue.min_offset)
        ]
        first = in_log[0].queue_offset if in_log else queue.max_offset
        assert queue.min_offset <= first, (
            f"{key} begins at {queue.min_offset} of {queue.max_offset}, the log has {first}; "
            f"dropped {self.model.dropped}, life {[(put.queue_offset, put.phy_offset) for put in life]}"
        )
        self._look_at_units(key, in_log, first, queue.max_offset)
        offset = first
        while offset < queue.max_offset:
            result = store.get_message(*key, offset, 32)
            images = [put.image for put in in_log[offset - first : result.next_begin_offset - first]]
            assert result.records == images and images, (key, offset, result.status)
            offset = result.next_begin_offset

    def _look_at_units(self, key: Key, puts: list[Put], first: int, end: int) -> None:
        size = self.model.queue_file_size
        directory = StorePaths.of(self.root).consumequeue / key[0] / str(key[1])
        files = {int(path.name): path.read_bytes() for path in directory.iterdir()}
        starts = sorted(files)
        assert starts and starts == list(range(starts[0], starts[-1] + size, size)), (key, starts)
        assert all(len(data) == size for data in files.values()), key
        data, base = b"".join(files[start] for start in starts), starts[0] // CQ_STORE_UNIT_SIZE
        at, end_at = (first - base) * CQ_STORE_UNIT_SIZE, (end - base) * CQ_STORE_UNIT_SIZE
        # What came back of a removed queue may lack its extension.
        dropped_at = self.model.dropped.get(key, 0) if key in self.model.came_back else 0
        came_back = {put.phy_offset: put.tags_code for put in puts if put.end <= dropped_at}
        units = (ConsumeQueueUnit(*unit) for unit in CQ_UNIT.iter_unpack(data[at:end_at]))
        found = [self._with_tags(key, unit, came_back) for unit in units]
        wanted = [(put.phy_offset, len(put.image), put.tags_code) for put in puts]
        if found != wanted:
            raise AssertionError(f"units of {key} from {first} on: found {found}, expected {wanted}")
        assert not any(data[end_at:]), f"{key} has bytes behind its end {end}"

    def _with_tags(self, key: Key, unit: ConsumeQueueUnit, came_back: dict[int, int]) -> ConsumeQueueUnit:
        """With the tags code of its extension: lost ones are found."""
        if not is_ext_address(unit.tags_code):
            return unit
        directory = StorePaths.of(self.root).consumequeue_ext / key[0] / str(key[1])
        ext = read_ext_unit(DiskFiles(), directory, EXT_FILE_SIZE, unit.tags_code)
        if ext is None and unit.phy_offset in came_back:
            return unit._replace(tags_code=came_back[unit.phy_offset])
        assert ext is not None, f"{key} has lost the extension at {real_offset(unit.tags_code)}"
        return unit._replace(tags_code=ext.tags_code)

    def _look_at_other_queues(self) -> None:
        known = {put.key for put in self.model.puts if put.queue_offset != NO_OFFSET}
        for state in self.control.queues():
            key = (state.topic, state.queue_id)
            # Units may have reached the disk whose records were lost: nothing can be read, offsets go on behind them.
            begin = state.min_offset if key in self.model.lost_begin else 0
            assert key in known or state.max_offset == begin, f"{key} was never put to and has {state.max_offset} units"

    # --- the index ---

    def _look_up(self, store: MessageStore, puts: list[Put]) -> None:
        step = max(1, len(puts) // KEYS_LOOKED_UP)
        for put in puts[::step]:
            for message_key in put.message_keys:
                found = result_of(store.message_query(put.key[0], message_key, 64, 0, 1 << 62)).records
                count = found.count(put.image)
                assert count <= 1, f"key {message_key} finds its message {count} times"
                if put.phy_offset >= self.index_from:
                    assert count == 1, f"key {message_key} does not find the message at {put.phy_offset}"
