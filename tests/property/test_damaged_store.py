"""A damaged store directory: whatever was done to its files, every reader ends, with StoreError at the worst.

`verify` names the file and the byte of what a check can see; opening repairs, or says in one line why not; and what is
opened can be read to the end of every queue, and written to.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketpy.cli import store_tools
from rocketpy.config import MessageStoreConfig
from rocketpy.errors import StoreError
from rocketpy.remoting.work import result_of
from rocketpy.store.files import DiskFiles, StorePaths
from rocketpy.store.formats.checkpoint import read_checkpoint
from rocketpy.store.formats.index_file import Index
from rocketpy.store.inspection.dump import StoreDump
from rocketpy.store.reading.get_message import GetMessageStatus
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import close_store, open_store
from tests.support.budget import budget
from tests.support.store_writer import StoreWriter, small_config

TOPICS = ("T", "U")
MESSAGES = 60
READS_MAX = 3 * MESSAGES  # of one queue, whatever its offsets claim
LATER_MS = 1 << 62
COPY_STEP = 65_536
QUEUE_OFFSET_AT = 20
FIELDS = (0, 4, 8, QUEUE_OFFSET_AT, 28, 90)  # size, magic, CRC, queue offset, own offset, body
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # there, syncing takes no time
NUMBERS = (0, 1, 7, 90, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
BOUNDED = settings(
    max_examples=budget(10, 40),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


@attrs.frozen
class Damage:
    """One change of one file; positions are fractions, so that they fit any file."""

    file: int
    kind: str
    place: float
    number: int

    def apply(self, paths: list[Path]) -> None:
        path = paths[self.file % len(paths)]
        size = path.stat().st_size
        at = int(self.place * min(size, 20_000)) if self.kind != "head" else int(self.place * 10) * 4
        if self.kind == "remove":
            path.unlink()
        elif self.kind == "truncate":
            os.truncate(path, at)
        elif self.kind == "extend":
            os.truncate(path, size + self.number % 100 + 1)
        elif self.kind == "rename":
            path.rename(path.with_name(str(self.number)))
        else:
            width = 1 if self.kind == "byte" else 8 if self.number > 0xFFFFFFFF else 4
            with path.open("r+b") as file:
                file.seek(min(at, max(0, size - width)))
                file.write((self.number & (1 << 8 * width) - 1).to_bytes(width, "big"))


DAMAGES = st.lists(
    st.builds(
        Damage,
        file=st.integers(0, 99),
        kind=st.sampled_from(["number"] * 4 + ["head"] * 3 + ["byte"] * 2 + ["remove", "truncate", "extend", "rename"]),
        place=st.floats(0, 1, exclude_max=True),
        number=st.sampled_from(NUMBERS) | st.integers(0, 255),
    ),
    min_size=1,
    max_size=3,
)


def copy_sparse(source: Path, target: Path) -> None:
    """A copy without the holes: the control block is 140 MB of them."""
    with source.open("rb") as file, target.open("wb") as copy:
        size, at = os.fstat(file.fileno()).st_size, 0
        os.truncate(copy.fileno(), size)
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            end = min(os.lseek(file.fileno(), at, os.SEEK_HOLE), at + COPY_STEP)
            data = os.pread(file.fileno(), end - at, at)
            if data.count(0) < len(data):
                os.pwrite(copy.fileno(), data, at)
            at = end


def copy_store(source: Path, target: Path) -> None:
    for directory, _, names in os.walk(source):
        below = target / Path(directory).relative_to(source)
        below.mkdir(parents=True)
        for name in names:
            copy_sparse(Path(directory) / name, below / name)


def fill(config: MessageStoreConfig, *, clean: bool) -> None:
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        for i in range(MESSAGES):
            properties = b"TAGS\x01A\x02KEYS\x01k%d\x02UNIQ_KEY\x01u%d" % (i % 3, i)
            writer.put(TOPICS[i % 2], i % 3, b"body %d" % i * 40, properties, dispatch=i % 20 == 19)
    close_store(opened, clean=clean)


@pytest.fixture(scope="module", params=[True, False], ids=["closed", "killed"])
def whole(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A sound store of four log files."""
    root = Path(tempfile.mkdtemp(prefix="rocketpy-whole-", dir=MEMORY))
    fill(small_config(root / "store"), clean=request.param)
    yield root / "store"
    shutil.rmtree(root)


@pytest.fixture
def damaged(whole: Path) -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="rocketpy-damaged-", dir=MEMORY))
    yield root / "store"
    shutil.rmtree(root)


def spoil(whole: Path, root: Path, damages: list[Damage], *, control: bool) -> MessageStoreConfig:
    """A copy of the store with its damage. `control`: the control block is among the files that may have some."""
    shutil.rmtree(root, ignore_errors=True)
    copy_store(whole, root)
    os.utime(root / "lock", ns=(0, (whole / "lock").stat().st_mtime_ns))  # by which the control block is trusted
    if not control:
        (root / "control").unlink()
    for damage in damages:
        paths = sorted(path for path in root.rglob("*") if path.is_file() and path.name not in ("lock", "abort"))
        damage.apply(paths)
    return small_config(root)


def read_everything(config: MessageStoreConfig, store: MessageStore) -> None:
    """Every queue from its beginning, as a consumer goes on: it comes to the end."""
    for topic in TOPICS:
        for queue_id in range(3):
            offset = store.min_offset(topic, queue_id)
            for _ in range(READS_MAX):
                result = store.get_message(topic, queue_id, offset, 32, None)
                if result.status not in (GetMessageStatus.FOUND, GetMessageStatus.MESSAGE_WAS_REMOVING):
                    break
                assert result.next_begin_offset > offset
                offset = result.next_begin_offset
            else:
                pytest.fail(f"{topic}/{queue_id} has no end")
            store.offset_by_time(topic, queue_id, 1_700_000_000_000)
        for key in ("k0", "u7"):
            directory = StorePaths.of(config.store_path_root_dir).index
            index = Index(directory, config.max_hash_slot_num, config.max_index_num, DiskFiles())
            result_of(index.query(topic, key, 32, 0, LATER_MS, lambda phy_offset: True))


@given(damages=DAMAGES)
@BOUNDED
def test_tools_end_with_a_verdict(whole: Path, damaged: Path, damages: list[Damage]) -> None:
    """Also what they print: for people and for programs.
    Fault: A query of an index file with a count beyond its size raised a Python error."""
    spoil(whole, damaged, damages, control=True)
    dump = StoreDump(damaged)
    for ask in (
        lambda: [str(problem) for problem in dump.verify().problems],
        dump.stats,
        dump.state,
        lambda: store_tools.verify(damaged, as_json=True),
        lambda: store_tools.stats(damaged),
        *(lambda show=show: store_tools.dump(damaged, store_tools.Selection(show=show)) for show in store_tools.SHOWS),
    ):
        try:
            ask()
        except StoreError as exc:
            assert str(exc) and "\n" not in str(exc)


@given(damages=DAMAGES, control=st.booleans())
@BOUNDED
def test_opening_mends_or_says_why_not(whole: Path, damaged: Path, damages: list[Damage], control: bool) -> None:
    """Fault: A store with an oversized index file opened, but its store worker could not start."""
    config = spoil(whole, damaged, damages, control=control)
    read_checkpoint(DiskFiles(), damaged / "checkpoint")
    try:
        opened = open_store(config)
    except StoreError as exc:
        assert str(exc) and "\n" not in str(exc)
        return
    store = MessageStore(config, opened.control)
    read_everything(config, store)
    with StoreWriter(config, opened.control) as writer:
        put = writer.put("T", 0)
        assert store.look_message_by_offset(put.phy_offset) == put.image
        assert put.queue_offset == store.max_offset("T", 0) - 1
    store.close()
    close_store(opened, clean=True)
    close_store(open_store(config), clean=True)


@given(record=st.integers(0, MESSAGES - 2), field=st.sampled_from(FIELDS), bit=st.integers(0, 7))
@BOUNDED
def test_verify_names_the_file_and_the_byte(whole: Path, damaged: Path, record: int, field: int, bit: int) -> None:
    """Of all records but the last, which after a kill cannot be told from one that was never complete. A wrong queue
    offset may show at the queue's next record only, if there is none before."""
    spoil(whole, damaged, [], control=False)
    found, *later = list(StoreDump(whole).records())[record:]
    size = small_config(damaged).mapped_file_size_commit_log
    path = damaged / "commitlog" / f"{found.phy_offset - found.phy_offset % size:020d}"
    with path.open("r+b") as file:
        file.seek(found.phy_offset % size + field)
        byte = file.read(1)[0]
        file.seek(found.phy_offset % size + field)
        file.write(bytes((byte ^ 1 << bit,)))
    problems = StoreDump(damaged).verify().problems
    suspects = [found]
    if field == QUEUE_OFFSET_AT:
        suspects += [other for other in later if (other.topic, other.queue_id) == (found.topic, found.queue_id)][:1]
    places = {
        (f"commitlog/{suspect.phy_offset - suspect.phy_offset % size:020d}", suspect.phy_offset % size)
        for suspect in suspects
    }
    assert places & {(problem.file, problem.position) for problem in problems}, problems
