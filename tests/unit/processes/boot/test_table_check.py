"""Tables that presume more than the log has are lowered while the store is opened."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy.broker.files import json_file
from rocketpy.broker.files.log_marks import LogExtent, LogMarks
from rocketpy.broker.managers.topics_position import position_path, saved_position
from rocketpy.config import BrokerRole
from rocketpy.errors import ConfigError
from rocketpy.failover.rules.epochs import Epoch, EpochList
from rocketpy.processes.boot.table_check import check_marked, check_offsets, check_tables, check_topics, log_extent
from rocketpy.remoting.bodies.offset import ConsumerOffsetSerializeWrapper, LogMark, MarkedOffsets
from rocketpy.remoting.json_writer import pretty_pieces
from rocketpy.replication.epoch_file import EpochFile
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from rocketpy.store.recovery.positions import RecoveryKind
from tests.support.reopened_store import fill
from tests.support.store_writer import small_config


def mark(phy_offset: int, progress: int) -> LogMark:
    return LogMark(phy_offset=phy_offset, offset_table={3: progress})


def save(path: Path, *marks: LogMark) -> bytes:
    saved = LogMarks(marks).to_save(1 << 60)
    json_file.save(path, ["".join(pretty_pieces(saved)).encode()])
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "delayOffset.json"


def test_progress_is_lowered_to_what_the_log_has(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save(path, mark(10, 1))
    save(path, mark(10, 1), mark(20, 2), mark(30, 3))
    check_marked(path, LogExtent(29))
    assert json_file.load_as(path, MarkedOffsets) == LogMarks([mark(10, 1), mark(20, 2)]).to_save(29)
    assert not Path(f"{path}.bak").exists(), "it presumes what the file presumed"
    assert "it presumed the log up to 30, which ends at 29" in caplog.text


def test_a_file_that_the_log_supports_stays(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    check_marked(path, LogExtent(0))
    assert not path.exists()
    text = save(path, mark(10, 1), mark(30, 3))
    check_marked(path, LogExtent(30))
    assert path.read_bytes() == text and not caplog.records
    path.write_text('{"offsetTable":{3:7}}')  # of a Java broker
    check_marked(path, LogExtent(0))
    assert path.read_text() == '{"offsetTable":{3:7}}'


def test_a_log_that_lost_all_marks_delivers_from_the_beginning(path: Path) -> None:
    save(path, mark(10, 1), mark(30, 3))
    check_marked(path, LogExtent(5))
    assert json_file.load_as(path, MarkedOffsets) == MarkedOffsets()


def test_the_file_before_it_is_held_to_the_log_too(path: Path) -> None:
    save(path, mark(10, 1), mark(30, 3))
    path.rename(f"{path}.bak")
    check_marked(path, LogExtent(29))
    assert json_file.load_as(path, MarkedOffsets) == LogMarks([mark(10, 1)]).to_save(29)


@pytest.mark.parametrize("epochs", [EpochList(), EpochList((Epoch(4, 0),))])
def test_a_log_that_is_cut_when_it_is_opened_lowers_what_presumed_its_end(tmp_path: Path, epochs: EpochList) -> None:
    """A former master becomes a slave: what it delivered last is not in its successor's log."""
    config = small_config(tmp_path / "store")
    opened = open_store(config)
    puts = fill(opened)["A", 0]
    close_store(opened, clean=False)
    if epochs.entries:
        EpochFile(tmp_path / "store").write(epochs)
    at, end = puts[10].phy_offset, puts[40].phy_offset
    path = tmp_path / "store" / "config" / "delayOffset.json"
    marks = [LogMark(phy_offset=place, epoch=epochs.last, offset_table={3: n}) for n, place in ((1, at), (2, end))]
    save(path, *marks)
    opened = open_store(config, cut_at=at)
    check_tables(opened)
    assert json_file.load_as(path, MarkedOffsets) == LogMarks(marks[:1]).to_save(at)
    close_store(opened, clean=True)


def test_an_epoch_that_the_log_does_not_have_supports_nothing(tmp_path: Path) -> None:
    config = small_config(tmp_path / "store")
    opened = open_store(config)
    fill(opened)
    EpochFile(tmp_path / "store").write(EpochList((Epoch(4, 0), Epoch(6, 500))))
    extent = log_extent(opened)
    assert extent == LogExtent(int(opened.control.published_phy_offset), {4: 500, 6: extent.end})
    EpochFile(tmp_path / "store").path.write_text("damaged")
    assert log_extent(opened) == LogExtent(extent.end)
    close_store(opened, clean=True)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenedStore]:
    """A store with 50 messages in each of the queues A/0, A/1 and B/7."""
    opened = open_store(small_config(tmp_path / "store"))
    fill(opened)
    for entry in opened.control.entries():
        entry.next_offset = entry.max_offset  # as an opening finds it
    yield opened
    close_store(opened, clean=True)


def lowered(opened: OpenedStore, text: str, kind: RecoveryKind = RecoveryKind.FLUSHED) -> dict[str, dict[int, int]]:
    path = opened.paths.root / "config" / "consumerOffset.json"
    json_file.save(path, [text.encode()])
    check_offsets(path, int(opened.control.published_phy_offset), opened.control, kind)
    saved = json_file.load_as(path, ConsumerOffsetSerializeWrapper)
    return saved.offset_table if saved else {}


BEYOND = '{"offsetTable":{"A@G":{0:51,1:50},"B@G":{7:99},"B@H":{7:3},"Gone@G":{0:5},"odd":{0:9}},"phyOffset":%d}'


def test_offsets_beyond_the_ends_of_their_queues_are_lowered(
    opened: OpenedStore, caplog: pytest.LogCaptureFixture
) -> None:
    found = lowered(opened, BEYOND % (1 << 40), RecoveryKind.TRUSTED)
    assert found == {"A@G": {0: 50, 1: 50}, "B@G": {7: 50}, "B@H": {7: 3}, "Gone@G": {0: 0}, "odd": {0: 0}}
    assert "to the ends of their queues: 4 were beyond" in caplog.text
    path = opened.paths.root / "config" / "consumerOffset.json"
    text = path.read_bytes()
    check_offsets(path, int(opened.control.published_phy_offset), opened.control, RecoveryKind.FLUSHED)
    assert path.read_bytes() == text and len(caplog.records) == 1, "once"


@pytest.mark.parametrize("kind", [RecoveryKind.FLUSHED, RecoveryKind.TRUSTED])
def test_offsets_are_compared_if_the_log_has_nothing_of_what_they_presume(
    opened: OpenedStore, kind: RecoveryKind
) -> None:
    """A power failure has taken the first files of the log; a log that was trusted has lost nothing.
    Fault: A power failure that took the first log files left group offsets beyond their queues."""
    opened.control.header.min_phy_offset = position = int(opened.control.published_phy_offset)
    found = lowered(opened, BEYOND % position, kind)
    assert found["A@G"][0] == (51 if kind is RecoveryKind.TRUSTED else 50)


def test_a_large_file_that_the_log_supports_is_not_read(opened: OpenedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    end = int(opened.control.published_phy_offset)
    assert lowered(opened, BEYOND % end)["A@G"] == {0: 51, 1: 50}
    assert lowered(opened, '{"offsetTable":{"A@G":{0:51}}}', RecoveryKind.TRUSTED)["A@G"] == {0: 51}


def test_a_file_without_a_position_is_read_after_an_end_that_is_not_trusted(opened: OpenedStore) -> None:
    assert lowered(opened, '{"offsetTable":{"A@G":{0:51}}}', RecoveryKind.FILES)["A@G"] == {0: 50}
    assert lowered(opened, '{"offsetTable":{"phyOffset@G":{0:1}}}', RecoveryKind.FILES) == {"phyOffset@G": {0: 0}}


def test_the_backup_counts_if_there_is_no_file(opened: OpenedStore) -> None:
    path = opened.paths.root / "config" / "consumerOffset.json"
    json_file.save(path, [(BEYOND % (1 << 40)).encode()])
    path.rename(f"{path}.bak")
    check_tables(opened)
    saved = json_file.load_as(path, ConsumerOffsetSerializeWrapper)
    assert saved is not None and saved.offset_table["B@G"] == {7: 50}


def test_a_damaged_file_is_an_error(path: Path) -> None:
    save(path, mark(10, 1))
    path.write_text("{")
    with pytest.raises(ConfigError):
        check_marked(path, LogExtent(29))


@pytest.mark.parametrize(
    ("text", "position"),
    [
        (None, 50),
        ('{"dataVersion":{"counter":3},"topicConfigTable":{"T":{"perm":6}}}', 50),  # of a master
        ('{"topicConfigTable":{"T":{"perm":6}},"phyOffset":51}', 50),  # the log was cut
        ('{"topicConfigTable":{"T":{"perm":6}},"phyOffset":50}', 50),
        ('{"topicConfigTable":{"T":{"perm":6}},"phyOffset":20}', 20),
    ],
)
def test_the_topics_of_a_slave_are_known_to_the_end_of_the_log_at_most(
    tmp_path: Path, text: str | None, position: int
) -> None:
    path = tmp_path / "topics.json"
    if text is not None:
        path.write_text(text)
    check_topics(path, 50)
    assert saved_position(path)[1] == position and (path.read_text() if path.exists() else None) == text
    written = position_path(path).read_bytes()
    check_topics(path, 50)
    assert position_path(path).read_bytes() == written


@pytest.mark.parametrize("role", [BrokerRole.SLAVE, BrokerRole.SYNC_MASTER])
def test_a_store_that_is_opened_has_the_position(tmp_path: Path, role: BrokerRole) -> None:
    opened = open_store(small_config(tmp_path / "store", broker_role=role))
    check_tables(opened)
    assert saved_position(tmp_path / "store" / "config" / "topics.json")[1] == 0
    close_store(opened, clean=True)


LATER = '{"topicConfigTable":{},"phyOffset":51}'


def test_on_a_full_disk_a_position_is_lowered_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slave that does not start would never clean its disk.
    Fault: A slave on a full disk could not write its table's position and did not start."""
    path = tmp_path / "topics.json"
    path.write_text(LATER)
    check_topics(path, 60)
    full_disk(monkeypatch)
    check_topics(path, 50)
    assert saved_position(path)[1] == 50


@pytest.mark.parametrize(
    ("is_slave", "text", "fails"),
    [(True, LATER, True), (False, LATER, False), (True, '{"topicConfigTable":{},"phyOffset":50}', False),
     (True, None, False)],
)  # fmt: skip
def test_a_full_disk_has_no_room_for_the_first_position(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_slave: bool,
    text: str | None,
    fails: bool,
) -> None:
    """Only a slave whose log was cut below it needs it."""
    path = tmp_path / "topics.json"
    if text is not None:
        path.write_text(text)
    full_disk(monkeypatch)
    with pytest.raises(OSError, match="No space") if fails else contextlib.nullcontext():
        check_topics(path, 50, is_slave=is_slave)
    assert fails or "No space" in caplog.text


def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)  # new files; what is written in place is synced by another call
