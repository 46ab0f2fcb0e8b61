"""Rebuilt consume queues and index are, byte for byte, what dispatch makes of the same log, and what Java has made."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import RecordCorrupt, StoreError
from rocketpy.message.record import encode_blank
from rocketpy.store.files import file_name
from rocketpy.store.formats.unit import CQ_UNIT
from rocketpy.store.inspection.parts import LogPiece
from rocketpy.store.inspection.reader import StoreReader
from rocketpy.store.rebuilding.collecting import RUN, CollectJob, collect
from rocketpy.store.rebuilding.publishing import publish
from rocketpy.store.rebuilding.rebuild import MANIFEST, SPOOL, read_manifest, rebuild, store_config
from rocketpy.store.recovery.lifecycle import close_store, open_store
from tests.support.log_images import BORN_MS, record, varied_record
from tests.support.rebuilds import files_of, run
from tests.support.records import Record
from tests.support.store_writer import StoreWriter, small_config
from tests.unit.store.test_java_store import unpack

FILE = 16_384
SPLITS = [1 << 30, 5_000, 700]


def write_log(root: Path, records: Sequence[tuple[Record, int]], first_file: int = 0) -> None:
    """A log of these records with these queue offsets, in files of FILE bytes."""
    (root / "commitlog").mkdir(parents=True)
    start, data = first_file * FILE, b""

    def close() -> None:
        (root / "commitlog" / file_name(start)).write_bytes(data.ljust(FILE, b"\0"))

    for one, queue_offset in records:
        if len(data) + one.size + 8 > FILE:
            data += encode_blank(FILE - len(data))
            close()
            start, data = start + FILE, b""
        data += one.encode(phy_offset=start + len(data), queue_offset=queue_offset)
    close()


def dispatched(root: Path, copy: Path, config: MessageStoreConfig) -> dict[str, bytes]:
    """What a broker makes of the log when it starts without queues and index."""
    shutil.copytree(root / "commitlog", copy / "commitlog")
    opened = open_store(attrs.evolve(config, store_path_root_dir=str(copy)))
    close_store(opened, clean=True)
    return files_of(copy)


def varied_log(seed: int, count: int = 600) -> list[tuple[Record, int]]:
    """Records of every kind. Queue offsets jump now and then: topics that were created again, damage in between."""
    rng = random.Random(seed)
    ends: dict[tuple[str, int], int] = {}
    records = []
    for number in range(count):
        one = varied_record(rng, number)
        if rng.random() < 0.1:
            level = rng.randrange(1, 20)
            properties = b"DELAY\x01%d\x02KEYS\x01a b" % level
            one = attrs.evolve(one, topic="SCHEDULE_TOPIC_XXXX", queue_id=level - 1, properties=properties)
        queue = (one.topic, one.queue_id)
        offset = ends.get(queue, rng.choice((0, 0, 37, 1000)))
        if rng.random() < 0.02:
            offset = rng.choice((0, offset + 3, offset + 200, max(0, offset - 2)))
        records.append((one, offset))
        has_unit = one.sys_flag & 0xC in (0, 8)
        ends[queue] = offset + 1 if has_unit else offset
    return records


@pytest.mark.parametrize("split_bytes", [*SPLITS, 97])
def test_java_s_queues_and_index_are_rebuilt(tmp_path: Path, split_bytes: int) -> None:
    unpack("clean", tmp_path / "s")
    rebuilt = run(tmp_path / "s", tmp_path / "t", split_bytes=split_bytes)
    assert files_of(tmp_path / "t") == files_of(tmp_path / "s")
    assert (rebuilt.records, rebuilt.units, rebuilt.keys, rebuilt.queues) == (200, 200, 200, 3)
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == ["consumequeue", "index", MANIFEST]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("split_bytes", SPLITS)
def test_any_log_gives_what_dispatch_gives(tmp_path: Path, seed: int, split_bytes: int) -> None:
    config = small_config(tmp_path / "s", max_hash_slot_num=7, max_index_num=50)
    write_log(tmp_path / "s", varied_log(seed), first_file=seed % 2)
    rebuilt = run(tmp_path / "s", tmp_path / "t", config, split_bytes=split_bytes)
    expected = dispatched(tmp_path / "s", tmp_path / "d", config)
    assert files_of(tmp_path / "t") == expected
    assert rebuilt.records == 600 and rebuilt.resets > 0 and rebuilt.index_files is not None
    assert rebuilt.index_files == sum(name.startswith("index") for name in expected) > 3


def test_a_record_in_a_body_does_not_begin_a_piece(tmp_path: Path) -> None:
    """A sender that knows where its message will be stored puts a valid record into the body, own offset and all."""
    outside = record("A", b"")
    inner = record("Evil", b"inner").encode(phy_offset=outside.size - len("A"), queue_offset=0)
    body_at = outside.size - len("A") - 2 - 1  # before topic and properties
    inner = record("Evil", b"inner").encode(phy_offset=body_at, queue_offset=0)
    records = [(record("A", inner, store_timestamp_ms=BORN_MS), 0), (record("A", b"x"), 1)]
    write_log(tmp_path / "s", records)
    assert StoreReader(tmp_path / "s").record_at(body_at) is not None  # it would deceive
    config = small_config(tmp_path / "s")
    run(tmp_path / "s", tmp_path / "t", config, split_bytes=body_at - 1)
    assert files_of(tmp_path / "t") == dispatched(tmp_path / "s", tmp_path / "d", config)
    assert not (tmp_path / "t/consumequeue/Evil").exists()


def test_topics_that_are_no_directories_get_no_files(tmp_path: Path) -> None:
    names = ["../../out", "..", ".", "a/b", "fine"]
    write_log(tmp_path / "s", [(record(name, b"x"), 0) for name in names])
    rebuilt = run(tmp_path / "s", tmp_path / "t", small_config(tmp_path / "s"))
    assert rebuilt.unplaced == 4 and [path.name for path in (tmp_path / "t/consumequeue").iterdir()] == ["fine"]
    assert not (tmp_path / "out").exists()


def write_equal_records(root: Path, count: int, queues: int) -> int:
    """A log of one file: small records, in the queues of A by turns. Returns the size of each."""
    one = record("A", b"")
    size = one.size
    image = bytearray(one.encode(phy_offset=0, queue_offset=0) * count)
    for number in range(count):
        at = number * size
        image[at + 12 : at + 16] = (number % queues).to_bytes(4, "big")
        image[at + 20 : at + 28] = (number // queues).to_bytes(8, "big")
        image[at + 28 : at + 36] = at.to_bytes(8, "big")
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / file_name(0)).write_bytes(image)
    return size


@pytest.mark.parametrize(
    ("queues", "batches"),
    [
        (1, [1 << 15, 1 << 15, 10]),
        (1000, [64_000, 6_000]),  # runs have 64 units on average
        (20_000, [1 << 20, 1000]),  # no batch is larger
    ],
)
def test_batches_are_small_unless_their_runs_are(tmp_path: Path, queues: int, batches: list[int]) -> None:
    count = sum(batches)
    size = write_equal_records(tmp_path, count, queues)
    job = CollectJob(tmp_path / "commitlog", tmp_path, [], with_keys=False)
    collected = collect(job, LogPiece(file_name(0), 0, count * size))
    found = [list(RUN.iter_unpack(batch)) for batch in collected.runs]
    assert [sum(one[3] for one in runs) for runs in found] == batches
    units, at = (tmp_path / f"{collected.name}.units").read_bytes(), 0
    for offset, phy_offset, phy_end, run_units, queue in (one for runs in found for one in runs):
        topic, queue_id = collected.queues[queue]
        assert topic == "A" and phy_offset == (offset * queues + queue_id) * size
        assert phy_end == phy_offset + (run_units - 1) * queues * size + size
        for number in {0, run_units // 2, run_units - 1}:
            unit = CQ_UNIT.unpack_from(units, (at + number) * CQ_UNIT.size)
            assert unit == (phy_offset + number * queues * size, size, 0)
        at += run_units
    assert at == count and len(units) == count * CQ_UNIT.size


def test_a_queue_of_several_batches_is_one_file(tmp_path: Path) -> None:
    count = (1 << 15) + 1000
    size = write_equal_records(tmp_path / "s", count, 1)
    config = attrs.evolve(small_config(tmp_path / "s"), mapped_file_size_consume_queue=20 * (1 << 16))
    assert run(tmp_path / "s", tmp_path / "t", config).units == count
    data = (tmp_path / "t/consumequeue/A/0" / file_name(0)).read_bytes()
    assert all(
        int.from_bytes(data[20 * number : 20 * number + 8], "big") == number * size for number in range(0, count, 97)
    )


def test_messages_that_went_with_their_topic_stay_away(tmp_path: Path) -> None:
    config = small_config(tmp_path / "s")
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        puts = [writer.put("A", 0, b"x" * 100, b"TAGS\x01t") for _ in range(100)]
    opened.control.add_queue(b"A", 0).deleted_below = puts[63].phy_offset
    close_store(opened, clean=True)
    assert run(tmp_path / "s", tmp_path / "t", config, split_bytes=2000).units == 37
    reader = StoreReader(tmp_path / "t")
    assert [offset for queue in reader.queues() for offset, _ in reader.units(queue)] == list(range(63, 100))


def damage(root: Path, at: int) -> None:
    path = root / "commitlog" / file_name(at - at % FILE)
    with path.open("r+b") as file:
        file.seek(at % FILE + 4)
        file.write(b"\xff")


# --- damage ---


def test_damage_ends_the_rebuild_or_is_left_out(tmp_path: Path) -> None:
    records = [(record("A", b"%d" % number * 50, properties=b"KEYS\x01k%d" % number), number) for number in range(300)]
    write_log(tmp_path / "s", records)
    places = [found.phy_offset for found in StoreReader(tmp_path / "s").records()]
    damage(tmp_path / "s", places[7])
    damage(tmp_path / "s", places[160])
    config = small_config(tmp_path / "s")
    with pytest.raises(RecordCorrupt, match=rf"{places[7]}.*--skip-damage"):
        run(tmp_path / "s", tmp_path / "t", config, split_bytes=3000)
    rebuilt = run(tmp_path / "s", tmp_path / "t", config, split_bytes=3000, skip_damage=True)
    assert [found.phy_offset for found in rebuilt.damages] == [places[7], places[160]]
    assert rebuilt.records == 298
    units = [
        offset
        for queue in StoreReader(tmp_path / "t").queues()
        for offset, _ in StoreReader(tmp_path / "t").units(queue)
    ]
    assert units == [number for number in range(300) if number not in (7, 160)]  # blanks in their places


@pytest.mark.parametrize(
    "lost",
    [range(150, 151), range(149, 150), range(149, 152), range(120, 290), range(151, 152), range(60)],
    ids=lambda lost: f"{lost.start}-{lost.stop}",
)
@pytest.mark.parametrize("split_bytes", [1 << 30, 3_000])
def test_damage_where_a_queue_file_ends_takes_no_other_message(tmp_path: Path, lost: range, split_bytes: int) -> None:
    """Queue files have 50 units. The last three files of the log are scanned by recovery: nothing is damaged there.
    Fault: A damaged record at the end of a queue file removed all older units of its queue."""
    records = [(record("A", b"%d" % number * 100), number) for number in range(600)]
    write_log(tmp_path / "s", records)
    places = [found.phy_offset for found in StoreReader(tmp_path / "s").records()]
    for number in lost:
        damage(tmp_path / "s", places[number])
    config = small_config(tmp_path / "s")
    rebuilt = run(tmp_path / "s", tmp_path / "t", config, split_bytes=split_bytes, skip_damage=True)
    assert files_of(tmp_path / "t") == dispatched(tmp_path / "s", tmp_path / "d", config)
    reader = StoreReader(tmp_path / "t")
    units = [offset for queue in reader.queues() for offset, _ in reader.units(queue)]
    assert units == [number for number in range(600) if number not in lost]
    assert rebuilt.resets == 0


def test_half_a_record_at_the_end_is_the_end(tmp_path: Path) -> None:
    records = [(record("A", b"x" * 100), number) for number in range(20)]
    write_log(tmp_path / "s", records)
    last = [found.phy_offset for found in StoreReader(tmp_path / "s").records()][-1]
    with (tmp_path / "s/commitlog" / file_name(0)).open("r+b") as file:
        file.seek(last + 4)
        file.write(bytes(50))
    rebuilt = run(tmp_path / "s", tmp_path / "t", small_config(tmp_path / "s"), split_bytes=300)
    assert (rebuilt.records, rebuilt.log_end, rebuilt.damages) == (19, last, [])


def test_an_empty_store(tmp_path: Path) -> None:
    """Fault: Publishing the rebuild of an empty store moved away all queues of another store."""
    (tmp_path / "s/commitlog").mkdir(parents=True)
    assert run(tmp_path / "s", tmp_path / "t").records == 0
    with pytest.raises(StoreError, match="has nothing to publish"):  # queues would lose their offsets
        publish(StoreReader(tmp_path / "s"), tmp_path / "t")


def test_the_target_must_be_new(tmp_path: Path) -> None:
    unpack("clean", tmp_path / "s")
    run(tmp_path / "s", tmp_path / "t")
    with pytest.raises(StoreError, match="is not empty: give a new directory"):
        run(tmp_path / "s", tmp_path / "t")
    (tmp_path / "t" / SPOOL).mkdir()  # as a run that was cut short leaves it: behind its manifest
    run(tmp_path / "s", tmp_path / "t")
    assert files_of(tmp_path / "t") == files_of(tmp_path / "s")


def test_a_run_that_was_cut_short_cannot_be_published(tmp_path: Path) -> None:
    """Also if one before it was complete, and ended before its spool was removed.
    Fault: A rebuild cut short after a complete one could be published."""
    unpack("clean", tmp_path / "s")
    run(tmp_path / "s", tmp_path / "t")
    (tmp_path / "t" / SPOOL).mkdir()
    for path in (tmp_path / "s/commitlog").iterdir():
        path.write_bytes(b"x" * 100)
    with pytest.raises((RecordCorrupt, StoreError)):
        run(tmp_path / "s", tmp_path / "t")
    with pytest.raises(StoreError, match=MANIFEST):
        read_manifest(tmp_path / "t")


@pytest.mark.parametrize("names", [("spool", "lib", "log"), ("spool",), (SPOOL, "thesis")])
def test_directories_of_others_are_left_alone(tmp_path: Path, names: tuple[str, ...]) -> None:
    """/var has a directory `spool`, too.
    Fault: A rebuild removed a directory `spool` of somebody else."""
    unpack("clean", tmp_path / "s")
    for name in names:
        (tmp_path / "t" / name / "mail").mkdir(parents=True)
    with pytest.raises(StoreError, match="is not empty: give a new directory"):
        run(tmp_path / "s", tmp_path / "t")
    assert all((tmp_path / "t" / name / "mail").exists() for name in names)


def test_two_rebuilds_do_not_use_one_directory(tmp_path: Path) -> None:
    """Fault: Two rebuilds could use one target."""
    unpack("clean", tmp_path / "s")

    def run_parts(work: Callable[[Any], Any], parts: Sequence[Any]) -> Any:
        with pytest.raises(StoreError, match="another rebuild is using this directory"):
            run(tmp_path / "s", tmp_path / "t")
        return map(work, parts)

    reader = StoreReader(tmp_path / "s")
    rebuild(reader, tmp_path / "t", store_config(reader, None), run_parts)
    assert files_of(tmp_path / "t") == files_of(tmp_path / "s")


def test_a_rebuild_of_unknown_index_files_asks_for_the_configuration(tmp_path: Path) -> None:
    write_log(tmp_path / "s", [(record(), 0)])
    (tmp_path / "s/index").mkdir()
    (tmp_path / "s/index/20240101000000000").write_bytes(bytes(100))
    with pytest.raises(StoreError, match="of an unknown number of slots: give the broker's configuration"):
        run(tmp_path / "s", tmp_path / "t")
