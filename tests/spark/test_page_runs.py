"""The commands of docs/use/spark.md run as they are written, on a broker and a store of the test (`make test-gallery`).

Addresses and paths are those of the test. Object stores, catalogs of others and other programs are left to other tests.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from rocketpy.client import Message, ProducerOptions
from rocketpy.client.sync import Producer
from tests.support.broker import RunningBroker, running_broker
from tests.support.doc_programs import blocks
from tests.support.readers import readable
from tests.support.waiting import wait_until

pytestmark = pytest.mark.gallery

COMMAND_S = 240.0
WARM_UP_S = 15.0  # of a command that runs until it is stopped
MESSAGES = 400
ELSEWHERE = re.compile(r"s3://|pipeline demo")  # a local S3: test_archive_tables.py; the demo: test_demo_job.py
UNTIL_STOPPED = re.compile(r"--continuous")
OF_A_STORE = re.compile(r"/var/lib/rocketpy/store")  # run when the broker has stopped


def lines_of(page: str) -> list[str]:
    """The commands of the page that are run here."""
    script = "\n".join(blocks(page, "sh")).replace("\\\n", " ")
    found = [line for line in script.splitlines() if line.startswith("rocketpy pipeline ")]
    return [line for line in found if not ELSEWHERE.search(line)]


@attrs.frozen
class Place:
    """A directory and a broker for the commands of the page."""

    root: Path
    broker: RunningBroker

    def begin(self, line: str) -> subprocess.Popen[str]:
        """Start a command of the page, with paths below `root`."""
        for path in ("/archive", "/tables"):
            line = re.sub(rf"(?<= ){path}", f"{self.root}{path}", line)
        line = line.replace("/var/lib/rocketpy/store", str(self.broker.store))
        line = line.replace("/var/lib/rocketpy", str(self.root)).replace("127.0.0.1:9876", self.broker.namesrv)
        words = [sys.executable, "-m", *shlex.split(line, comments=True)]
        with (self.root / "output").open("w") as log:
            return subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, text=True, cwd=self.root)

    def output(self) -> str:
        return (self.root / "output").read_text(errors="replace")

    def run(self, line: str) -> None:
        status = self.begin(line).wait(COMMAND_S)
        assert status == 0, f"{line}\n{self.output()[-4000:]}"

    def run_until_stopped(self, line: str) -> None:
        """Run it until it has shown something, and stop it as Ctrl-C does."""
        running = self.begin(line)
        began_s = time.monotonic()

        def has_shown() -> bool:
            return bool(self.output()) or any(self.root.glob("tables/*/*.parquet"))

        wait_until(
            lambda: running.poll() is not None or (time.monotonic() - began_s > WARM_UP_S and has_shown()),
            "the first output",
            COMMAND_S,
        )
        assert running.poll() is None, f"{line}\n{self.output()[-4000:]}"
        running.send_signal(signal.SIGINT)
        assert running.wait(COMMAND_S) in (0, 130), f"{line}\n{self.output()[-4000:]}"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A broker whose topics Orders and Payments have messages with keys, as JSON."""
    with running_broker({"defaultTopicQueueNums": "4", "mappedFileSizeCommitLog": str(8 << 20)}) as broker:
        with Producer("page", ProducerOptions(name_servers=broker.namesrv, send_timeout=10, trace=True)) as producer:
            for topic in ("Orders", "Payments"):
                bodies = [json.dumps({"amount": number}).encode() for number in range(MESSAGES)]
                readable([producer.send(Message(topic, body, keys=f"k{at}")) for at, body in enumerate(bodies)])
        (tmp_path / "broker.conf").write_text(f"storePathRootDir={broker.store}\nmappedFileSizeCommitLog={8 << 20}\n")
        yield Place(tmp_path, broker)


def test_the_commands_run_as_they_are_written(place: Place) -> None:
    lines = lines_of("docs/use/spark.md")
    assert len(lines) >= 11
    for line in lines:
        if not OF_A_STORE.search(line):
            (place.run_until_stopped if UNTIL_STOPPED.search(line) else place.run)(line)
    assert place.broker.stop() == 0
    os.rename(place.root / "archive", place.root / "archive-of-topics")  # one archive has one origin
    for line in filter(OF_A_STORE.search, lines):
        place.run(line)
    assert any((place.root / "archive").rglob("*.parquet")) and (place.root / "problems.parquet").exists()
