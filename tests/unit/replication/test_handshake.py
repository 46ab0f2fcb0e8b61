"""Decisions of the handshake that need no socket; those that do are in test_own_slaves.py and test_own_strangers.py."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.replication.handshake import start_for, tail_place
from rocketpy.replication.introduction import Extent, Group, Hello, Refusal
from tests.support.own_frames import NONCE, hello_fields

GROUP = Group(cluster="DefaultCluster", broker_name="broker-a", file_size=65_536)


def test_what_a_slave_encodes_the_master_reads() -> None:
    said = Hello(2, GROUP.cluster, GROUP.broker_name, 7, GROUP.file_size, Extent(5, 5), None, NONCE)
    hello = Hello.read(said.encode(b"", NONCE)[5:])
    assert hello == said
    assert start_for(hello, GROUP, NONCE, Extent(0, 10), lambda *_: None) == 5


def test_a_log_that_cannot_be_read_now_is_compared_later() -> None:
    hello = Hello.read(json.dumps(hello_fields(b"abc")).encode())
    refusal = start_for(hello, GROUP, NONCE, Extent(0, 10), lambda *_: None)
    assert isinstance(refusal, Refusal) and refusal.code == "later"


@pytest.mark.parametrize(
    ("own", "master", "place"),
    [
        (Extent(0, 0), Extent(0, 100), None),
        (Extent(0, 50), Extent(0, 100), (0, 50)),
        (Extent(40, 50), Extent(0, 100), (40, 10)),
        (Extent(0, 50), Extent(50, 100), None),
        (Extent(0, 200_000), Extent(0, 300_000), (200_000 - 65_536, 65_536)),
    ],
)
def test_which_bytes_are_compared(own: Extent, master: Extent, place: tuple[int, int] | None) -> None:
    assert tail_place(own, master) == place
