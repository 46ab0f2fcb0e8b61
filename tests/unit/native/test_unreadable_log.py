"""Pulls with a SQL92 expression whose CommitLog file cannot be opened now: nothing is passed over."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the pull worker is C")

from rocketpy.broker.fast_path.filter_messages import encode_subscription
from rocketpy.filter.parser import parse
from rocketpy.filter.program import compile_program
from rocketpy.native.core import ffi, lib
from rocketpy.remoting.command import RemotingCommand
from tests.support.fast_path import FastPath
from tests.support.fast_path_requests import pull, ready, records_of, send_v2

LOG_FILE = 65_536
BODY = b"x" * 20_000
REMARK = f"the broker cannot read its CommitLog now ({os.strerror(errno.EMFILE)}); pull again later"


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process can open no further file."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[FastPath]:
    """With a group that wants messages with odd offsets. Three messages fit a log file."""
    directory = ffi.new("char[]", str(tmp_path / "commitlog").encode())
    rig = ready(FastPath(tmp_path, {"commitlog_directory": directory}, file_size=LOG_FILE))
    program = compile_program(parse("wanted = 'yes'"))
    flags = lib.RP_SUBSCRIPTION_ALL
    rig.tell_pull(lib.RP_MSG_SUBSCRIPTION, encode_subscription("G", "T", flags=flags, sub_version=1, program=program))
    put(rig, 0, 3)
    assert found(pulled(rig, 0)) == ([1], "3")  # has a mapping of the first log file now, and its queue's file open
    put(rig, 3, 7)
    yield rig
    rig.close()


def put(rig: FastPath, begin: int, end: int) -> None:
    for number in range(begin, end):
        rig.frame(send_v2(body=BODY, properties="wanted\x01yes" if number % 2 else "wanted\x01no"))
        rig.turn()
    assert {reply.code for _, reply in rig.answers()} == {0}


def pulled(rig: FastPath, offset: int, *, opens_files: bool = True) -> RemotingCommand:
    rig.frame(pull(offset, flags=0))
    with nullcontext() if opens_files else no_descriptors():
        rig.turn()
    ((_, reply),) = rig.answers()
    return reply


def found(reply: RemotingCommand) -> tuple[list[int], str | None]:
    return [record.queue_offset for record in records_of(reply)], reply.ext_field("nextBeginOffset")


def test_a_pull_ends_before_a_record_that_cannot_be_read(rig: FastPath) -> None:
    """Fault: A filtered pull skipped messages whose log file could not be mapped for a moment."""
    assert found(pulled(rig, 0, opens_files=False)) == ([1], "3")
    passed = pulled(rig, 2, opens_files=False)
    assert (passed.code, found(passed)) == (20, ([], "3"))
    refused = pulled(rig, 3, opens_files=False)
    assert (refused.code, refused.remark, found(refused)) == (1, REMARK, ([], "3"))
    assert rig.workers["pull"].counters[lib.RP_COUNT_LOG_UNREADABLE] == 1
    assert found(pulled(rig, 0)) == ([1, 3, 5], "7")


def test_a_record_whose_log_file_was_deleted_is_passed_over(rig: FastPath) -> None:
    (rig.root / "commitlog" / f"{LOG_FILE:020d}").unlink()
    assert found(pulled(rig, 2)) == ([], "7")
