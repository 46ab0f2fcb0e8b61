"""A slave of rocketpy on a raw socket."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.master_rig import MasterRig
from tests.support.own_frames import (
    CHALLENGE,
    HELLO,
    MAGIC,
    hello_fields,
    json_frame,
    log_in,
    proof_of,
    split,
)

SECRET = b"a secret of 20 bytes"


class OwnSlave:
    """A slave that has sent the magic."""

    def __init__(self, rig: MasterRig, **options: Any) -> None:
        self.rig = rig
        self.socket = rig.connect(**options)
        self.frames: list[tuple[int, bytes]] = []
        self._rest = b""
        rig.say_bytes(self.socket, MAGIC)
        kind, payload = self.next()
        assert kind == CHALLENGE
        fields = json.loads(payload)
        assert fields["version"] == 2
        self.challenge: str = fields["nonce"]

    def read(self, size: int = 1 << 20) -> None:
        try:
            data = self.socket.recv(size)
        except BlockingIOError:
            return
        assert data, "the master has closed the connection"
        self._rest += data
        frames, self._rest = split(self._rest)
        self.frames += frames

    def next(self) -> tuple[int, bytes]:
        def look() -> bool:
            self.read()
            return bool(self.frames)

        self.rig.turn_until(look)
        return self.frames.pop(0)

    def say(self, log: bytes, *, secret: bytes = b"", **changes: Any) -> tuple[int, dict[str, Any]]:
        """HELLO of a slave with this log, and with the proof that it knows the secret; returns the answer."""
        fields = hello_fields(log, **changes)
        if secret:
            fields["proof"] = proof_of(secret, "slave", self.challenge, fields)
        return self.send(fields)

    def send(self, fields: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """HELLO as it is; returns the answer."""
        self.rig.say_bytes(self.socket, json_frame(HELLO, **fields))
        kind, payload = self.next()
        return kind, json.loads(payload)

    def log_from(self, position: int, size: int) -> bytes:
        """Bytes of the log, once there are so many of them."""

        def look() -> bool:
            self.read()
            return len(log_in(self.frames, position)) >= size

        self.rig.turn_until(look)
        return log_in(self.frames, position)
