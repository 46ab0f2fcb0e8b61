"""verify finds what is wrong, names the file and the byte, and finds nothing else; the same of the index."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.message.names import TIMER_TOPIC
from rocketpy.store.files import file_name
from rocketpy.store.inspection.findings import Code, NoListener
from rocketpy.store.inspection.queue_check import QueueCheck
from rocketpy.store.inspection.reader import StoreReader
from rocketpy.store.inspection.verify import VerifyReport, verify_store
from rocketpy.store.inspection.verify_parts import verify_in_parts
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from tests.support.store_writer import Put, StoreWriter

LOG = f"commitlog/{file_name(0)}"
UNITS = f"consumequeue/T/0/{file_name(0)}"


@pytest.fixture
def root(config: MessageStoreConfig) -> Path:
    """150 messages over two queues and several files; closed in order."""
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        for i in range(150):
            writer.put("T", i % 2, b"body %d" % i, b"TAGS\x01A\x02UNIQ_KEY\x01u%d" % i)
    close_store(opened, clean=True)
    return opened.paths.root


def verify(root: Path) -> VerifyReport:
    """What verify says. The checks in parts must say the same of every store of these tests."""
    report = verify_store(StoreReader(root))
    for split_bytes in (1 << 30, 5_000, 700):
        parts = verify_in_parts(StoreReader(root), map, split_bytes=split_bytes)
        assert in_order(parts) == in_order(report), split_bytes
    return report


def in_order(report: VerifyReport) -> VerifyReport:
    problems = sorted(report.problems, key=lambda problem: (problem.file, problem.position, problem.text))
    return attrs.evolve(report, problems=problems, notes=sorted(report.notes))


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes((byte[0] ^ 1,)))


def write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def index_of(root: Path) -> Path:
    return next((root / "index").iterdir())


def test_a_sound_store_has_no_problems(root: Path) -> None:
    report = verify(root)
    assert (report.records, report.units, report.queues, report.index_units) == (150, 150, 2, 150)
    assert (report.problems, report.notes) == ([], [])


def test_nothing_is_changed(root: Path) -> None:
    def state() -> list[tuple[str, int, int]]:
        return [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(root.rglob("*"))]

    before = state()
    verify(root)
    assert state() == before


@pytest.mark.parametrize(
    ("file", "spoil", "text"),
    [
        (LOG, lambda path: flip(path, 90), "CRC"),
        (LOG, lambda path: flip(path, 5), "magic"),
        (LOG, lambda path: flip(path, 35), "says that it is at"),
        (LOG, lambda path: flip(path, 27), "queue offset 1 of T/0, expected"),
        (UNITS, lambda path: flip(path, 7), "record at 1"),
        (UNITS, lambda path: flip(path, 11), "names the record T/0@0"),
        (UNITS, lambda path: flip(path, 19), "tags code"),
        (UNITS, lambda path: flip(path, 3), "past the log's end"),
        (UNITS, lambda path: write(path, 200, bytes(20)), "not in zeros"),
        (UNITS, lambda path: write(path, 200, bytes(20)), "65 units are missing"),
        (f"consumequeue/T/1/{file_name(1000)}", os.unlink, "ends at offset 50, its records at 75"),
        (f"consumequeue/T/1/{file_name(1000)}", lambda path: os.truncate(path, 40), "has 40 bytes"),
        (f"consumequeue/T/1/{file_name(0)}", os.unlink, "50 units are missing"),
        (f"consumequeue/T/1/{file_name(1000)}", lambda path: write(path, 960, b"\x01"), "not in zeros"),
        ("consumequeue/T/1", shutil.rmtree, "no queue is there"),
        ("commitlog/notes.txt", lambda path: path.write_bytes(b"x"), "does not belong here"),
        (f"commitlog/{file_name(16_384)}", lambda path: path.rename(path.with_name(file_name(1 << 20))), "is missing"),
        ("control", lambda path: write(path, 56, struct.pack("=Q", 1 << 30)), "says that the log ends at"),
    ],
)
def test_damage_is_found(root: Path, file: str, spoil: Callable[[Path], object], text: str) -> None:
    spoil(root / file)
    problems = verify(root).problems
    assert any(text in str(problem) for problem in problems), problems


def test_damage_is_located(root: Path) -> None:
    records = list(StoreReader(root).records())
    flip(root / LOG, records[10].phy_offset + 90)
    (problem,) = verify(root).problems  # no jump in its queue's offsets on top
    assert (problem.file, problem.position) == (LOG, records[10].phy_offset)
    assert f"{records[10].size} bytes up to what is sound again" in problem.text


@pytest.mark.parametrize(
    ("at", "data", "text"),
    [
        (36, struct.pack(">i", 4000), "the header counts 4000 units"),
        (40 + 400 + 20 * 5, struct.pack(">i", -5), "unit 5 has the hash -5"),
        (40 + 400 + 20 * 149 + 16, struct.pack(">i", 3), "unit 149 follows on unit 3"),
        (40, struct.pack(">i", 140), "slot 0 shows unit 140"),
    ],
)
def test_damage_in_the_index_is_found(root: Path, at: int, data: bytes, text: str) -> None:
    write(index_of(root), at, data)
    (problem,) = verify(root).problems
    assert text in problem.text and problem.file == f"index/{index_of(root).name}"


def test_a_slot_may_name_the_unit_to_come(root: Path) -> None:
    """A writer that is killed between slot and header leaves it so; the restarted one goes on from there."""
    path = index_of(root)
    slot = next(slot for slot in range(100) if struct.unpack_from(">i", path.read_bytes(), 40 + 4 * slot)[0])
    write(path, 40 + 4 * slot, struct.pack(">i", 151))
    assert verify(root).problems == []


def test_a_unit_of_another_record_is_a_note_and_the_key_without_one_a_problem(root: Path) -> None:
    path = index_of(root)
    unit = path.read_bytes()[460 + 4 : 460 + 12]
    write(path, 440 + 20 * 7 + 4, unit)  # unit 7 names the record of unit 1
    report = verify(root)
    (problem,) = report.problems
    assert (problem.code, problem.file) == (Code.INDEX_KEYS, f"index/{path.name}")
    assert problem.text.startswith("1 keys of records have no unit; the first is T#u6 of the record at offset ")
    assert "1 units name records without their key" in report.notes[0]


def test_a_damaged_hash_is_found_by_the_keys_of_its_record(root: Path) -> None:
    """The slot is the same, so no chain is broken."""
    path, at = index_of(root), 440 + 20 * 9
    (key_hash,) = struct.unpack_from(">i", path.read_bytes(), at)
    write(path, at, struct.pack(">i", key_hash + 100))
    assert "the first is T#u8 of" in verify(root).problems[0].text


def test_keys_of_one_record_may_be_in_two_index_files(config: MessageStoreConfig) -> None:
    """Files of 399 keys, records of 7: each border lies within a record. A later file lacks a unit."""
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        for i in range(150):
            keys = b" ".join(b"k%d-%d" % (i, key) for key in range(6))
            writer.put("T", 0, b"body", b"KEYS\x01%b\x02UNIQ_KEY\x01u%d" % (keys, i))
    close_store(opened, clean=True)
    root = opened.paths.root
    report = verify(root)
    assert (report.index_units, report.problems, report.notes) == (150 * 7, [], [])
    last = max((root / "index").iterdir())
    with last.open("r+b") as file:  # as if the newest unit had not been written
        (count,) = struct.unpack_from(">i", last.read_bytes(), 36)
        file.seek(36)
        file.write(struct.pack(">i", count - 1))
    (problem,) = verify(root).problems
    assert problem.text.startswith("1 keys of records have no unit; the first is T#k149-5 of")


def test_an_index_of_unknown_shape_is_told(root: Path) -> None:
    path = index_of(root)
    os.truncate(path, path.stat().st_size + 20)
    assert "--hash-slots" in verify(root).notes[0]
    assert verify_store(StoreReader(root), slots=100).notes == []
    assert "too short" in verify_store(StoreReader(root), slots=10_000).problems[0].text


# --- the end of the log -----------------------------------------------------------------------------------------------


def end_of(root: Path) -> tuple[Path, int]:
    last = max(StoreReader(root).records(), key=lambda record: record.phy_offset)
    end = last.phy_offset + last.size
    return root / "commitlog" / file_name(end - end % 16_384), end % 16_384


def test_old_bytes_behind_the_end(root: Path) -> None:
    path, position = end_of(root)
    write(path, position + 3000, b"old")
    (problem,) = verify(root).problems
    assert "old bytes lie after it" in problem.text and problem.position == position


def test_half_a_record_at_the_end_is_damage_only_of_a_closed_store(root: Path) -> None:
    path, position = end_of(root)
    write(path, position, path.read_bytes()[:50])
    assert "nothing sound follows" in verify(root).problems[0].text
    (root / "abort").touch()
    report = verify(root)
    assert report.problems == [] and "the next start cuts off" in report.notes[0]


def test_zeros_between_records(root: Path) -> None:
    records = list(StoreReader(root).records())
    at = records[20].phy_offset
    write(root / LOG, at, bytes(16_384 - at))
    problems = verify(root).problems
    assert f"offset {at}: zeros, but later files have records" in str(problems[0])


def test_no_more_than_two_empty_files_may_follow(root: Path) -> None:
    """Trap 19: with three of them a Java broker loses the log's end."""
    path, _ = end_of(root)
    for number in range(1, 4):
        (root / "commitlog" / file_name(int(path.name) + number * 16_384)).write_bytes(bytes(16_384))
    assert "3 empty files follow" in verify(root).problems[0].text


def test_a_blank_of_the_wrong_size(root: Path) -> None:
    records = [record for record in StoreReader(root).records() if record.phy_offset < 16_384]
    end = records[-1].phy_offset + records[-1].size
    write(root / LOG, end, struct.pack(">i", 16_384 - end - 1))
    assert f"a blank of {16_384 - end - 1} bytes where {16_384 - end} are left" in verify(root).problems[0].text


# --- what is no damage ------------------------------------------------------------------------------------------------


def test_a_store_in_use_is_looked_at_up_to_where_it_stands(opened: OpenedStore, writer: StoreWriter) -> None:
    for i in range(40):
        writer.put("T", 0, b"x", b"KEYS\x01k%d" % i)
    writer.put("T", 0, b"not yet dispatched", dispatch=False)
    report = verify(opened.paths.root)
    assert report.problems == [] and (report.records, report.units) == (41, 40)
    assert any("in use" in note for note in report.notes)


def test_units_that_come_while_it_looks_are_left_out(
    opened: OpenedStore, writer: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a look at each: those before the position that counts add up."""
    for i in range(40):
        writer.put("T", 0, b"x", dispatch=i < 30)

    class ProgressListener(NoListener):
        def begin(self, what: str, total: int, unit: str) -> None:
            if what == "queues":
                writer.dispatch.run_to_end()

    monkeypatch.setattr(QueueCheck, "_check_units", None)
    report = verify_store(StoreReader(opened.paths.root), ProgressListener())
    assert report.problems == [] and (report.records, report.units) == (40, 40)


def test_a_killed_java_broker_may_be_behind_with_its_units(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        for i in range(30):
            writer.put("T", i % 3, dispatch=i < 20)
    close_store(opened, clean=False)
    opened.paths.control.unlink()
    report = verify(opened.paths.root)
    assert report.problems == [] and "10 records have no unit yet" in report.notes[0]


def test_queues_whose_records_were_deleted(root: Path) -> None:
    (root / "commitlog" / file_name(0)).unlink()
    assert verify(root).problems == []


def test_a_topic_that_was_deleted_and_made_again(config: MessageStoreConfig, opened: OpenedStore) -> None:
    with StoreWriter(config, opened.control) as writer:
        puts: list[Put] = [writer.put("T", 0) for _ in range(70)]
        entry = opened.control.queue("T", 0)
        assert entry is not None
        writer.dispatch.drop_queue(entry)
        entry.next_offset = 0
        puts += [writer.put("T", 0) for _ in range(10)]
        writer.put("Gone", 0)
        gone = opened.control.queue("Gone", 0)
        writer.dispatch.drop_queue(gone)
        assert verify(opened.paths.root).problems != []  # for all that is known, Gone is lost
        (opened.paths.root / "config").mkdir()
        (opened.paths.root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"T": {}}}))
        report = verify(opened.paths.root)
    assert report.problems == [] and "Gone/0: 1 records of a deleted topic" in report.notes
    assert report.units == 10


@pytest.mark.parametrize("kept", [0, 10])
def test_a_topic_that_was_deleted_and_created_again(config: MessageStoreConfig, opened: OpenedStore, kept: int) -> None:
    """Its offsets go on: nothing is missing before them. What was put since must be there."""
    with StoreWriter(config, opened.control) as writer:
        for _ in range(70):
            writer.put("T", 0)
        opened.control.delete_units("T", opened.control.published_phy_offset)
        entry = opened.control.queue("T", 0)
        assert entry is not None
        writer.dispatch.expire_queue(entry)
        for _ in range(kept):
            writer.put("T", 0)
        assert verify(opened.paths.root).problems == []
        if kept:
            writer.dispatch.expire_queue(entry)
            assert verify(opened.paths.root).problems != []


def test_delay_queues_are_compared_without_their_times(opened: OpenedStore, writer: StoreWriter) -> None:
    writer.put("SCHEDULE_TOPIC_XXXX", 2, b"", b"DELAY\x013\x02TAGS\x01A")
    assert verify(opened.paths.root).problems == []


@pytest.mark.parametrize("properties", [b"TIMER_OUT_MS\x011700000000123\x02TAGS\x01A", b"TAGS\x01A"])
def test_the_unit_of_a_timer_has_its_time(opened: OpenedStore, writer: StoreWriter, properties: bytes) -> None:
    """A cancellation in the timer topic has none.
    Fault: `store verify` called the queue of timers damaged."""
    writer.put(TIMER_TOPIC, 0, b"", properties)
    assert verify(opened.paths.root).problems == []


def test_prepared_and_rolled_back_records_have_no_unit(opened: OpenedStore, writer: StoreWriter) -> None:
    for kind in (4, 8, 12, 0):
        writer.put("T", 0, b"", sys_flag=kind)
    report = verify(opened.paths.root)
    assert report.problems == [] and (report.records, report.units) == (4, 2)


def test_the_watcher_is_told_of_bytes_and_queues(root: Path) -> None:
    told: list[tuple[str, int]] = []

    class ProgressListener:
        def begin(self, what: str, total: int, unit: str) -> None:
            told.append((f"{what} {unit}", total))

        def reached(self, done: int) -> None:
            assert 0 <= done <= told[-1][1]
            self.last = done

    listener = ProgressListener()
    verify_store(StoreReader(root), listener)
    size = sum(path.stat().st_size for path in (root / "commitlog").iterdir())
    assert told == [("log bytes", size), ("queues queues", 2), ("index keys", 150)] and listener.last == 150
