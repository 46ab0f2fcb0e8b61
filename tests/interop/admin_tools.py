"""The official mqadmin 4.9.7 and ours behind one handle, and the cluster that both are tried on.

A cluster is filled by a Java program (admin_java/Prepare.java), whose consumers stay while the commands run.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import IO, Any, Protocol

import attrs
import trio

from rocketpy.admin.base import Environment
from rocketpy.admin.cli import main
from tests.interop import archives, toolchain

from .brokers import AnyBroker, committed_offsets, create_topic, max_offsets, running_target, wait_until
from .java_broker import COMMON_FLAGS, write_logback

TOPIC, QUEUES = "orders", 4
GROUPS = ("stopped", "billing", "audit", "radio", "puller")
TOOL_GROUP = "TOOLS_CONSUMER"  # gets a retry topic, too, if a consumer of Java's tool runs for more than a second
ENDLESS_MS = 4_000  # a command that never ends is interrupted after this time
LONGEST_MS = 60_000
SETTINGS = {
    "brokerName": "broker-a",
    "traceTopicEnable": "true",
    "flushConsumerOffsetInterval": "500",
    "autoCreateTopicEnable": "true",
    "transactionCheckInterval": "3600000",  # the first check makes a topic in Java's broker, a minute after its start
}


@attrs.frozen
class Printed:
    """What one command printed, and whether it succeeded."""

    output: str
    errors: str
    succeeded: bool


@attrs.frozen
class Sent:
    """A message of the preparation."""

    key: str
    unique_id: str
    offset_id: str
    queue_id: int
    queue_offset: int


class Tool(Protocol):
    """Runs the words of one command line."""

    def __call__(self, words: list[str], *, endless: bool = False) -> Printed: ...


@attrs.define
class JavaTool:
    """The official tool in one JVM, and the clients of the preparation."""

    process: subprocess.Popen[bytes]

    def __call__(self, words: list[str], *, endless: bool = False) -> Printed:
        output, errors = self._ask([str(ENDLESS_MS if endless else LONGEST_MS), *words])
        return Printed(output, errors, "Exception" not in errors)

    def prepare(self, namesrv: str) -> list[Sent]:
        output, errors = self._ask(["prepare", namesrv])
        lines = [line.split() for line in output.splitlines()]
        assert ["done"] in lines, output + errors
        return [Sent(*line[1:4], int(line[4]), int(line[5])) for line in lines if line[0] == "sent"]

    def _ask(self, words: list[str]) -> tuple[str, str]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\t".join(words).encode() + b"\n")
        self.process.stdin.flush()
        sizes = self.process.stdout.readline().split()
        assert len(sizes) == 2, "the Java tool has ended"
        output, errors = (read_exactly(self.process.stdout, int(size)).decode() for size in sizes)
        return output, errors


def read_exactly(source: IO[bytes], size: int) -> bytes:
    data = source.read(size)
    assert len(data) == size, "the Java tool has ended"
    return data


def python_tool(words: list[str], *, endless: bool = False) -> Printed:
    """Our tool, in this process."""
    limit_ms = ENDLESS_MS if endless else LONGEST_MS

    def run(function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        async def limited() -> Any:
            with trio.move_on_after(limit_ms / 1000):
                return await function(*arguments)

        return trio.run(limited)

    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        status = main(words, environment=Environment(run=run))
    return Printed(output.getvalue(), errors.getvalue(), status == 0)


def compile_tool(directory: Path) -> Path:
    """The class path of admin_java. Raises toolchain.Missing."""
    sources = sorted((Path(__file__).parent / "admin_java").glob("*.java"))
    library = f"{toolchain.server_directory()}/lib/*"
    subprocess.run(["javac", "-nowarn", "-Xlint:-removal", "-cp", library, "-d", directory, *sources], check=True)
    return directory


@contextlib.contextmanager
def java_tool(classes: Path, home: Path) -> Iterator[JavaTool]:
    """A JVM that runs the official tool; it ends here."""
    home.mkdir()
    write_logback(home)
    server = toolchain.server_directory()
    class_path = archives.class_path(server / "lib", classes)
    words = ["java", "-Xmx192m", *COMMON_FLAGS, *archives.flags(server)]
    words += ["-Djava.security.manager=allow", f"-Duser.home={home}"]
    with (home / "errors.log").open("wb") as errors:
        process = subprocess.Popen(
            [*words, "-cp", class_path, "AdminTool"],
            cwd=home,
            env=os.environ | {"ROCKETMQ_HOME": str(home), "HOME": str(home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    try:
        yield JavaTool(process)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


@attrs.frozen
class Session:
    """A filled cluster and one of the tools."""

    broker: AnyBroker
    tool: Tool
    sent: list[Sent]


@contextlib.contextmanager
def session(target: str, tool: str, classes: Path, home: Path) -> Iterator[Session]:
    """A new broker of the kind `target`, filled, and the tool `java` or `rocketpy`."""
    with running_target(target, settings=SETTINGS) as broker, java_tool(classes, home) as java:
        create_topic(broker, TOPIC, QUEUES)
        for group in (*GROUPS, TOOL_GROUP):  # else a consumer may find its own one seconds later
            create_topic(broker, f"%RETRY%{group}", 1)
        sent = java.prepare(broker.namesrv)
        for group in ("billing", "audit", "puller"):
            wait_until(
                lambda group=group: (
                    committed_offsets(broker, group, TOPIC, QUEUES) == max_offsets(broker, TOPIC, QUEUES)
                ),
                f"the offsets of {group}",
            )
        yield Session(broker, java if tool == "java" else python_tool, sent)
