"""The clients under test as child processes: commands in, JSON lines out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from . import archives, toolchain

Event = dict[str, Any]

LANGUAGES = ("java-4.9.8", "java-5.3.3", "go", "python")
LOOK_S = 0.05
DEADLINE_S = 90.0  # generous: it bounds a failure, a working client needs seconds
ROOT = Path(__file__).resolve().parents[2]
JAVA_FLAGS = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


def command_of(language: str, home: Path) -> list[str]:
    """How to start the program of `language`. Raises toolchain.Missing."""
    if language == "go":
        return [str(toolchain.go_program())]
    if language == "python":
        return [sys.executable, str(Path(__file__).parent / "python" / "main.py")]
    directory = toolchain.java_directory(language.removeprefix("java-"))
    class_path = archives.class_path(directory / "lib", directory / "interop.jar")
    return [
        "java",
        *JAVA_FLAGS,
        *archives.flags(directory),
        f"-Duser.home={home}",
        "-cp",
        class_path,
        "interop.Interop",
    ]


def java_flags(*given: dict[str, str]) -> list[str]:
    """The system properties by which official servers and clients speak TLS and check servers."""
    found = {"tls.test.mode.enable": "false", "tls.enable": "true", "tls.client.authServer": "true"}
    for one in given:
        found |= one
    return [f"-D{key}={value}" for key, value in found.items() if key != "useTLS"]


@attrs.define(eq=False)
class Program:
    """One running client. Its events arrive in `events`; waiting for one has a deadline and says what was missing."""

    name: str
    process: subprocess.Popen[str]
    errors: Path
    events: list[Event] = attrs.field(factory=list)
    ended: bool = False
    _changed: threading.Condition = attrs.field(factory=threading.Condition)

    def read(self) -> None:
        """In a thread of its own: collect lines until the program ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except json.JSONDecodeError:
                event = {"event": "noise", "line": line}
            event["arrived_s"] = time.monotonic()
            with self._changed:
                self.events.append(event)
                self._changed.notify_all()
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Return when `condition()` holds; it is looked at after each event."""
        deadline = time.monotonic() + DEADLINE_S
        with self._changed:
            while not condition():
                remaining = deadline - time.monotonic()
                if self.ended or remaining <= 0:
                    why = "ended" if self.ended else "is late"
                    raise AssertionError(f"{self.name} {why}, waiting for {what}\n{self.describe()}")
                self._changed.wait(remaining)

    def of_kind(self, kind: str) -> list[Event]:
        return [event for event in list(self.events) if event["event"] == kind]

    @property
    def messages(self) -> list[Event]:
        return self.of_kind("message")

    @property
    def queues(self) -> list[int] | None:
        """The queues it said last that it has."""
        said = self.of_kind("queues")
        return said[-1]["queues"] if said else None

    def wait_ready(self) -> None:
        self.wait_until(lambda: self.of_kind("ready"), "ready")

    def wait_messages(self, count: int) -> list[Event]:
        self.wait_until(lambda: len(self.messages) >= count, f"{count} messages")
        return self.messages

    def leave(self) -> None:
        """End its input and wait for an orderly end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.wait_end()

    def wait_end(self) -> None:
        try:
            status = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end\n{self.describe()}") from None
        self.wait_until(lambda: self.ended, "the end of its output")
        assert status == 0, f"{self.name} ended with {status}\n{self.describe()}"
        assert self.of_kind("done"), f"{self.name} ended without done\n{self.describe()}"

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(DEADLINE_S)

    def describe(self) -> str:
        events = "\n".join(str(event)[:300] for event in self.events[-5:])
        kinds = {kind: len(self.of_kind(kind)) for kind in sorted({event["event"] for event in self.events})}
        return f"events {kinds}, last:\n{events}\nerrors:\n{self.errors.read_text(errors='replace')[-3000:]}"


def wait_for_all(programs: list[Program], count: int) -> None:
    """Wait until they have `count` messages of one topic together.

    A message counts once, also if two members got it because its queue moved before the offset was committed.
    """
    deadline = time.monotonic() + DEADLINE_S
    while len({(one["queueId"], one["queueOffset"]) for program in programs for one in program.messages}) < count:
        late = "\n".join(f"{program.name}: {program.describe()}" for program in programs)
        assert time.monotonic() < deadline, f"{count} messages did not come\n{late}"
        assert not any(program.ended for program in programs), late
        time.sleep(LOOK_S)


@attrs.define(eq=False)
class Launcher:
    """Starts programs for one test against one name server; `close` ends what is left. `place`: the first words of a
    command that runs in another network."""

    namesrv: str
    directory: Path
    place: Sequence[str] = ()
    programs: list[Program] = attrs.field(factory=list)

    def start(self, language: str, command: str, **arguments: object) -> Program:
        """For example start("go", "push", topic="T", group="G", orderly="true")."""
        home = self.directory / f"home-{len(self.programs)}"
        home.mkdir()
        words = [*self.place, *command_of(language, home), command, "--namesrv", self.namesrv]
        for name, value in arguments.items():
            words += [f"--{name}", str(value)]
        errors = self.directory / f"errors-{len(self.programs)}.log"
        environment = os.environ | {
            "HOME": str(home),
            "PYTHONPATH": str(ROOT),
            "ROCKETMQ_GO_LOG_LEVEL": "warn",
            "NAMESRV_ADDR": self.namesrv,
        }
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
                text=True,
                encoding="utf-8",
            )
        program = Program(f"{language} {command}", process, errors)
        threading.Thread(target=program.read, daemon=True).start()
        self.programs.append(program)
        return program

    def run(self, language: str, command: str, **arguments: object) -> Program:
        """Start, and wait for its end; for programs that end by themselves."""
        program = self.start(language, command, **arguments)
        program.wait_end()
        return program

    def close(self) -> None:
        for program in self.programs:
            program.kill()
            for pipe in (program.process.stdin, program.process.stdout):
                if pipe is not None:
                    program.wait_until(lambda program=program: program.ended, "the end of its output")
                    pipe.close()
