"""What was acknowledged survives kill -9 (async flush) and power loss (sync flush); a full disk is an answer.

After any crash every acknowledged message is there, once, whole, at its offset, and no queue has a hole.
`seed` reproduces a case.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rocketpy.message.record import decode_record
from rocketpy.native.core import lib
from rocketpy.store.dispatch import Dispatch
from rocketpy.store.inspection.dump import StoreDump
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from tests.support.store_writer import StoreWriter, small_config

ROOT = Path(__file__).parents[2]
SECTOR = 512
DERIVED = ("consumequeue", "consumequeue_ext", "index")  # what is made from the log
QUEUES = (("A", 0), ("A", 1), ("B", 7), ("B", 8))


def read_all(opened: OpenedStore, topic: str, queue_id: int) -> list[bytes]:
    """Bodies of a queue from its first offset on; asserts that offsets have no hole and no repetition."""
    dispatch = Dispatch(opened.config, opened.control)
    dispatch.run_to_end()  # as the store worker does
    dispatch.close()
    store = MessageStore(opened.config, opened.control)
    bodies: list[bytes] = []
    while len(bodies) < store.max_offset(topic, queue_id):
        result = store.get_message(topic, queue_id, len(bodies), 32)
        assert result.records, (topic, queue_id, len(bodies), result)
        for image in result.records:
            record = decode_record(image, check_crc=True)
            assert record is not None and record.queue_offset == len(bodies)
            bodies.append(record.body)
    store.close()
    return bodies


# --- kill -9 ----------------------------------------------------------------------------------------------------------

CHILD = """
import sys
from pathlib import Path
from rocketpy.store.recovery.lifecycle import open_store
from tests.support.store_writer import StoreWriter, small_config
config = small_config(Path(sys.argv[1]))
opened = open_store(config)
with StoreWriter(config, opened.control) as writer:
    number = int(sys.argv[2])
    while True:
        topic, queue_id = (("A", 0), ("A", 1), ("B", 7), ("B", 8))[number % 4]
        writer.put(topic, queue_id, b"%d " % number * (number % 97), dispatch=number % 7 == 0)
        if number % 100 == 99:
            writer.dispatch.sync()
        print(number, flush=True)
        number += 1
"""


def test_kill_9_at_any_instant(tmp_path: Path) -> None:
    """The same store, killed again and again: every number that was printed is stored, in order."""
    config = small_config(tmp_path / "store")
    number = 0
    rng = random.Random(9)
    for _ in range(6):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, config.store_path_root_dir, str(number)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert child.stdout is not None
        acknowledged = number - 1
        for _ in range(rng.randrange(50, 400)):
            acknowledged = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        for line in child.stdout:  # what it said before it died counts, too
            acknowledged = int(line)
        child.stdout.close()
        assert child.wait() == -signal.SIGKILL
        opened = open_store(config)
        assert opened.report.scanned_records == 0
        bodies = [read_all(opened, topic, queue_id) for topic, queue_id in QUEUES]
        total = sum(map(len, bodies))
        assert total in (acknowledged + 1, acknowledged + 2)  # the one in flight may be there, whole, or not
        for number in range(total):
            assert bodies[number % 4][number // 4] == b"%d " % number * (number % 97)
        number = total
        close_store(opened, clean=False)
    assert StoreDump(Path(config.store_path_root_dir)).verify().problems == []


# --- power loss -------------------------------------------------------------------------------------------------------

Disk = dict[Path, bytes]


def disk_of(root: Path, *names: str) -> Disk:
    """Content of every file below `names`."""
    paths = [path for name in names for path in [root / name, *(root / name).rglob("*")] if path.is_file()]
    return {path: path.read_bytes() for path in paths}


class ForgetfulDisk:
    """Remembers what was synced, and forgets any part of the rest, sector by sector."""

    def __init__(self, opened: OpenedStore, seed: int, before: Disk) -> None:
        """`before`: what the disk held when the machine came up."""
        self._opened = opened
        self._rng = random.Random(seed)
        self._synced = before
        self._control = [opened.paths.control.read_bytes()]
        self._flush = lib.rp_flush_open(os.fsencode(opened.paths.commitlog), opened.control.header)

    def flush_log(self) -> None:
        assert lib.rp_flush_log(self._flush) in (0, 1)
        self._synced.update(disk_of(self._opened.paths.root, "commitlog"))

    def sync_units(self, writer: StoreWriter) -> None:
        writer.dispatch.sync()
        self._synced.update(disk_of(self._opened.paths.root, *DERIVED))

    def remember_control(self) -> None:
        """The kernel may write the control block back whenever it likes, any page of it."""
        with self._opened.paths.control.open("rb") as file:
            self._control.append(file.read(16_384))

    def power_off(self) -> None:
        """The processes are gone, and with them every sector that was neither synced nor written back in time."""
        lib.rp_flush_close(self._flush)
        paths = self._opened.paths
        self.remember_control()
        close_store(self._opened, clean=False)
        chance = self._rng.random()
        for path, data in disk_of(paths.root, "commitlog", *DERIVED).items():
            synced = self._synced.get(path)
            if synced is None and self._rng.random() < chance:
                path.unlink()  # its name never reached the disk
                continue
            old = synced or bytes(len(data))
            self._mix(path, old, data, chance)
        image = bytearray(paths.control.read_bytes())
        for page in range(0, 16_384, 4096):
            image[page : page + 4096] = self._rng.choice(self._control)[page : page + 4096]
        image[24:40] = bytes(16)  # the boot id of another boot
        paths.control.write_bytes(image)

    def _mix(self, path: Path, old: bytes, new: bytes, chance: float) -> None:
        mtime = path.stat().st_mtime_ns
        with path.open("r+b") as file:
            for at in range(0, len(new), SECTOR):
                if self._rng.random() < chance:
                    file.seek(at)
                    file.write(old[at : at + SECTOR])
        os.utime(path, ns=(mtime, mtime))


@pytest.mark.parametrize("seed", range(40))
def test_power_loss_keeps_what_was_flushed(tmp_path: Path, seed: int) -> None:
    """Holds: store, flush modes in a power failure."""
    config = small_config(
        tmp_path / "store", enable_consume_queue_ext=seed % 2 == 1, mapped_file_size_consume_queue_ext=1_024
    )
    rng = random.Random(seed)
    expected: dict[tuple[str, int], list[bytes]] = {queue: [] for queue in QUEUES}
    flushed: dict[tuple[str, int], int] = dict.fromkeys(QUEUES, 0)
    for life in range(3):
        before = disk_of(Path(config.store_path_root_dir), "commitlog", *DERIVED)
        opened = open_store(config)
        for queue in QUEUES:  # what was flushed is there; of the rest any beginning may be
            bodies = read_all(opened, *queue)
            assert len(bodies) >= flushed[queue], (seed, life, queue, opened.report)
            assert bodies == expected[queue][: len(bodies)], (seed, life, queue)
            expected[queue] = bodies
        disk = ForgetfulDisk(opened, seed * 3 + life, before)
        with StoreWriter(config, opened.control) as writer:
            for number in range(rng.randrange(20, 250)):
                queue = rng.choice(QUEUES)
                body = b"%d/%d " % (life, number) * rng.randrange(60)
                properties = b"KEYS\x01k%d\x02TAGS\x01T%d" % (number, number)
                writer.put(*queue, body, properties, dispatch=rng.random() < 0.5)
                expected[queue].append(body)
                action = rng.random()
                if action < 0.05:
                    disk.flush_log()
                    flushed = {queue: len(bodies) for queue, bodies in expected.items()}
                elif action < 0.08:
                    disk.sync_units(writer)
                elif action < 0.2:
                    disk.remember_control()
        disk.power_off()
    opened = open_store(config)
    for queue in QUEUES:
        bodies = read_all(opened, *queue)
        assert len(bodies) >= flushed[queue] and bodies == expected[queue][: len(bodies)]
    close_store(opened, clean=True)
    assert StoreDump(Path(config.store_path_root_dir)).verify().problems == []


# --- full disk --------------------------------------------------------------------------------------------------------

FULL = """
import sys
from pathlib import Path
from rocketpy.native import Status
from rocketpy.native.core import ffi, lib
from rocketpy.errors import DiskFull, StoreError
from rocketpy.store.recovery.lifecycle import open_store
from rocketpy.store.reading.message_store import MessageStore
from tests.support.store_writer import StoreWriter, small_config
config = small_config(Path(sys.argv[1]), mapped_file_size_commit_log=262144)
opened = open_store(config)
stored = 0
with StoreWriter(config, opened.control) as writer:
    at, phy_offset = ffi.new("uint8_t **"), ffi.new("uint64_t *")
    status = 0
    while status == 0:
        status = lib.rp_commitlog_reserve(writer._log, 5000, at, phy_offset)
        if status == 0:
            writer.put("T", 0, b"x" * 4000, b"KEYS\\x01k%d" % stored, dispatch=False)
            stored += 1
    assert status == Status.NO_SPACE, status
    published = opened.control.published_phy_offset
    try:
        writer.dispatch.run_to_end()
    except DiskFull:
        print("units: disk full")
    (Path(sys.argv[1]) / "ballast").unlink()
    writer.dispatch.run_to_end()
    store = MessageStore(config, opened.control)
    assert store.max_offset("T", 0) == stored, (store.max_offset("T", 0), stored)
    assert opened.control.published_phy_offset == published
    writer.put("T", 0, b"x" * 4000)
print("stored", stored)
"""


def test_a_full_disk_is_an_error_and_never_a_signal(tmp_path: Path) -> None:
    """A small file system, full: nothing is torn, and when there is room again everything goes on."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare(1) to make a small file system")
    root = tmp_path / "store"
    root.mkdir()
    script = (
        f"mount -t tmpfs -o size=12400k tmpfs {root} && dd if=/dev/zero of={root}/ballast bs=1k count=600 status=none "
        f"&& exec \"{sys.executable}\" -c '{FULL}' {root}"
    )
    command = ["unshare", "-Urm", "sh", "-c", "true"]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("user namespaces are not allowed here")
    done = subprocess.run(["unshare", "-Urm", "sh", "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done
    assert int(done.stdout.split()[-1]) > 50
