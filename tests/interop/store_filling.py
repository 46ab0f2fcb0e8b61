"""A store with messages of every kind in it, by the official producers (store_java/Fill.java and Settle.java)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import attrs

from tests.interop import archives, toolchain
from tests.interop.brokers import AnyBroker, max_offsets, wait_until

from .java_broker import JVM_FLAGS

TOPIC, QUEUES = "matrix", 4
HALF, OP, SCHEDULE = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"
SINGLES, BATCH, LARGE, DELAYED, TRANSACTIONS = 40, 6, 2, 3, 9  # as Fill.java has them; DELAYED soon, and as many long
FILL_TIMEOUT_S = 120.0
SMALL_FILES = {  # all kinds of files roll within one or two fillings
    "maxMessageSize": "65528",
    "mappedFileSizeCommitLog": "131072",  # the smallest with such messages
    "mappedFileSizeConsumeQueue": "400",
    "maxHashSlotNum": "100",
    "maxIndexNum": "200",
    "flushConsumerOffsetInterval": "500",
    "flushDelayOffsetInterval": "500",
    "transactionCheckInterval": "3600000",  # the reference puts half messages it asks about back as new ones
}


@attrs.frozen
class Sent:
    kind: str
    key: str  # the first one
    unique_id: str
    offset_ids: list[str]


@attrs.define
class Expected:
    """The number of messages expected by now; a third of the transactions is left open."""

    turns: int = 0

    @property
    def ended(self) -> int:
        return self.turns * (TRANSACTIONS // 3 * 2)

    @property
    def messages(self) -> int:
        return self.turns * (SINGLES + BATCH + LARGE + DELAYED + TRANSACTIONS // 3)


def compile_filler(directory: Path) -> Path:
    """Raises toolchain.Missing."""
    sources = [Path(__file__).parent / "store_java" / name for name in ("Fill.java", "Settle.java")]
    library = f"{toolchain.server_directory()}/lib/*"
    subprocess.run(["javac", "-nowarn", "-cp", library, "-d", directory, *sources], check=True)
    return directory


def filler_command(classes: Path, *words: str) -> list[str]:
    server = toolchain.server_directory()
    class_path = archives.class_path(server / "lib", classes)
    return [
        "java",
        "-Xmx128m",
        *JVM_FLAGS,
        *archives.flags(server),
        f"-Duser.home={classes}",
        "-cp",
        class_path,
        *words,
    ]


def ends(broker: AnyBroker, topic: str, queues: int) -> int:
    return sum(max_offsets(broker, topic, queues))


def fill(classes: Path, broker: AnyBroker, expected: Expected, prefix: str) -> list[Sent]:
    """Messages of every kind, dispatched; what was delayed for a second is delivered, what was committed as well."""
    command = filler_command(classes, "Fill", broker.namesrv, TOPIC, prefix)
    done = subprocess.run(command, capture_output=True, text=True, timeout=FILL_TIMEOUT_S, encoding="utf-8")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and "done" in lines, done.stdout[-2000:] + done.stderr[-4000:]
    expected.turns += 1
    wait_until(lambda: ends(broker, TOPIC, QUEUES) >= expected.messages, f"{expected.messages} messages")
    wait_until(lambda: ends(broker, OP, 1) >= expected.ended, f"{expected.ended} transactions ended")
    said = [line.split("\t") for line in lines if "\t" in line]  # the others are the client's log
    return [Sent(kind, keys.split(" ")[0], unique, ids.split(",")) for kind, keys, unique, ids in said]
