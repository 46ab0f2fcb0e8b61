"""A slave's log: what arrives in chunks of any size is checked and published record by record, and nothing else is."""

from __future__ import annotations

import contextlib
import random
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the send worker is C")

from rocketpy.native.core import lib
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.send import EndTransactionRequestHeader
from tests.support.history import send_request
from tests.support.log_images import image_of, record
from tests.support.slave_rig import FILE_SIZE, SlaveRig, always, log_image

IMAGE = log_image(2)
CHUNKS_MAX = 2_000  # a log that is not whole after so many is never
SIZE_AT, MAGIC_AT, OWN_OFFSET_AT, BODY_AT = 0, 4, 28, 88


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[SlaveRig]:
    rig = SlaveRig(tmp_path)
    rig.begin_stream()
    yield rig
    rig.close()


def check_whole(rig: SlaveRig) -> None:
    assert rig.published == len(IMAGE.data) and not rig.refused
    assert rig.log()[: len(IMAGE.data)] == IMAGE.data and not any(rig.log()[len(IMAGE.data) :])


@pytest.mark.parametrize("size", [1, 7, 100, 1000, 8192, FILE_SIZE])
def test_the_log_is_that_of_the_master_whatever_the_chunks(rig: SlaveRig, size: int) -> None:
    if size == 1:  # around the end of a file: it takes long
        rig.receive(IMAGE, [FILE_SIZE - 100])
        rig.receive(IMAGE, [1] * 1000, start=FILE_SIZE - 100)
        rig.receive(IMAGE, always(FILE_SIZE // 2), start=FILE_SIZE + 900)
    else:
        rig.receive(IMAGE, always(size))
    check_whole(rig)


def test_each_file_that_follows_another_is_counted(rig: SlaveRig) -> None:
    """Fault: The metric rocketpy_store_file_rolls_total was always 0."""
    rig.receive(IMAGE, always(1000))
    counters = rig.workers["send"].counters
    assert counters[lib.RP_COUNT_ROLLS] == (len(IMAGE.data) - 1) // FILE_SIZE > 0
    assert counters[lib.RP_COUNT_MESSAGES_PUT] == len(IMAGE.records), "a blank is no message"


def test_only_whole_records_are_published(rig: SlaveRig) -> None:
    sizes = [int.from_bytes(IMAGE.data[place : place + 4]) for place in IMAGE.records]
    ends = {0, FILE_SIZE, 2 * FILE_SIZE, *(place + size for place, size in zip(IMAGE.records, sizes, strict=True))}
    for place in range(0, len(IMAGE.data), 97):
        rig.chunk(place, IMAGE.data[place : place + 97])
        rig.turn()
        assert rig.published in ends
        assert rig.published <= min(place + 97, len(IMAGE.data))
    check_whole(rig)


@pytest.mark.parametrize("seed", range(20))
def test_a_killed_send_worker_is_followed_by_a_stream_from_the_published_position(rig: SlaveRig, seed: int) -> None:
    rng = random.Random(seed)
    position = 0
    for _ in range(CHUNKS_MAX):
        if rig.published == len(IMAGE.data):
            break
        size = rng.randrange(1, 4000)
        rig.chunk(position, IMAGE.data[position : position + size])
        position = min(position + size, len(IMAGE.data))
        if rng.random() < 0.2:
            rig.restart_send()  # what it had received, but not published, is gone
        rig.turn()
        if rig.refused == rig.stream:
            assert rig.master_link.refused_reason == lib.RP_REFUSED_GAP
            rig.begin_stream()
            position = rig.published
    assert rig.log() == IMAGE.data + bytes(len(rig.log()) - len(IMAGE.data))
    assert rig.published == len(IMAGE.data)


def test_a_chunk_that_was_taken_before_changes_nothing(rig: SlaveRig) -> None:
    """The send worker died after it had published the chunk, and before it released it."""
    first = IMAGE.records[3] + 10
    rig.receive(IMAGE, [first])
    rig.chunk(0, IMAGE.data[: IMAGE.records[5]])
    rig.turn()
    assert rig.published == IMAGE.records[5]
    rig.receive(IMAGE, always(5000), start=IMAGE.records[5])
    check_whole(rig)


@pytest.mark.parametrize("at", [SIZE_AT, SIZE_AT + 3, MAGIC_AT + 1, OWN_OFFSET_AT + 7, BODY_AT + 30])
@pytest.mark.parametrize("place", [IMAGE.records[0], IMAGE.records[6], IMAGE.records[14]])
def test_a_damaged_record_is_never_published(rig: SlaveRig, place: int, at: int) -> None:
    damaged = bytearray(IMAGE.data)
    damaged[place + at] ^= 0x40
    for start in range(0, len(damaged), 3000):
        rig.chunk(start, bytes(damaged[start : start + 3000]))
    rig.turn()
    rig.turn()
    assert rig.published == place and rig.refused == rig.stream
    assert rig.master_link.refused_reason == lib.RP_REFUSED_BAD_RECORD and rig.master_link.refused_phy_offset == place
    assert lib.rp_ring_depth(rig.log_ring) == 0  # the rest of the stream is dropped
    rig.begin_stream()
    rig.receive(IMAGE, always(3000), start=place)
    assert rig.published == len(IMAGE.data) and rig.log()[: len(IMAGE.data)] == IMAGE.data


@pytest.mark.parametrize("change", [(3, 1), (7, 1), (0, 1)], ids=["size", "magic", "zeros"])
def test_a_damaged_blank_is_not_published(rig: SlaveRig, change: tuple[int, int]) -> None:
    end = IMAGE.data.index(b"\xcb\xd4\x31\x94", IMAGE.records[11]) - 4
    damaged = bytearray(IMAGE.data)
    damaged[end + change[0]] ^= change[1]
    rig.chunk(0, bytes(damaged[:FILE_SIZE]))
    rig.turn()
    assert rig.published == end and rig.refused == rig.stream


def test_a_blank_that_ends_before_its_file_is_not_published(rig: SlaveRig) -> None:
    """The next record would begin in the middle of what a reader takes for a blank."""
    end = IMAGE.data.index(b"\xcb\xd4\x31\x94", IMAGE.records[11]) - 4
    damaged = bytearray(IMAGE.data)
    damaged[end : end + 4] = (FILE_SIZE - end - 16).to_bytes(4)
    rig.chunk(0, bytes(damaged[:FILE_SIZE]))
    rig.turn()
    assert rig.published == end and rig.refused == rig.stream


def test_a_record_that_would_go_on_in_the_next_file_is_refused(rig: SlaveRig) -> None:
    long = image_of([record(body=b"x" * 9000), record(body=b"y" * 9000)])
    rig.receive(long, always(4000))
    assert rig.published == long.records[1] and rig.refused == rig.stream


@pytest.mark.parametrize(("size", "is_refused"), [(16 << 20, False), ((16 << 20) + (128 << 10) + 1, True)])
@pytest.mark.parametrize(
    "magic", [IMAGE.data[4:8], lib.RP_BLANK_MAGIC.to_bytes(4, signed=True)], ids=["record", "blank"]
)
def test_a_size_that_no_message_has_is_refused_at_once(
    tmp_path: Path, magic: bytes, size: int, is_refused: bool
) -> None:
    """Else what came of it, up to a whole file, would be zeroed in one step when the next stream begins.
    Fault: A slave accepted a record size up to the file's end and zeroed up to 1 GiB in one step."""
    rig = SlaveRig(tmp_path, file_size=32 << 20)
    rig.begin_stream()
    head = size.to_bytes(4) + magic + IMAGE.data[8:1000]
    rig.chunk(0, head)
    rig.turn()
    assert rig.refused == (rig.stream if is_refused else 0) and rig.published == 0
    rig.close()


def test_zeros_are_no_records(rig: SlaveRig) -> None:
    rig.chunk(0, bytes(64))
    rig.turn()
    assert rig.published == 0 and rig.refused == 1


def test_a_body_with_another_checksum(tmp_path: Path) -> None:
    """With haCheckCrc=false it is stored, as by the reference."""
    rig = SlaveRig(tmp_path, check_crc=0)
    damaged = bytearray(IMAGE.data[:FILE_SIZE])
    damaged[IMAGE.records[2] + BODY_AT + 5] ^= 1
    rig.begin_stream()
    rig.chunk(0, bytes(damaged))
    rig.turn()
    assert rig.published == FILE_SIZE and not rig.refused
    rig.close()


def test_an_empty_log_begins_where_the_master_s_does(rig: SlaveRig) -> None:
    image = log_image(1, start=5 * FILE_SIZE)
    rig.receive(image, always(3000))
    assert rig.published == 5 * FILE_SIZE + len(image.data)
    assert rig.control.min_phy_offset == 5 * FILE_SIZE and rig.control.dispatched_phy_offset == rig.published
    assert sorted(path.name for path in (rig.root / "commitlog").iterdir()) == [f"{n * FILE_SIZE:020d}" for n in (5, 6)]


@pytest.mark.parametrize("phy_offset", [100, FILE_SIZE + 1])
def test_it_begins_nowhere_else(rig: SlaveRig, phy_offset: int) -> None:
    rig.chunk(phy_offset, IMAGE.data[:500])
    rig.turn()
    assert rig.published == 0 and rig.refused == 1 and rig.control.min_phy_offset == 0


def test_a_log_that_has_begun_does_not_begin_again(rig: SlaveRig) -> None:
    rig.receive(IMAGE, [IMAGE.records[4]])
    rig.begin_stream()
    rig.chunk(7 * FILE_SIZE, IMAGE.data[:500])
    rig.turn()
    assert rig.published == IMAGE.records[4] and rig.refused == rig.stream


def test_the_part_of_a_record_that_another_stream_left_is_gone(rig: SlaveRig) -> None:
    rig.receive(IMAGE, [IMAGE.records[4] + 600])
    rig.begin_stream()
    rig.chunk(IMAGE.records[4], b"")
    rig.turn()
    assert rig.published == IMAGE.records[4] and not any(rig.log()[IMAGE.records[4] :])


def test_without_room_for_the_next_file_the_chunk_waits(rig: SlaveRig) -> None:
    rig.receive(IMAGE, [FILE_SIZE])
    shutil.rmtree(rig.root / "commitlog")
    (rig.root / "commitlog").write_bytes(b"not a directory")
    rig.receive(IMAGE, [500], start=FILE_SIZE)
    assert rig.published == FILE_SIZE and not rig.refused and lib.rp_ring_depth(rig.log_ring)
    (rig.root / "commitlog").unlink()
    rig.turn()
    rig.receive(IMAGE, always(5000), start=FILE_SIZE + 500)
    assert rig.published == len(IMAGE.data)


@contextlib.contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """Until it is left this process can write no byte of a file behind `size`, except through a mapping."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_large_chunk_that_cannot_be_written_waits(rig: SlaveRig) -> None:
    rig.receive(IMAGE, [100])  # creates the file
    with files_end_at(4096):
        rig.receive(IMAGE, [8900], start=100)
        assert rig.log_file(0)[:4096] == IMAGE.data[:4096] and not any(rig.log_file(0)[4096:])
        assert rig.published == 0 and not rig.refused and lib.rp_ring_depth(rig.log_ring)
    rig.turn()
    assert rig.published > 0
    rig.receive(IMAGE, always(9000), start=9000)
    check_whole(rig)


def test_without_a_descriptor_a_large_chunk_is_written_all_the_same(rig: SlaveRig) -> None:
    rig.receive(IMAGE, [100])  # creates the file
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        rig.chunk(100, IMAGE.data[100:9000])
        lib.rp_send_run(rig.send, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert rig.log_file(0)[:9000] == IMAGE.data[:9000] and rig.published > 0
    rig.receive(IMAGE, always(9000), start=9000)
    check_whole(rig)


def test_a_slave_takes_no_messages(rig: SlaveRig) -> None:
    rig.add_topic("T")
    rig.tables_end()
    for topic in ("T", "unknown"):
        assert rig.frame(send_request(topic, 0, [b"body"], 1)) == lib.RP_OK
    header = EndTransactionRequestHeader(
        producer_group="P", tran_state_table_offset=0, commit_log_offset=0, commit_or_rollback=8
    )
    assert rig.frame(RemotingCommand.request(37, header)) == lib.RP_OK
    rig.turn()
    codes = [answer.code for _, answer in rig.answers()]
    assert codes == [14, 14, 11] and rig.published == 0
    assert not [kind for kind, _ in rig.for_manager() if kind == lib.RP_MSG_SEND]


def test_the_replicator_is_woken_when_the_log_has_grown(rig: SlaveRig) -> None:
    replicator = rig.workers["replicator"]
    lib.rp_worker_prepare_sleep(replicator)
    rig.receive(IMAGE, [100])
    assert replicator.asleep == 1  # nothing to report yet
    rig.receive(IMAGE, [IMAGE.records[1]], start=100)
    assert replicator.asleep == 0
