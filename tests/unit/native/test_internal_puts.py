"""Puts of the manager's own: what bounds them, and how the manager learns what became of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the fast path is C")

from rocketpy.native.core import lib
from rocketpy.reactor.worker_messages import decode_put_result, encode_put
from rocketpy.remoting.fast_path import MessageToPut, PutResult
from tests.support.fast_path import FastPath

FILE_SIZE = 128 * 1024


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[FastPath]:
    rig = FastPath(tmp_path, file_size=FILE_SIZE)
    rig.add_topic("T")
    rig.tables_end()
    yield rig
    rig.close()


def outcomes(rig: FastPath) -> dict[int, PutResult]:
    """Token to outcome of every put that was answered since the last call."""
    rig.turn()
    records = [record for kind, record in rig.for_manager() if kind == lib.RP_MSG_PUT_RESULT]
    return dict(decode_put_result(record, ("127.0.0.1", 10911)) for record in records)


def test_a_put_of_our_own_may_be_larger_than_a_client_s(rig: FastPath) -> None:
    """It was taken when maxMessageSize was higher.
    Fault: A delayed message larger than a lowered maxMessageSize was retried for ever."""
    rig.tell_broker(6, 100)
    rig.put(encode_put(MessageToPut("T", 0, b"x" * 5000, b""), 1, 0))
    assert outcomes(rig)[1].code == 0


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (MessageToPut("T", 0, b"x" * FILE_SIZE, b""), 13),
        (MessageToPut("T", 0, b"x", b"p" * 40_000), 13),
        (MessageToPut("T" * 128, 0, b"x", b""), 17),
        (MessageToPut("T", 4, b"x", b""), 17),
        (MessageToPut("gone", 0, b"x", b""), 17),
    ],
)
def test_what_can_never_be_stored_is_refused_for_good(rig: FastPath, message: MessageToPut, code: int) -> None:
    rig.put(encode_put(message, 1, 0))
    rig.put(encode_put(MessageToPut("T", 0, b"next", b""), 2, 0))
    found = outcomes(rig)
    assert found[1].code == code and found[1].is_final_refusal and not found[1].is_stored
    assert found[2].is_stored


def test_what_a_full_disk_refuses_may_be_stored_later(rig: FastPath) -> None:
    control = lib.rp_control_header(rig.block)
    control.running_flags = 16
    rig.put(encode_put(MessageToPut("T", 0, b"x", b""), 1, 0))
    refused = outcomes(rig)[1]
    assert refused.code == 14 and not refused.is_final_refusal
    control.running_flags = 0
    rig.put(encode_put(MessageToPut("T", 0, b"x", b""), 2, 0))
    assert outcomes(rig)[2].is_stored
