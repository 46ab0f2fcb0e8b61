"""What is easily done wrong with the store's format: the table of traps in README.md beside this file names the tests
of each, and is held to them here. What no other test asks is asked here as well. "Trap 4" is row 4 of that table."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import StoreError
from rocketpy.message.record import decode_records
from rocketpy.message.tags import string_hash
from rocketpy.native.core import lib
from rocketpy.remoting.command import RemotingCommand
from rocketpy.store.files import file_name
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from rocketpy.store.recovery.positions import RecoveryKind
from tests.support import fast_path
from tests.support.cases import cases
from tests.support.fast_path import FastPath
from tests.support.store_writer import StoreWriter, small_config
from tests.unit.store.test_store_lock import HOLD

ROOT = Path(__file__).parents[3]
TABLE = Path(__file__).parent / "README.md"
TRAPS = range(1, 39)
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)
TEST = re.compile(r"`([\w/.]+)(?:::(\w+))?`")


def rows() -> dict[int, str]:
    return {int(number): tests for number, _, tests in ROW.findall(TABLE.read_text())}


def test_every_trap_is_in_the_table() -> None:
    assert list(rows()) == list(TRAPS)


@cases("trap", TRAPS)
def test_the_tests_of_a_trap_are_there(trap: int) -> None:
    named = TEST.findall(rows()[trap])
    assert named, "name a test"
    for file, function in named:
        path = ROOT / "tests" / file
        assert path.is_file(), f"trap {trap}: {path} is not there"
        if function:
            assert re.search(rf"^\s*def {function}\(", path.read_text(), re.MULTILINE), f"trap {trap}: no {function}"
        else:
            assert path.suffix == ".txt" and re.search(rf"\(traps? (\d+ and )?{trap}( and \d+)?\)", path.read_text()), (
                f"trap {trap}: {path.name} does not speak of it"
            )


# --- the send worker -----------------------------------------------------------------------------------------------


@pytest.fixture
def rig(tmp_path: Path) -> FastPath:
    rig = FastPath(tmp_path)
    rig.add_topic("T")
    rig.tables_end()
    return rig


def entry(body: bytes, properties: bytes) -> bytes:
    size = 22 + len(body) + len(properties)
    return struct.pack(">iiiii", size, 0, 0, 0, len(body)) + body + struct.pack(">h", len(properties)) + properties


def send(body: bytes, **more: str) -> RemotingCommand:
    fields = dict(zip("abcdefgh", ("P", "T", "TBW102", "4", "0", "0", "1700000000000", "0"), strict=True))
    command = RemotingCommand.request(310, ext_fields=fields | {"i": ""} | more, body=body)
    command.opaque = 7
    return command


def log_of(rig: FastPath) -> bytes:
    return (rig.root / "commitlog" / file_name(0)).read_bytes()


def test_a_batch_whose_properties_do_not_fit_is_refused_whole(rig: FastPath) -> None:
    """Trap 4: in a batch only the sum of an entry's properties and those that are added counts. The reference does not
    check it, and the record that comes of it costs every later message at the next start."""
    fitting = 32_767 - len(b"\x02CLUSTER\x01DefaultCluster")
    rig.frame(send(entry(b"a", b"") + entry(b"b", b"K\x01" + b"v" * (fitting - 1)), m="true"))
    rig.turn()
    [(_, reply)] = rig.answers()
    assert reply.code == 13
    rig.frame(send(entry(b"a", b"") + entry(b"b", b"K\x01" + b"v" * (fitting - 2)), m="true"))
    rig.turn()
    [(_, reply)] = rig.answers()
    assert reply.code == 0
    assert [record.body for record in decode_records(log_of(rig), check_crc=True)] == [b"a", b"b"]


def test_store_times_never_go_back(rig: FastPath) -> None:
    """Trap 15: recovery, search by time and the index rest on it, whatever the clock does."""
    header = lib.rp_control_header(rig.block)
    header.last_store_timestamp_ms = later = 4_000_000_000_000
    lib.rp_send_close(rig.send)
    rig.send = rig.open_send()
    rig.add_topic("T")
    rig.tables_end()
    for body in (b"x", b"y"):
        rig.frame(send(body))
        rig.turn()
    times = [record.store_timestamp_ms for record in decode_records(log_of(rig))]
    assert later <= times[0] <= times[1]


def test_a_batch_goes_to_the_next_file_as_a_whole(rig: FastPath) -> None:
    """Trap 17, in the send worker; the bytes are in scripts/batch_across_a_file_end.txt."""
    rig.frame(send(b"first"))
    rig.turn()
    assert len(rig.answers()) == 1
    header = lib.rp_control_header(rig.block)
    end = fast_path.FILE_SIZE - 300  # room for two of the three
    header.published_phy_offset = header.dispatched_phy_offset = end
    lib.rp_send_close(rig.send)
    rig.send = rig.open_send()
    rig.add_topic("T")
    rig.tables_end()
    rig.frame(send(entry(b"x", b"") * 3, m="true"))
    rig.turn()
    [(_, reply)] = rig.answers()
    ids = (reply.ext_field("msgId") or "").split(",")
    offsets = [int(message_id[16:], 16) for message_id in ids]
    assert reply.code == 0 and offsets[0] == fast_path.FILE_SIZE and offsets == sorted(offsets)
    image = log_of(rig)[end:]
    assert image[:8] == struct.pack(">iI", 300, 0xCBD43194) and not any(image[8:])


# --- queues -----------------------------------------------------------------------------------------------------------


def test_a_gap_in_queue_offsets_moves_no_unit(writer: StoreWriter, store: MessageStore) -> None:
    """Trap 13: a unit lies where its offset says; the reference appends behind a gap at the wrong place forever."""
    writer.put("T", 0)
    writer.control.add_queue(b"T", 0).next_offset = 5
    put = writer.put("T", 0)
    assert store.consume_queue_units("T", 0, 5, 1)[0].phy_offset == put.phy_offset
    assert writer.put("T", 0).queue_offset == 6


def test_a_pull_looks_at_800_units_however_few_are_wanted(tmp_path: Path) -> None:
    """Trap 29: or consumers of a rare tag would crawl."""
    sizes = {"mapped_file_size_consume_queue": 20_000, "mapped_file_size_commit_log": 1 << 20}
    config = small_config(tmp_path / "store", **sizes)
    opened = open_store(config)
    store = MessageStore(config, opened.control)
    with StoreWriter(config, opened.control) as writer:
        for i in range(900):
            writer.put("T", 0, b"", b"TAGS\x01A", dispatch=i == 899)
    result = store.get_message("T", 0, 0, 1, {string_hash("B")})
    assert (result.records, result.next_begin_offset) == ([], 800)
    store.close()
    close_store(opened, clean=False)


# --- opening and closing ----------------------------------------------------------------------------------------------


def fill(config: MessageStoreConfig, *, clean: bool) -> OpenedStore:
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        for i in range(20):
            writer.put("T", 0, b"x" * 2000, store_timestamp_ms=1_700_000_000_000 + 10_000 * i)
    close_store(opened, clean=clean)
    return opened


@pytest.mark.parametrize("empty", [2, 3, 5])
def test_empty_files_ahead_do_not_hide_the_end(config: MessageStoreConfig, empty: int) -> None:
    """Trap 19: recovery that starts in the third-last file takes the first of three empty ones for the end.
    Holds: store, files in ascending order."""
    opened = fill(config, clean=True)
    last = max(int(path.name) for path in opened.paths.commitlog.iterdir())
    for number in range(1, empty + 1):
        (opened.paths.commitlog / file_name(last + number * 16_384)).write_bytes(bytes(16_384))
    opened.paths.control.unlink()
    again = open_store(config)
    assert again.report.kind is RecoveryKind.FILES and again.report.log_end == last + 6 * 2092
    assert again.control.queues()[0].max_offset == 20
    close_store(again, clean=False)


def test_abort_goes_only_when_all_is_done(config: MessageStoreConfig) -> None:
    """Trap 22: it tells the next start which way to recover.
    Holds: store, abort marks an unclean stop."""
    opened = open_store(config)
    assert opened.paths.abort.exists()
    with StoreWriter(config, opened.control) as writer:
        writer.put(dispatch=False)
    opened.control.header.running_flags = 4  # units could not be written
    close_store(opened, clean=True)
    assert opened.paths.abort.exists()
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        writer.put(dispatch=False)
    close_store(opened, clean=True)  # dispatches first
    assert not opened.paths.abort.exists()
    unit = (opened.paths.consumequeue / "TopicTest" / "0" / file_name(0)).read_bytes()[20:40]
    assert any(unit) and struct.unpack_from(">q", opened.paths.checkpoint.read_bytes())[0] == 1_700_000_000_000


def test_abort_comes_only_after_recovery(config: MessageStoreConfig) -> None:
    """Trap 22, the other way round: a start that is refused leaves the directory closed as it was."""
    opened = fill(config, clean=True)
    stray = opened.paths.commitlog / "stray"
    stray.write_bytes(b"x")
    with pytest.raises(StoreError, match="stray"):
        open_store(config)
    assert not opened.paths.abort.exists()


def test_the_lock_comes_before_everything(config: MessageStoreConfig) -> None:
    """Trap 23: the reference recovers, truncates and deletes before it asks for the lock."""
    opened = fill(config, clean=False)
    path = max(opened.paths.commitlog.iterdir())
    with path.open("r+b") as file:  # what recovery would wipe
        file.seek(16_000)
        file.write(b"old")
    opened.paths.control.unlink()

    def state() -> list[tuple[Path, int, int]]:
        return [(path, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(opened.paths.root.rglob("*"))]

    before = state()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(opened.paths.lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreError, match="store is in use"):
            open_store(config)
        assert state() == before
        holder.communicate()


@pytest.mark.parametrize(("physic", "from_file"), [(0, 0), (1_700_000_000_000 + 100_000 + 3_000, 16_384)])
def test_a_checkpoint_of_zero_scans_everything(config: MessageStoreConfig, physic: int, from_file: int) -> None:
    """Trap 24: a broker that lived shortly leaves it so. Otherwise the newest file whose first record is old enough."""
    opened = fill(config, clean=False)
    opened.paths.control.unlink()
    opened.paths.checkpoint.write_bytes(struct.pack(">qqq", physic, physic, physic) + bytes(4072))
    again = open_store(config)
    assert again.report.scanned_bytes == again.report.log_end - from_file
    assert again.control.queues()[0].max_offset == 20
    close_store(again, clean=False)


def test_names_are_byte_offsets_and_sizes_exact(opened: OpenedStore, writer: StoreWriter) -> None:
    """Trap 8, for queues; a unit never spans two files.
    Holds: store, one log for all topics in files named by their start offset."""
    for _ in range(101):
        writer.put("T", 0, b"", dispatch=False)
    writer.dispatch.run_to_end()
    directory = opened.paths.consumequeue / "T" / "0"
    assert sorted((path.name, path.stat().st_size) for path in directory.iterdir()) == [
        (file_name(start), 1000) for start in (0, 1000, 2000)
    ]
    assert not any((directory / file_name(2000)).read_bytes()[20:])
