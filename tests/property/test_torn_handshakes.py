"""Handshakes in random pieces, cut off, damaged, or with bytes behind them: how one ends depends on its bytes alone.

Slaves of the reference, of rocketpy and of a group with automatic failover talk over socket pairs to the code that
accepts slaves. Each connection must end as a short model says, which sees all of its bytes at once. ROCKETPY_SEED
begins with another seed.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.native.core import lib
from rocketpy.replication import master as master_module
from rocketpy.replication.frames import FRAME, JSON_MAX, TLS_HANDSHAKE
from rocketpy.replication.handshake_messages import Extent, Hello, Refusal, Tail, Welcome
from rocketpy.replication.handshake_rules import encode_challenge, read_hello, start_for
from rocketpy.replication.master import REASON_OF
from rocketpy.replication.member_handshake_rules import join_for, tail_below
from rocketpy.replication.secret import Nonces
from rocketpy.replication.slave_table import REASONS
from tests.support.budget import budget
from tests.support.master_rig import MasterRig
from tests.support.torn_handshakes import (
    BEGIN,
    CHALLENGE,
    END,
    EPOCHS,
    Author,
    End,
    Last,
    Script,
    is_magic,
    open_rig,
    play,
)

FIRST_SEED, CASES = int(os.environ.get("ROCKETPY_SEED", 0)), budget(40, 300)
SLAVES = 6  # of a case, at once
OWN = Extent(BEGIN, END)
INT64_MAX = 2**63 - 1


class Model:
    """How connections to the master of `rig` must end."""

    def __init__(self, rig: MasterRig) -> None:
        self._rig = rig

    def end(self, script: Script) -> End:
        at_last = lib.RP_SLAVE_SILENT if script.last is Last.SILENCE else lib.RP_SLAVE_LEFT
        if script.first[:1] == TLS_HANDSHAKE:
            return End(b"", b"", lib.RP_SLAVE_NO_TLS)
        if len(script.first) < lib.RP_HA_SIZE_REPORT:
            return End(b"", b"", at_last)
        if not is_magic(script.first):
            return self._end_of_reports(script.first, at_last)
        if not script.is_challenged:  # it said more before the answer
            return End(b"", b"", lib.RP_SLAVE_IMPLAUSIBLE)
        answer, log, reason = self._answer(script.hello, at_last)
        return End(b"" if script.last is Last.CLOSE else encode_challenge(CHALLENGE) + answer, log, reason)

    def _end_of_reports(self, said: bytes, at_last: int) -> End:
        position, next_position = int.from_bytes(said[:8], "big"), int.from_bytes(said[8:16], "big")
        reason = at_last
        if position > INT64_MAX:
            reason = lib.RP_SLAVE_IMPLAUSIBLE
        elif self._rig.config.rocketpy_only:
            reason = lib.RP_SLAVE_STRANGER
        elif position > END:
            reason = lib.RP_SLAVE_LONGER
        elif 0 < position < BEGIN:
            reason = lib.RP_SLAVE_BEHIND
        elif len(said) >= 16:  # 64 random bits are no position of the log
            reason = lib.RP_SLAVE_LONGER if next_position <= INT64_MAX else lib.RP_SLAVE_IMPLAUSIBLE
        return End(b"", self._log_from(position or BEGIN, reason), reason)

    def _log_from(self, start: int, reason: int) -> bytes:
        return self._rig.log[start:] if reason == lib.RP_SLAVE_SILENT else b""

    def _answer(self, said: bytes, at_last: int) -> tuple[bytes, bytes, int]:
        """The master's last answer, what the slave gets of the log, and why the connection is closed."""
        if len(said) < FRAME.size:
            return b"", b"", at_last
        size, kind = FRAME.unpack_from(said)
        if kind != lib.RP_HA_TYPE_HELLO or not 2 <= size <= 1 + JSON_MAX or len(said) > 4 + size:
            return b"", b"", lib.RP_SLAVE_IMPLAUSIBLE
        if len(said) < 4 + size:
            return b"", b"", at_last
        hello = read_hello(said[FRAME.size :])
        nonces = Nonces(CHALLENGE, hello.nonce if isinstance(hello, Hello) else "")
        answer = self._decide(hello) if isinstance(hello, Hello) else hello
        frame = answer.encode(self._rig.group.secret, nonces)
        if isinstance(answer, Refusal):
            return frame, b"", REASON_OF.get(answer.code, lib.RP_SLAVE_STRANGER)
        if answer.truncate is not None:
            return frame, b"", lib.RP_SLAVE_DIVERGED
        return frame, self._log_from(answer.start, at_last), at_last

    def _decide(self, hello: Hello) -> Welcome | Refusal:
        group = self._rig.group
        if self._rig.member is None:
            start = start_for(hello, group, CHALLENGE, OWN, self._crc)
            if isinstance(start, Refusal):
                return start
            return Welcome(start, END, master_begin=BEGIN, version=hello.version)
        join = join_for(hello, group, CHALLENGE, OWN, EPOCHS, EPOCHS.last)
        if isinstance(join, Refusal):
            return join
        place = tail_below(join.start, hello.log, OWN)
        tail = None if place is None else Tail(place[0], self._crc(*place))
        return Welcome(join.start, END, EPOCHS, join.truncate, BEGIN, tail, hello.version)

    def _crc(self, position: int, size: int) -> int:
        return lib.rp_crc32(0, self._rig.log[position : position + size], size)


@pytest.mark.parametrize(
    ("kind", "reasons"),
    [
        ("plain", {"left", "silent", "longer", "behind", "implausible", "stranger", "diverged", "no_tls"}),
        ("secret", {"left", "silent", "longer", "behind", "implausible", "stranger", "diverged", "no_tls"}),
        ("member", {"left", "silent", "behind", "implausible", "stranger", "diverged", "no_tls"}),
    ],
    ids=["plain", "secret", "member"],
)
def test_a_handshake_ends_alike_wherever_it_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, reasons: set[str]
) -> None:
    monkeypatch.setattr(master_module, "new_nonce", lambda: CHALLENGE)
    ends: Counter[str] = Counter()
    logs = 0
    with contextlib.closing(open_rig(tmp_path / kind, kind)) as rig:
        model = Model(rig)
        for seed in range(FIRST_SEED, FIRST_SEED + CASES):
            choose = random.Random(f"{kind} {seed}")
            author = Author(choose, rig)
            scripts = [author.script() for _ in range(SLAVES)]
            try:
                whole, torn = play(rig, scripts), play(rig, scripts, choose)
                assert whole == torn == [model.end(script) for script in scripts]
            except BaseException as failure:
                failure.add_note(f"ROCKETPY_SEED={seed} begins with this case")
                raise
            ends.update(REASONS[end.reason] for end in torn)
            logs += sum(end.log != b"" for end in torn)
    assert ends.keys() == reasons and logs > CASES // 8, f"{ends}, {logs} slaves got the log"
