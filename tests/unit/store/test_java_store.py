"""Directories written by RocketMQ 4.9.7 (200 messages, small files), one closed in order and one killed.

Made with tests/interop/store_java/StoreTool.java; the CRCs are what that program printed of the records of each queue.
"""

from __future__ import annotations

import shutil
import tarfile
import zlib
from pathlib import Path

import attrs
import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.remoting.work import result_of
from rocketpy.store.files import file_name
from rocketpy.store.inspection.dump import StoreDump
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import close_store, open_store
from tests.support.store_writer import StoreWriter

DATA = Path(__file__).parent / "data"
CRCS = {
    "clean": {("A", 0): (67, 0xB8A0E68F), ("A", 1): (67, 0x8C2E5B96), ("B", 7): (66, 0xF7849315)},
    "killed": {("A", 0): (67, 0xB21ED9C0), ("A", 1): (67, 0xF2210682), ("B", 7): (66, 0xE213D8BA)},
}


@pytest.fixture(params=["clean", "killed"])
def java_store(request: pytest.FixtureRequest, config: MessageStoreConfig) -> str:
    unpack(request.param, Path(config.store_path_root_dir))
    return str(request.param)


def unpack(name: str, root: Path) -> None:
    with tarfile.open(DATA / f"java_4_9_7_{name}.tar.gz") as archive:
        archive.extractall(root, filter="data")


def check_queues(store: MessageStore, name: str) -> None:
    for (topic, queue_id), (count, crc) in CRCS[name].items():
        records: list[bytes] = []
        while len(records) < count:
            found = store.get_message(topic, queue_id, len(records), 32).records
            assert found
            records += found
        assert store.max_offset(topic, queue_id) == count
        assert zlib.crc32(b"".join(records)) == crc


def test_verify_before_anybody_has_touched_it(config: MessageStoreConfig, java_store: str) -> None:
    report = StoreDump(Path(config.store_path_root_dir)).verify()
    assert (report.records, report.units, report.queues, report.index_units) == (200, 200, 3, 200)
    assert (report.problems, report.notes) == ([], [])
    assert report.state.is_closed is (java_store == "clean") and report.state.control is None


def test_opens_and_goes_on(config: MessageStoreConfig, java_store: str) -> None:
    opened = open_store(config)
    assert opened.report.log_end == 23_824
    store = MessageStore(config, opened.control)
    check_queues(store, java_store)
    assert len(result_of(store.message_query("A", "jkey1", 10, 0, 1 << 62)).records) == 1
    with StoreWriter(config, opened.control) as writer:
        assert writer.put("A", 0).queue_offset == 67
    store.close()
    close_store(opened, clean=True)
    assert StoreDump(opened.paths.root).verify().problems == []


@pytest.mark.parametrize("lost", ["consumequeue", "index", "both"])
def test_what_we_build_from_java_s_log_is_what_java_built(config: MessageStoreConfig, lost: str) -> None:
    """Units byte for byte; the index but for its name."""
    root = Path(config.store_path_root_dir)
    unpack("clean", root)
    (java_index,) = (root / "index").iterdir()
    expected = {path.relative_to(root): path.read_bytes() for path in root.rglob("consumequeue/*/*/*")}
    expected_index = java_index.read_bytes()
    assert len(expected) == 6
    shutil.rmtree(root / "consumequeue")
    if lost != "consumequeue":
        shutil.rmtree(root / "index")
    opened = open_store(config)
    close_store(opened, clean=True)
    assert {path.relative_to(root): path.read_bytes() for path in root.rglob("consumequeue/*/*/*")} == expected
    (ours,) = (root / "index").iterdir()
    assert ours.read_bytes() == expected_index


def test_another_size_of_java_s_files_is_named(config: MessageStoreConfig, java_store: str) -> None:
    other = attrs.evolve(config, mapped_file_size_consume_queue=2_000)
    with pytest.raises(Exception, match=rf"consumequeue/A/0/{file_name(0)} has 1000 bytes, 2000 are configured"):
        open_store(other)
