"""One directory, written in turn by RocketMQ's own store (4.9.7) and by ours, closed in order and killed.

The official store runs in a process of its own, without a broker around it: nothing but the files is compared.
"""

from __future__ import annotations

import subprocess
import zlib
from pathlib import Path

import pytest

from rocketpy.store.inspection.dump import StoreDump
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import close_store, open_store
from tests.interop import toolchain
from tests.support.store_writer import StoreWriter, small_config

QUEUES = (("A", 0), ("A", 1), ("B", 7))
JVM = (
    "-Xmx300m",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)
Seen = dict[str, tuple[int, int]]  # by "topic-queue": how many records, CRC of them all


def library() -> str:
    """The class path of the official store."""
    return f"{toolchain.server_directory()}/lib/*"


def compiled(tool: str, directory: Path) -> Path:
    """Compile a program of store_java against the official store. Returns the directory of its classes."""
    source = Path(__file__).parent / "store_java" / f"{tool}.java"
    subprocess.run(["javac", "-nowarn", "-cp", library(), "-d", directory, source], check=True)
    return directory


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("StoreTool", tmp_path_factory.mktemp("classes"))


def java(classes: Path, root: Path, mode: str, count: int = 0) -> Seen:
    """`mode`: p puts `count` messages first, k ends without closing."""
    done = subprocess.run(
        ["java", *JVM, "-cp", f"{classes}:{library()}", "StoreTool", "r" + mode, root, "16384", "1000", str(count)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == (9 if "k" in mode else 0), done.stdout[-2000:]
    lines = [line.split() for line in done.stdout.splitlines() if line[:2] in ("A-", "B-")]
    return {line[0]: (int(line[6]), int(line[8], 16)) for line in lines}


def ours(root: Path, mode: str, count: int = 0) -> Seen:
    config = small_config(root)
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        for i in range(count):
            writer.put(*QUEUES[i % 3], b"%d" % i * 50, b"KEYS\x01key%d\x02TAGS\x01Tag" % i)
    store, seen = MessageStore(config, opened.control), {}
    for topic, queue_id in QUEUES:
        records: list[bytes] = []
        while len(records) < store.max_offset(topic, queue_id):
            found = store.get_message(topic, queue_id, len(records), 32).records
            assert found
            records += found
        seen[f"{topic}-{queue_id}"] = (len(records), zlib.crc32(b"".join(records)))
    store.close()
    close_store(opened, clean="k" not in mode)
    return seen


def test_a_store_moves_both_ways(tmp_path: Path, classes: Path) -> None:
    root, total = tmp_path / "store", 0
    for side, mode, count in (
        (ours, "p", 150),
        (java, "p", 60),
        (ours, "pk", 31),
        (java, "pk", 40),
        (ours, "p", 29),
        (java, "", 0),
    ):
        seen = java(classes, root, mode, count) if side is java else ours(root, mode, count)
        total += count
        assert sum(number for number, _ in seen.values()) == total
        if "k" not in mode:  # what one has closed the other reads as it was
            assert (ours(root, "") if side is java else java(classes, root, "")) == seen
    assert StoreDump(root).verify().problems == []
