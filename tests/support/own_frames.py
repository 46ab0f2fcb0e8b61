"""The bytes on the HA port between brokers of rocketpy, made by hand (csrc/replication/frames.h)."""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
import zlib
from typing import Any

MAGIC = bytes.fromhex("ff52504841000002")
CHALLENGE, HELLO, WELCOME, REFUSE, DATA, HEARTBEAT, ACK, _, FENCED = range(1, 10)
NONCE = "0123456789abcdef" * 2


def frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">IB", 1 + len(payload), kind) + payload


def json_frame(kind: int, **fields: Any) -> bytes:
    return frame(kind, json.dumps(fields).encode())


def ack(position: int, epoch: int = 0) -> bytes:
    return frame(ACK, struct.pack(">qi", position, epoch))


def fenced(epoch: int) -> bytes:
    return frame(FENCED, struct.pack(">i", epoch))


def data_frame(position: int, data: bytes, *, end: int | None = None, crc: int | None = None, epoch: int = 0) -> bytes:
    """`end`: the field `confirmed`, which names the master's end without failover."""
    end = position + len(data) if end is None else end
    crc = zlib.crc32(data) if crc is None else crc
    return frame(DATA, struct.pack(">qqiI", position, end, epoch, crc) + data)


def heartbeat(end: int, *, confirmed: int | None = None, epoch: int = 0) -> bytes:
    confirmed = end if confirmed is None else confirmed
    return frame(HEARTBEAT, struct.pack(">qqiq", end, confirmed, epoch, 1_700_000_000_000))


def hello_fields(log: bytes, *, begin: int = 0, tail_max: int = 65_536, **changes: Any) -> dict[str, Any]:
    """HELLO of a slave with this log, whose file size is 65536."""
    tail_begin = max(begin, len(log) - tail_max)
    tail = {"begin": tail_begin, "crc": zlib.crc32(log[tail_begin:])} if len(log) > begin else None
    return {
        "version": 2,
        "cluster": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": 1,
        "member": "",
        "incarnation": "",
        "fileSize": 65_536,
        "begin": begin,
        "end": len(log),
        "tail": tail,
        "epochs": [],
        "nonce": NONCE,
        "proof": "",
    } | changes


def proof_of(secret: bytes, role: str, challenge: str, fields: dict[str, Any], nonce: str = NONCE) -> str:
    """The proof of a frame with these fields, as docs/understand/replication-protocol.md has it."""
    said = {name: value for name, value in fields.items() if name != "proof"}
    text = "\n".join((role, challenge, nonce, json.dumps(said, sort_keys=True, separators=(",", ":"))))
    return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()


def split(stream: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """The whole frames (type, payload), and what is behind them."""
    found = []
    while len(stream) >= 5:
        size, kind = struct.unpack_from(">IB", stream)
        if len(stream) < 4 + size:
            break
        found.append((kind, stream[5 : 4 + size]))
        stream = stream[4 + size :]
    return found, stream


def log_in(frames: list[tuple[int, bytes]], position: int) -> bytes:
    """The bytes of the log in DATA, which begin at `position` and have no gap; each CRC is right."""
    log = b""
    for kind, payload in frames:
        if kind != DATA:
            continue
        at, _, epoch, crc = struct.unpack_from(">qqiI", payload)
        data = payload[24:]
        assert (at, epoch, crc) == (position + len(log), 0, zlib.crc32(data))
        log += data
    return log
