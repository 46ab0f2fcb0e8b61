"""Work in a forked copy of a process: the bytes that come back, and each way in which none do."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.processes.workers import forked_copy
from rocketpy.processes.workers.forked_copy import CopyFailed, ForkedCopy
from tests.support.waiting import DEADLINE_S, wait_until


def made_by(work: Callable[[], bytes], within_s: float = DEADLINE_S) -> bytes:
    return ForkedCopy.begin(work, "rocketpy: copy").result(within_s)


def endless() -> bytes:
    while True:
        signal.pause()


def children() -> set[str]:
    """Return the processes that this one has forked, those of other tests among them."""
    return {pid for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()}


@pytest.fixture
def other_threads() -> Iterator[None]:
    """Threads that hold a lock, as there are in a manager: one of logging, one in a system call."""
    end = threading.Event()

    def hold() -> None:
        with logging.getLogger().handlers[0].lock or threading.Lock():
            held.set()
            end.wait()

    held = threading.Event()
    threads = [threading.Thread(target=hold), threading.Thread(target=end.wait)]
    for thread in threads:
        thread.start()
    held.wait()
    yield
    end.set()
    for thread in threads:
        thread.join()


@pytest.mark.usefixtures("other_threads")
def test_the_copy_has_what_is_here_and_changes_nothing_of_it() -> None:
    table = {"a": 1}

    def change() -> bytes:
        table["a"] += 1
        logging.getLogger(__name__).error("no thread that held the lock of the log is in the copy")
        return str(table).encode()

    assert made_by(change) == b"{'a': 2}"
    assert table == {"a": 1}


def test_large_bytes_come_whole() -> None:
    assert made_by(lambda: bytes(5_000_001)) == bytes(5_000_001)


def test_the_copy_has_the_standard_streams_and_its_output_alone() -> None:
    """A connection that this process closes is closed, whatever a copy of it does."""

    def open_ones() -> bytes:
        found = []
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # that of the listing is closed again
                found += [os.readlink(f"/proc/self/fd/{number}")] * (int(number) > 2)
        return "\n".join(found).encode()

    with socket.create_server(("127.0.0.1", 0)):
        assert made_by(open_ones) == b"/memfd:rocketpy: copy (deleted)"


def test_it_is_the_first_to_be_killed_where_memory_is_short() -> None:
    assert made_by(forked_copy.OOM_SCORE.read_bytes) == b"1000\n"


def test_signals_of_a_terminal_or_a_service_manager_do_not_end_it() -> None:
    def survive() -> bytes:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(os.getpid(), number)
        return b"alive"

    assert made_by(survive) == b"alive"


def test_an_exception_comes_back_as_text() -> None:
    def fail() -> bytes:
        raise ValueError("of a table")

    with pytest.raises(CopyFailed, match=r"^ValueError: of a table\n") as caught:
        made_by(fail)
    assert "in fail" in str(caught.value)


def test_a_copy_that_is_killed() -> None:
    with pytest.raises(CopyFailed, match=r"^its process was killed by SIGKILL$"):
        made_by(lambda: os.kill(os.getpid(), signal.SIGKILL) or b"")


def test_a_copy_that_ends_without_a_word() -> None:
    with pytest.raises(CopyFailed, match=r"^its process ended with status 3$"):
        made_by(lambda: os._exit(3))


def test_a_copy_that_hangs_is_killed() -> None:
    copy = ForkedCopy.begin(endless, "rocketpy: copy")
    with pytest.raises(CopyFailed, match=r"^it took more than 0 s$"):
        copy.result(0)
    assert not Path(f"/proc/{copy.pid}").exists()


def test_a_copy_that_makes_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_copy, "BYTES_MAX", 10)
    assert made_by(lambda: bytes(10)) == bytes(10)
    with pytest.raises(CopyFailed, match=r"^it has more than 10 bytes$"):
        made_by(lambda: bytes(11))


@pytest.mark.parametrize("missing", ["fork", "pidfd_open", "memfd_create"])
def test_no_process_or_descriptor_leaves_nothing_behind(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    before = os.listdir("/proc/self/fd"), children()
    monkeypatch.setattr(os, missing, refuse)
    with pytest.raises(BlockingIOError):
        made_by(endless)
    assert (os.listdir("/proc/self/fd"), children()) == before


SCRIPT = """
import signal
from rocketpy.processes.workers.forked_copy import ForkedCopy
print(ForkedCopy.begin(signal.pause, "rocketpy: copy").pid, flush=True)
signal.pause()
"""


def test_a_copy_dies_with_its_process() -> None:
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
        assert process.stdout.read() == "", "nobody holds the stream any more"
    wait_until(lambda: not is_running(pid))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False
