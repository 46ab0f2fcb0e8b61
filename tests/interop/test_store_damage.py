"""What is lost of a store beside its log is made again by rocketpy, in directories of either broker, closed or not; the
Java broker 4.9.7 then finds everything in the repaired directory.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from rocketpy.store.inspection.dump import StoreDump
from tests.interop.brokers import AnyBroker, create_topic, running_target
from tests.interop.store_filling import QUEUES, SCHEDULE, SMALL_FILES, TOPIC, Expected, fill
from tests.interop.store_reading import Reading, differences, read_store

MARGIN_MS = 3_000  # what recovery goes back from the checkpoint's times


@attrs.frozen
class Written:
    """One store as a clean stop left it and as a kill would have, a moment before; both with the same settings."""

    closed: Path
    killed: Path
    reading: Reading


def read(broker: AnyBroker) -> Reading:
    return read_store(broker, topics=(TOPIC,), groups=())


@pytest.fixture(scope="module")
def written_by(filler: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Written]:
    """One store by each kind of broker, made when first asked for."""
    return functools.cache(lambda kind: write(kind, filler, tmp_path_factory.mktemp(kind)))


def write(kind: str, filler: Path, directory: Path) -> Written:
    """Nothing is under way when the copy is made, and files keep their times: it is what kill -9 leaves."""
    closed, killed = directory / "closed", directory / "killed"
    expected = Expected()
    with running_target(kind, settings=SMALL_FILES, store=closed) as broker:
        create_topic(broker, TOPIC, QUEUES)
        for prefix in ("first", "second"):
            fill(filler, broker, expected, prefix)
        reading = read(broker)
        shutil.copytree(closed, killed)
        broker.stop()
    shutil.rmtree(killed / "config")
    shutil.copytree(closed / "config", killed / "config")
    assert (killed / "abort").exists() and not (closed / "abort").exists()
    assert len(list((closed / "commitlog").iterdir())) > 1 and len(list((closed / "index").iterdir())) > 1
    return Written(closed, killed, reading)


def set_checkpoint(store: Path, time_ms: int) -> None:
    (store / "checkpoint").write_bytes(struct.pack(">qqq", time_ms, time_ms, time_ms) + bytes(4096 - 24))


def end_of(store: Path) -> int:
    """When the last message was stored."""
    return max(record.store_timestamp_ms for record in StoreDump(store).records())


def lose_queues(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")


def lose_two_queues(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / TOPIC / "1")
    shutil.rmtree(store / "consumequeue" / SCHEDULE / "17")


def lose_index(store: Path) -> None:
    shutil.rmtree(store / "index")


def lose_newest_index_file(store: Path) -> None:
    max((store / "index").iterdir(), key=lambda path: path.name).unlink()


def lose_control(store: Path) -> None:
    (store / "control").unlink(missing_ok=True)


def lose_checkpoint(store: Path) -> None:
    (store / "checkpoint").unlink(missing_ok=True)


def begin_late(store: Path) -> None:
    """Recovery begins with the log's last file, behind most of what is lost."""
    set_checkpoint(store, end_of(store) + MARGIN_MS)
    lose_two_queues(store)
    lose_index(store)
    lose_control(store)


DAMAGE: dict[str, Callable[[Path], None]] = {
    "two queues": lose_two_queues,
    "consume queues": lose_queues,
    "index": lose_index,
    "newest index file": lose_newest_index_file,
    "control": lose_control,
    "checkpoint": lose_checkpoint,
    "the times in checkpoint": lambda store: set_checkpoint(store, end_of(store) - 2 * MARGIN_MS),
    "queues and index, with a late checkpoint": begin_late,
}


@contextlib.contextmanager
def opened(kind: str, store: Path, end: str) -> Iterator[AnyBroker]:
    with running_target(kind, settings=SMALL_FILES, store=store) as broker:
        yield broker
        if end == "closed":
            broker.stop()
        else:
            broker.kill_all()
    assert StoreDump(store).verify().problems == []


@pytest.mark.parametrize("end", ["closed", "killed"])
@pytest.mark.parametrize("kind", ["java", "rocketpy"])
def test_what_is_lost_is_made_again(written_by: Callable[[str], Written], tmp_path: Path, kind: str, end: str) -> None:
    """Each loss meets the directory as it was written.
    Fault: Deleted index files were never rebuilt, so their keys found nothing.
    Holds: store, consume queues rebuilt from the log."""
    written = written_by(kind)
    for number, (what, damage) in enumerate(DAMAGE.items()):
        store = tmp_path / str(number)
        shutil.copytree(written.closed if end == "closed" else written.killed, store)
        damage(store)
        with opened("rocketpy", store, end) as broker:
            assert differences(read(broker), written.reading) == [], f"without {what}"


@pytest.mark.parametrize(("kind", "end"), [("java", "killed"), ("rocketpy", "closed"), ("rocketpy", "killed")])
def test_java_finds_all_of_a_mended_store(
    written_by: Callable[[str], Written], tmp_path: Path, kind: str, end: str
) -> None:
    store, written = tmp_path / "store", written_by(kind)
    shutil.copytree(written.closed if end == "closed" else written.killed, store)
    for lose in (lose_queues, lose_index, lose_control, lose_checkpoint):
        lose(store)
    with opened("rocketpy", store, end) as broker:
        assert differences(read(broker), written.reading) == []
    with opened("java", store, end) as broker:
        assert differences(read(broker), written.reading) == []


def test_expired_files(written_by: Callable[[str], Written], tmp_path: Path) -> None:
    """The oldest CommitLog file is gone, and the queues with it: both begin them anew, at the same offsets."""
    found: dict[str, Reading] = {}
    for kind in ("java", "rocketpy"):
        store = tmp_path / kind
        shutil.copytree(written_by("rocketpy").closed, store)
        (store / "commitlog" / "0".zfill(20)).unlink()
        lose_queues(store)
        lose_index(store)
        with running_target(kind, settings=SMALL_FILES, store=store) as broker:
            found[kind] = read(broker)
    assert differences(found["rocketpy"], found["java"]) == []
    assert all(queue.min_offset > 0 for (topic, _), queue in found["java"].queues.items() if topic == TOPIC)
