"""A master and slaves of rocketpy: the handshake, DATA and ACK on raw sockets, and whom it refuses."""

from __future__ import annotations

import logging
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.native.core import lib
from tests.support.master_rig import FILE_SIZE, MasterRig, report
from tests.support.own_frames import (
    DATA,
    HEARTBEAT,
    REFUSE,
    WELCOME,
    ack,
    hello_fields,
    log_in,
    proof_of,
)
from tests.support.own_slave import SECRET, OwnSlave
from tests.support.waiting import is_readable, wait_until

Open = Callable[..., MasterRig]


def test_a_slave_with_a_part_of_the_log_gets_the_rest(rig: MasterRig) -> None:
    rig.append(2 * FILE_SIZE + 100)
    slave = OwnSlave(rig)
    known = rig.log[: FILE_SIZE + 77]
    kind, welcome = slave.say(known)
    assert kind == WELCOME
    assert welcome == {
        "version": 2,
        "begin": 0,
        "end": len(rig.log),
        "epochs": [],
        "start": len(known),
        "truncate": None,
        "tail": None,
        "proof": "",
    }
    assert slave.log_from(len(known), len(rig.log) - len(known)) == rig.log[len(known) :]
    assert not rig.replicated, "nothing is acknowledged before ACK"
    rig.say_bytes(slave.socket, ack(len(known)) + ack(len(rig.log)))
    assert rig.replicated == len(rig.log) and rig.can_wait(len(rig.log))
    slave.frames.clear()
    more = rig.append(333)
    assert slave.log_from(len(rig.log) - 333, 333) == more


def test_an_empty_slave_gets_the_log_from_its_first_file_on(rig: MasterRig) -> None:
    rig.control.header.min_phy_offset = FILE_SIZE
    rig.append(3 * FILE_SIZE + 100)
    slave = OwnSlave(rig)
    assert slave.say(b"")[1]["start"] == FILE_SIZE
    assert slave.log_from(FILE_SIZE, 2 * FILE_SIZE + 100) == rig.log[FILE_SIZE:]


def test_a_frame_does_not_change_on_its_way_to_a_slow_slave(rig: MasterRig) -> None:
    """The log grows while a frame is half sent, and heartbeats fall due."""
    rig.append(30 * FILE_SIZE + 11)
    slave = OwnSlave(rig, buffer_bytes=65_536)
    assert slave.say(b"")[0] == WELCOME
    sizes, growths, got = random.Random(7), 20, 0
    rig.pass_time(6.0)
    while got < len(rig.log):
        rig.turn(1)
        if growths:
            rig.append(500)
            growths -= 1
        if growths == 10:
            rig.pass_time(6.0)
        assert is_readable(slave.socket.fileno(), 30)
        slave.read(sizes.randrange(1, 100_000))
        got = sum(len(payload) - 24 for kind, payload in slave.frames if kind == DATA)
    assert log_in(slave.frames, 0) == rig.log
    assert {kind for kind, _ in slave.frames} <= {DATA, HEARTBEAT}


def test_a_heartbeat_names_the_end_of_the_log_and_the_time(rig: MasterRig) -> None:
    rig.append(1000)
    slave = OwnSlave(rig)
    slave.say(rig.log)
    rig.pass_time(5.0)
    kind, payload = slave.next()
    end, confirmed, epoch, time_ms = struct.unpack(">qqiq", payload)
    assert (kind, end, confirmed, epoch) == (HEARTBEAT, 1000, 1000, 0) and time_ms > 1_700_000_000_000


def other(log: bytes, at: int) -> bytes:
    changed = bytearray(log)
    changed[at] ^= 1
    return bytes(changed)


REFUSALS: list[tuple[str, Callable[[bytes], bytes], dict[str, Any], str]] = [
    ("version", lambda log: log, {"version": 4}, "stranger"),
    ("group", lambda log: log, {"cluster": "Other"}, "stranger"),
    ("group", lambda log: log, {"brokerName": "b\nfalse line"}, "stranger"),
    ("secret", lambda log: log, {"proof": "00"}, "stranger"),
    ("fileSize", lambda log: log, {"fileSize": 1 << 20}, "diverged"),
    ("longer", lambda log: log + b"x", {}, "longer"),
    ("behind", lambda log: log[:500], {}, "behind"),
    ("behind", lambda log: log[:FILE_SIZE], {"tail": None}, "behind"),  # nothing to compare
    ("diverged", lambda log: other(log, -1), {}, "diverged"),
    ("diverged", lambda log: other(log, len(log) - 65_536), {}, "diverged"),
    ("diverged", lambda log: log, {"tail": None}, "diverged"),
    ("diverged", lambda log: log, {"tail": {"begin": 70_000, "crc": 0}}, "diverged"),
    ("version", lambda log: log, {"end": -1}, "stranger"),
    ("version", lambda log: log, {"nonce": "x"}, "stranger"),
    ("version", lambda log: log, {"tail": {"begin": 0, "crc": 2**32}}, "stranger"),
]


@pytest.mark.parametrize(("code", "log", "changes", "counted"), REFUSALS)
def test_a_slave_that_does_not_fit_gets_no_byte_and_a_reason(
    rig: MasterRig,
    caplog: pytest.LogCaptureFixture,
    code: str,
    log: Callable[[bytes], bytes],
    changes: dict[str, Any],
    counted: str,
) -> None:
    rig.control.header.min_phy_offset = FILE_SIZE
    rig.append(2 * FILE_SIZE)
    slave = OwnSlave(rig)
    with caplog.at_level(logging.WARNING):
        kind, refusal = slave.say(log(rig.log), **changes)
    assert kind == REFUSE and refusal["code"] == code and refusal["reason"] in caplog.text
    assert len(caplog.records) == 1 and "\n" not in caplog.records[0].getMessage()
    assert not rig.is_open(slave.socket) and not rig.slaves() and not rig.replicated
    assert rig.table.closed()[counted] == 1


def test_both_sides_prove_that_they_know_the_secret(open_rig: Open) -> None:
    rig = open_rig(secret=SECRET, rocketpy_only=1)
    rig.append(1000)
    slave = OwnSlave(rig)
    kind, welcome = slave.say(rig.log[:100], secret=SECRET)
    assert kind == WELCOME and welcome["proof"] == proof_of(SECRET, "master", slave.challenge, welcome)
    assert slave.log_from(100, 900) == rig.log[100:]


@pytest.mark.parametrize(
    "proof",
    [
        lambda challenge, fields: "",
        lambda challenge, fields: proof_of(SECRET, "master", challenge, fields),
        lambda challenge, fields: proof_of(b"another secret of it", "slave", challenge, fields),
        lambda challenge, fields: proof_of(SECRET, "slave", "0" * 32, fields),
        lambda challenge, fields: proof_of(SECRET, "slave", challenge, fields, "f" * 32),
        lambda challenge, fields: "\ud800",
    ],
)
def test_without_the_right_proof_nothing_is_sent(open_rig: Open, proof: Callable[[str, Any], str]) -> None:
    rig = open_rig(secret=SECRET, rocketpy_only=1)
    rig.append(1000)
    slave = OwnSlave(rig)
    fields = hello_fields(rig.log[:100])
    kind, refusal = slave.send(fields | {"proof": proof(slave.challenge, fields)})
    assert kind == REFUSE and refusal["code"] == "secret"
    assert refusal["proof"] == proof_of(SECRET, "master", slave.challenge, refusal)
    assert not rig.is_open(slave.socket)


CHANGED_ON_THE_WAY: list[dict[str, Any]] = [
    {"begin": 1},
    {"end": 0, "tail": None},
    {"end": 90},
    {"tail": None},
    {"tail": {"begin": 0, "crc": 0}},
    {"epochs": [[1, 0]]},
    {"member": "m"},
    {"incarnation": "2e"},
    {"brokerId": 2},
    {"fileSize": 1 << 20},
    {"cluster": "Other"},
    {"brokerName": "broker-b"},
]


@pytest.mark.parametrize("change", CHANGED_ON_THE_WAY)
def test_a_hello_that_was_changed_on_the_way_is_refused(open_rig: Open, change: dict[str, Any]) -> None:
    """Who has no secret, but can change bytes between two brokers, cannot move a position, an epoch or a name.
    Fault: Positions and epochs in a HELLO could be changed on the way."""
    rig = open_rig(secret=SECRET, rocketpy_only=1)
    rig.append(1000)
    slave = OwnSlave(rig)
    said = hello_fields(rig.log[:100])
    kind, refusal = slave.send(said | {"proof": proof_of(SECRET, "slave", slave.challenge, said)} | change)
    assert (kind, refusal["code"]) == (REFUSE, "secret") and not rig.is_open(slave.socket)
    assert not rig.replicated and not rig.table.sent_bytes


def test_a_field_that_is_not_known_is_no_part_of_the_proof(open_rig: Open) -> None:
    rig = open_rig(secret=SECRET, rocketpy_only=1)
    rig.append(1000)
    slave = OwnSlave(rig)
    said = hello_fields(rig.log[:100])
    proof = proof_of(SECRET, "slave", slave.challenge, said)
    assert slave.send(said | {"proof": proof, "later": [[[1e300]]]})[0] == WELCOME


def test_with_a_secret_a_slave_of_the_reference_is_refused(open_rig: Open, caplog: pytest.LogCaptureFixture) -> None:
    rig = open_rig(secret=SECRET, rocketpy_only=1)
    rig.append(1000)
    slave = rig.connect()
    slave.sendall(report(0))
    rig.wait_until_closed(slave)
    assert rig.table.closed()["stranger"] == 1 and not rig.table.sent_bytes
    assert "cannot prove that it knows the secret" in caplog.text


def test_each_connection_has_a_challenge_of_its_own(rig: MasterRig) -> None:
    assert len({OwnSlave(rig).challenge for _ in range(5)}) == 5


@pytest.mark.parametrize("lie", [1001, 99, -1, 2**40])
def test_an_ack_that_cannot_be_true_acknowledges_nothing(rig: MasterRig, lie: int) -> None:
    rig.append(1000)
    slave = OwnSlave(rig)
    slave.say(b"")
    slave.log_from(0, 1000)
    rig.say_bytes(slave.socket, ack(500))
    slave.socket.sendall(ack(lie))
    rig.wait_until_closed(slave.socket)
    assert rig.replicated == 500


def test_slaves_of_both_kinds_at_once(rig: MasterRig) -> None:
    rig.append(1000)
    reference, own = rig.connect(0), OwnSlave(rig)
    own.say(b"")
    assert rig.received(reference, 1000)[12:] == rig.log and own.log_from(0, 1000) == rig.log
    rig.say(reference, 700)
    rig.say_bytes(own.socket, ack(900))
    assert rig.replicated == 900
    assert sorted(slave.acked_phy_offset for slave in rig.slaves()) == [700, 900]
    assert int(lib.RP_HA_TYPE_ACK) == ack(0)[4]
    wait_until(lambda: len(rig.slaves()) == 2)
