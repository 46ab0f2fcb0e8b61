"""A supervisor over toy workers in real processes, and the journal in which they say what they do."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from rocketpy.native.core import lib
from rocketpy.reactor.ring import WorkerBlock
from rocketpy.reactor.supervisor import ParentProcess, Supervisor
from rocketpy.reactor.worker_spec import RestartPolicy, WorkerContext, WorkerSpec
from tests.support.waiting import is_readable

Main = Callable[[WorkerContext], None]
QUICK = RestartPolicy(limit=3, backoff_s=0.001)


@attrs.define
class Journal:
    """A pipe into which everyone writes lines; whole lines arrive whole."""

    read_fd: int
    write_fd: int
    _rest: bytes = b""
    _lines: list[str] = attrs.field(factory=list)

    @classmethod
    def open(cls) -> Journal:
        return cls(*os.pipe())

    def say(self, line: str) -> None:
        os.write(self.write_fd, line.encode() + b"\n")

    def line(self) -> str:
        """The next line; fails when none comes."""
        while not self._lines:
            assert is_readable(self.read_fd, 20), "nothing was said"
            *whole, self._rest = (self._rest + os.read(self.read_fd, 65536)).split(b"\n")
            self._lines += [one.decode() for one in whole]
        return self._lines.pop(0)

    def lines_until(self, last: str) -> list[str]:
        found = [self.line()]
        while found[-1] != last:
            found.append(self.line())
        return found

    def rest(self) -> list[str]:
        """Return the lines that are left when all writers have ended."""
        os.close(self.write_fd)
        while data := os.read(self.read_fd, 65536):
            self._rest += data
        os.close(self.read_fd)
        return [*self._lines, *self._rest.decode().split()]


@attrs.define
class Run:
    journal: Journal
    pid: int
    blocks: dict[str, WorkerBlock]

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)


class Launcher:
    """Runs supervisors, each in a child of its own; ends what is left of them."""

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def __call__(
        self,
        mains: Mapping[str, Main | tuple[Main, Mapping[str, object]]],
        *,
        stop_timeout_s: float = 10.0,
        **process: Any,
    ) -> Run:
        """A supervisor over {name: main or (main, spec fields)}; `process`: fields of its ParentProcess."""
        journal = Journal.open()
        blocks = {name: WorkerBlock(name, index) for index, name in enumerate(mains)}
        pid = os.fork()
        if pid == 0:
            status = 99
            logging.root.handlers.clear()  # those of pytest keep lines in memory
            try:
                specs = [_spec(blocks[name], entry, journal) for name, entry in mains.items()]
                status = _supervisor(specs, journal, stop_timeout_s, process).run()
            finally:
                sys.stderr.flush()
                os._exit(status)
        self._runs.append(Run(journal, pid, blocks))
        return self._runs[-1]

    def close(self) -> None:
        for run in self._runs:
            if run.pid:
                os.kill(run.pid, signal.SIGKILL)
                os.waitpid(run.pid, 0)
            for block in run.blocks.values():
                os.close(block.doorbell)


def _spec(block: WorkerBlock, entry: Main | tuple[Main, Mapping[str, object]], journal: Journal) -> WorkerSpec:
    main, given = entry if isinstance(entry, tuple) else (entry, {})
    fields: dict[str, Any] = {"restart": QUICK, "keep_fds": (), **given}
    fields["keep_fds"] = (journal.write_fd, *fields["keep_fds"])
    return WorkerSpec(name=block.name, role=block.name, block=block, main=Journaled(main, journal), **fields)


def _supervisor(
    specs: list[WorkerSpec], journal: Journal, stop_timeout_s: float, process: Mapping[str, Any]
) -> Supervisor:
    return Supervisor(
        specs,
        stop_timeout_s,
        on_ready=lambda: journal.say("all ready"),
        on_reload=lambda: journal.say("reload"),
        process=ParentProcess(
            jitter=lambda: 0.0, log=lambda text, *values: journal.say(f"log: {text % values}"), **process
        ),
    )


@attrs.frozen
class Journaled:
    """A toy main, given the journal to speak into."""

    main: Callable[..., int | None]
    journal: Journal

    def __call__(self, context: WorkerContext) -> int | None:
        return self.main(context, self.journal)


def serve(context: WorkerContext, journal: Journal) -> None:
    """Ready, then wait for the order to leave."""
    journal.say(f"{context.name} serves {context.block.epoch} {os.getpid()}")
    context.report_ready()
    while context.block.stop != lib.RP_STOP_LEAVE:
        context.block.beat(time.monotonic_ns())
        lib.rp_worker_sleep(context.block.pointer, 1_000_000_000)
    journal.say(f"{context.name} leaves")


def pid_in(line: str) -> int:
    return int(line.split()[-1])
